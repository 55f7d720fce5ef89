"""Connections to PostgreSQL that end every wait in time, also for a server that is frozen or that nothing reaches.

The server's own timeouts (`PostgresqlDatabase`) end a statement that waits for a lock. They do nothing while the server
does not run, so the client looks at its clock, too. It then closes the connection, whose state is not known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from momopay.journal.bounds import is_over, seconds_left

T = TypeVar("T")


class TooLateError(psycopg.OperationalError):
    """The server did not answer within the bound of the thread."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection whose waits end at the bound of the thread that waits."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait for an answer of the server."""
        try:
            return super().wait(_in_time(gen), *args, **kwargs)
        except TooLateError:
            self.close()
            raise


def connect_in_time(connect: Callable[[], BoundedConnection]) -> BoundedConnection:
    """Return a new connection, made in a thread of its own, as looking up a host has no timeout."""
    outcome: Future[BoundedConnection] = Future()

    def run() -> None:
        try:
            connection = connect()
        except BaseException as error:  # noqa: BLE001  the waiting thread raises it
            with suppress(InvalidStateError):
                outcome.set_exception(error)
            return
        try:
            outcome.set_result(connection)
        except InvalidStateError:  # nobody waits any more
            connection.close()

    threading.Thread(target=run, name="momopay-connect", daemon=True).start()
    try:
        return outcome.result(seconds_left())
    except BaseException as error:
        if not outcome.cancel() and outcome.exception() is None:  # it was made at the last moment
            outcome.result().close()
        if isinstance(error, TimeoutError):
            raise TooLateError("no connection in time") from None
        raise


def _in_time(gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    # psycopg resumes the generator at least ten times a second, whether the socket is ready or not.
    ready = None
    if is_over():
        raise TooLateError("no time left to ask")
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
        if is_over():
            raise TooLateError("no answer in time")
        ready = yield wanted
