"""What no server shows well: bodies without end, cancellations at every point, transactions, wrong set-ups."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from django.db import connection, connections
from django.test import RequestFactory
from flask import Flask
from starlette.requests import Request

from integrations.apps import django_wsgi_app, flask_app
from momopay import Callback, ConfigurationError, Journal, parse_callback
from momopay.integrations import django, fastapi, flask

BODY = json.dumps(
    {
        "event_type": "transaction.success",
        "transaction": {
            "id": "3b241101-e2bb-4255-8caf-4136c566a962",
            "type": "STK",
            "status": "SUCCESS",
            "amount": 100,
            "phone_number": "254712345678",
            "external_reference": "INV-42",
            "created_at": "2026-01-05T09:00:00Z",
            "updated_at": "2026-01-05T09:01:00Z",
        },
    }
).encode()
CALLBACK = parse_callback(BODY)
SCOPE = {"type": "http", "method": "POST", "path": "/momo", "query_string": b"", "headers": list[tuple[bytes, bytes]]()}


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


def to_fastapi(handler: Any, journal: Journal | None = None) -> Callable[[], Coroutine[Any, Any, Any]]:
    endpoint: Any = fastapi.callback_endpoint(handler, journal=journal)
    return lambda: endpoint(Request(SCOPE, receive))


def to_django(handler: Any, journal: Journal | None = None) -> Callable[[], Coroutine[Any, Any, Any]]:
    endpoint: Any = django.callback_endpoint
    view = endpoint(handler, journal=journal)
    return lambda: view(RequestFactory().post("/momo", BODY, content_type="application/json"))


SUSPENDING = pytest.mark.parametrize("to", [to_fastapi, to_django], ids=["fastapi", "django"])


@contextmanager
def locked(journal: Path) -> Generator[None]:
    """Keep everybody else from writing."""
    with closing(sqlite3.connect(journal, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@SUSPENDING
def test_a_cancelled_handler_frees_its_callback(to: Any, journal: Journal) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handle(_callback: Callback) -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(to(handle, journal)())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert journal.first_seen(CALLBACK)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_scope_that_is_cancelled_frees_its_callback(backend: str, journal: Journal) -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:

            async def handle(_callback: Callback) -> None:
                scope.cancel()
                await anyio.sleep_forever()

            await to_fastapi(handle, journal)()
        assert scope.cancelled_caught

    anyio.run(main, backend=backend)
    assert journal.first_seen(CALLBACK)


@SUSPENDING
def test_cancelled_while_the_journal_is_asked_nothing_is_handled_nor_held(
    to: Any, journal: Journal, tmp_path: Path
) -> None:
    called = list[Callback]()

    async def handle(callback: Callback) -> None:
        called.append(callback)

    async def main() -> None:
        with locked(tmp_path / "shop.db"):
            task = asyncio.create_task(to(handle, journal)())
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.sleep(0.1)
            assert not task.done()  # the thread is waited for, so that it leaves nothing behind
        with pytest.raises(asyncio.CancelledError):
            await task

    assert journal.get("-") is None  # sets it up, before it is locked
    asyncio.run(main())
    assert called == []
    assert journal.first_seen(CALLBACK)


@SUSPENDING
def test_cancelled_again_and_again_while_the_journal_is_told_what_was_handled_counts(
    to: Any, journal: Journal, tmp_path: Path
) -> None:
    async def main() -> None:
        lock = locked(tmp_path / "shop.db")

        async def handle(_callback: Callback) -> None:
            lock.__enter__()

        task = asyncio.create_task(to(handle, journal)())
        await asyncio.sleep(0.2)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.02)
        assert not task.done()
        lock.__exit__(None, None, None)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not journal.first_seen(CALLBACK)


def test_a_handler_that_blocks_comes_to_its_end_before_a_cancellation_and_counts(journal: Journal) -> None:
    begun, go = threading.Event(), threading.Event()

    def handle(_callback: Callback) -> None:
        begun.set()
        assert go.wait(5)

    async def main() -> None:
        task = asyncio.create_task(to_fastapi(handle, journal)())
        await asyncio.to_thread(begun.wait, 5)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not journal.first_seen(CALLBACK)


class Endless(io.RawIOBase):
    """A body that never ends; it counts what was taken."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.taken += len(buffer)
        return len(buffer)


