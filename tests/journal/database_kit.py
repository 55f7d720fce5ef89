"""What tests do to the journal's database behind its back: statements, locks, threads and processes beside it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, event

from momopay import Journal, JournalError
from momopay.journal.database import bounded
from momopay.journal.journal import internals
from momopay.journal.postgresql import BatchCursor, BoundedConnection
from momopay.journal.store import Store

T = TypeVar("T")


def store_of(journal: Journal) -> Store:
    """Return the journal's payments."""
    return internals(journal).store


def execute(journal: Journal, statement: str) -> list[Any]:
    """Execute a statement in the journal's database; return the rows that it yields."""
    with store_of(journal).database.connection() as connection:
        result = connection.exec_driver_sql(statement)
        return list(result) if result.returns_rows else []


@contextmanager
def another_process(url: str, **options: Any) -> Generator[Journal]:
    """Open a journal as another process does. Within one process, journals of one URL share connections and leases."""
    with patch("momopay.journal.sharing._open", dict[str, Any]()):
        journal = Journal(url, **options)
    with journal:
        yield journal


def engine_of(journal: Journal) -> Any:
    """Return what this process uses the journal's database by."""
    with store_of(journal).database.connection() as connection:
        return connection.engine


def one_after_another(_connection: object) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def before_each(
    work: Callable[[str], object], journal: Journal | None = None, moment: str = "before"
) -> Generator[None]:
    """Do something with the text of each statement just before, or "after", a journal, or any, executes it."""

    def around(connection: Any, text: str, execute: Callable[[], T]) -> T:
        # Each statement but the settings; BEGIN and COMMIT where several are one transaction.
        is_own = connection._each_commits is not None and "set_config" not in text
        counts = is_own and not (connection._each_commits and text.startswith(("BEGIN", "COMMIT")))
        if counts and moment == "before":
            work(text)
        result = execute()
        if counts and moment != "before":
            work(text)
        return result

    def send(connection: Any, text: str, values: Any = None) -> None:
        around(connection, text, partial(send_it, connection, text, values))

    def execute_alone(cursor: Any, text: str, *rest: Any, **options: Any) -> Any:
        is_watched = journal is None or cursor.connection.info.get_parameters()["application_name"] == own
        alone = partial(execute_it, cursor, text, *rest, **options)
        return around(cursor.connection, text, alone) if is_watched else alone()

    def listen(_connection: Any, cursor: object, text: str, *_rest: object) -> None:
        if not isinstance(cursor, BatchCursor):
            work(text)

    own = None if journal is None else store_of(journal).database.shared.sender
    send_it, execute_it = BoundedConnection.send, BatchCursor.execute_alone
    engine = Engine if journal is None else engine_of(journal)
    event.listen(engine, f"{moment}_cursor_execute", listen)
    try:
        # One after another, so that nothing was sent yet of what comes later.
        with (
            patch.object(BoundedConnection, "send", send),
            patch.object(BatchCursor, "execute_alone", execute_alone),
            patch.object(BoundedConnection, "one_round_trip", one_after_another),
        ):
            yield
    finally:
        event.remove(engine, f"{moment}_cursor_execute", listen)


@contextmanager
def before_statement(
    number: int, work: Callable[[], object], journal: Journal | None = None, *, stays: bool = False
) -> Generator[list[int]]:
    """Do something before statement `number`, counted from 1; if it `stays`, also before all later ones.

    What the work itself executes is not counted. Yields the numbers of the statements before which it was done.
    """
    count, is_working = 0, False
    struck = list[int]()

    def strike(_text: str) -> None:
        nonlocal count, is_working
        if is_working:
            return
        count += 1
        if count == number or (stays and count > number):
            struck.append(count)
            is_working = True
            try:
                work()
            finally:
                is_working = False

    with before_each(strike, journal):
        yield struck


@contextmanager
def just_before(
    statement: str, journal: Journal, work: Callable[[], object], moment: str = "before"
) -> Generator[None]:
    """Do something in the moment before, or "after", the journal's next statement that begins so.

    After BEGIN a payment's transaction keeps other writers out: whoever writes here would wait for this thread.
    """
    pending = [work]

    def interfere(text: str) -> None:
        if pending and text.startswith(statement):
            pending.pop()()

    with before_each(interfere, journal, moment):
        yield
    assert not pending, f"there was no {statement}"


@contextmanager
def locked(url: str) -> Generator[sqlite3.Connection]:
    """Lock the file of a journal against all who write."""
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


def in_threads(count: int, work: Callable[[], T]) -> list[T]:
    """Do the same in so many threads at once; return what each returned."""
    together = threading.Barrier(count)

    def start(_number: int) -> T:
        together.wait()
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


# Waits

BOUND = 0.2
"""Seconds for which the tests wait."""
MUCH = 8.0
"""Seconds that a busy machine may need more. Whatever does not end takes longer."""


@contextmanager
def refused_in_time(match: str | None = None) -> Generator[None]:
    """Expect a JournalError when the time is over, and no later."""
    begun = time.monotonic()
    with pytest.raises(JournalError, match=match), bounded(BOUND):
        yield
    assert time.monotonic() - begun < BOUND + MUCH


def stopped_clock() -> AbstractContextManager[object]:
    """Let no time pass for what waits for the database, so that a busy machine ends no wait."""
    return patch("momopay.journal.database.time", SimpleNamespace(monotonic=lambda: 0.0))
