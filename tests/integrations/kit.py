"""Ways to pass a request to a receiver, and a callback that the service never sent."""

import asyncio
import io
import json
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from sqlite3 import connect
from typing import Any

from django.test import RequestFactory

from journal.kit import callback_body
from momopay import Callback, CallbackSigner, Journal, parse_callback
from momopay.integrations._receiver import CallbackReceiver

SIGNER = CallbackSigner("a shop's own secret, long enough")
BODY = json.dumps(callback_body("SAL-1")).encode()
CALLBACK = parse_callback(BODY)
LARGEST, TOO_LARGE = (BODY + b" " * (size - len(BODY)) for size in (65_536, 65_537))
QUERY = SIGNER.url("https://shop.example/momo", reference="SAL-1").partition("?")[2]


class Handler:
    """A handler that remembers its callbacks, and raises what it is given."""

    def __init__(self, *troubles: Exception) -> None:
        self.calls: list[Callback] = []
        self._troubles = list(troubles)

    def handle(self, callback: Callback) -> None:
        self.calls.append(callback)
        if self._troubles:
            raise self._troubles.pop(0)

    async def handle_async(self, callback: Callback) -> None:
        await asyncio.sleep(0)
        self.handle(callback)


Receive = Callable[..., Callable[..., HTTPStatus]]


def blocking(handler: Handler, *options: Any) -> Callable[..., HTTPStatus]:
    return CallbackReceiver(handler.handle, *options).receive


def awaited(handler: Handler, *options: Any) -> Callable[..., HTTPStatus]:
    receiver = CallbackReceiver(handler.handle_async, *options)
    return lambda *request: asyncio.run(receiver.receive_async(*request))


def threaded(handler: Handler, *options: Any) -> Callable[..., HTTPStatus]:
    receiver = CallbackReceiver(handler.handle, *options)
    return lambda *request: asyncio.run(receiver.receive_async(*request))


def to_receiver(handler: Any, journal: Journal | None = None) -> Callable[[], Coroutine[Any, Any, Any]]:
    return partial(CallbackReceiver(handler, None, journal).receive_async, "POST", "", BODY)


class EndlessBody(io.RawIOBase):
    """A body that never ends; it counts what was read."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.taken += len(buffer)
        return len(buffer)


def send_endlessly(app: Any, **stated: Any) -> tuple[str, int]:
    """Send an endless body to a WSGI app; return the status, and how many bytes it read."""
    body, statuses = EndlessBody(), list[str]()
    environ = {**RequestFactory().generic("POST", "/momo").environ, "wsgi.input": body, **stated}

    def start_response(status: str, *_more: Any) -> None:
        statuses.append(status)

    b"".join(app(environ, start_response))
    return statuses[0], body.taken


ENDLESS: list[dict[str, Any]] = [{"CONTENT_LENGTH": str(10**12)}, {"wsgi.input_terminated": True}]


def unreachable(_callback: Callback) -> None:
    raise AssertionError("only callbacks come here")


async def handle_later(_callback: Callback) -> None:
    await asyncio.sleep(0)


@contextmanager
def locked(database: Path) -> Generator[None]:
    """Keep everybody else from writing."""
    with closing(connect(database, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