def unreachable(_callback: Callback) -> None:
    pytest.fail("no garbage comes here")


def test_no_more_is_read_of_a_body_than_a_callback_has() -> None:
    chunks = 0

    async def receive_chunk() -> dict[str, Any]:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b" " * 16_384, "more_body": True}

    endpoint: Any = fastapi.callback_endpoint(unreachable)
    assert asyncio.run(endpoint(Request(SCOPE, receive_chunk))).status_code == 400
    assert chunks == 5


@pytest.mark.parametrize("app", [flask_app, django_wsgi_app], ids=["flask", "django"])
@pytest.mark.parametrize(
    "told", [{"CONTENT_LENGTH": str(10**12)}, {"wsgi.input_terminated": True}], ids=["length", "chunked"]
)
def test_no_more_is_read_under_wsgi(app: Any, told: dict[str, Any]) -> None:
    body = Endless()
    environ = {**RequestFactory().generic("POST", "/momo").environ, "wsgi.input": body, **told}
    answers = list[str]()

    def start_response(status: str, *_more: Any) -> None:
        answers.append(status)

    b"".join(app(unreachable)(environ, start_response))
    assert answers == ["400 BAD REQUEST" if app is flask_app else "400 Bad Request"]
    assert body.taken <= 2 * 65_536


async def gives_later(_callback: Callback) -> None:
    await asyncio.sleep(0)


class GivesLater:
    async def __call__(self, callback: Callback) -> None:
        await gives_later(callback)


@pytest.mark.parametrize("handler", [gives_later, GivesLater(), partial(gives_later)], ids=["def", "call", "partial"])
@SUSPENDING
def test_whatever_is_async_is_awaited(to: Any, handler: Any, journal: Journal) -> None:
    assert asyncio.run(to(handler, journal)()).status_code == 200
    assert not journal.first_seen(CALLBACK)
    with Flask("shop").test_request_context("/momo", method="POST", data=BODY):
        assert flask.callback_endpoint(handler)().status_code == 200


def test_what_was_never_awaited_is_never_acknowledged(caplog: pytest.LogCaptureFixture, journal: Journal) -> None:
    def handle(callback: Callback) -> object:
        return gives_later(callback)

    assert asyncio.run(to_fastapi(handle, journal)()).status_code == 500
    with Flask("shop").test_request_context("/momo", method="POST", data=BODY):
        assert flask.callback_endpoint(handle)().status_code == 500
    assert "make it an async def" in caplog.text
    assert journal.first_seen(CALLBACK)


def test_flask_without_its_extra_refuses_what_it_cannot_await(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asgiref", None)
    with pytest.raises(ConfigurationError, match=r"flask\[async\]"):
        flask.callback_endpoint(gives_later)
    flask.callback_endpoint(unreachable)


def test_views_are_named_after_their_handlers() -> None:
    app = Flask("shop")
    app.post("/one")(flask.callback_endpoint(unreachable))
    app.post("/two")(flask.callback_endpoint(gives_later))
    app.post("/three")(flask.callback_endpoint(GivesLater()))
    assert {"unreachable", "gives_later", "momopay_callback"} <= set(app.view_functions)


def test_django_commits_before_the_journal_remembers_and_rolls_back_what_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    atomic = list[bool]()

    class Watched(Journal):
        @contextmanager
        def handling(self, callback: Callback) -> Generator[bool]:
            with super().handling(callback) as first:
                yield first
                atomic.append(connection.in_atomic_block)

    troubles: list[Exception] = [RuntimeError("after the insert")]

    def handle(_callback: Callback) -> None:
        atomic.append(connection.in_atomic_block)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES ('INV-42')")
        if troubles:
            raise troubles.pop()

    def deliver() -> int:
        return int(app.get_response(RequestFactory().post("/momo", BODY, content_type="text/plain")).status_code)

    def paid() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM orders")
            return int(cursor.fetchone()[0])

    with closing(connection), Watched(f"sqlite:///{tmp_path / 'shop.db'}") as journal:
        app = django_wsgi_app(handle, journal=journal)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (reference TEXT)")
        assert (deliver(), paid(), atomic) == (500, 0, [True])
        assert (deliver(), paid(), atomic) == (200, 1, [True, True, False])
        assert (deliver(), paid(), atomic) == (200, 1, [True, True, False, False])
