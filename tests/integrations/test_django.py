"""What is particular to the views of Django: CSRF, transactions, and two kinds of view."""

import asyncio
import inspect
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.test import RequestFactory

from durable.receiving import BODY, client_of, handle_later, unreachable
from integrations.apps import django_wsgi_app
from momopay import Journal, Payment
from momopay.integrations import django


def post(app: Any, query: str = "", body: bytes = BODY) -> Any:
    factory = RequestFactory(enforce_csrf_checks=True)
    return app.get_response(factory.post(f"/momo?{query}", body, content_type="application/json"))


def test_an_async_handler_makes_an_async_view() -> None:
    view = django.callback_endpoint(handle_later, client=client_of())
    assert inspect.iscoroutinefunction(view)
    assert asyncio.run(view(RequestFactory().post("/momo", BODY, content_type="text/plain"))).status_code == 200
    assert not inspect.iscoroutinefunction(django.callback_endpoint(unreachable, client=client_of()))


def test_without_atomic_requests_or_for_an_async_handler_no_transaction_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    atomic = list[bool]()

    def handle(_payment: Payment) -> None:
        atomic.append(connection.in_atomic_block)

    with closing(connection):
        post(django_wsgi_app(handle, client=client_of()))
        assert atomic == [False]
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
        assert post(django_wsgi_app(handle_later, client=client_of())).status_code == 200
        assert inspect.iscoroutinefunction(django.callback_endpoint(handle_later, client=client_of()))


def test_the_handler_commits_before_the_journal_marks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    atomic = list[bool]()

    class Watched(Journal):
        @contextmanager
        def handling(self, end: Any) -> Generator[bool]:
            with super().handling(end) as first:
                yield first
                atomic.append(connection.in_atomic_block)

    troubles: list[Exception] = [RuntimeError("after the insert")]

    def handle(_payment: Payment) -> None:
        atomic.append(connection.in_atomic_block)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES ('INV-42')")
        if troubles:
            raise troubles.pop()

    def paid() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM orders")
            return int(cursor.fetchone()[0])

    with closing(connection), Watched(f"sqlite:///{tmp_path / 'shop.db'}") as journal:
        app = django_wsgi_app(handle, client=client_of(journal))
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (reference TEXT)")
        assert (post(app).status_code, paid(), atomic) == (500, 0, [True])
        assert (post(app).status_code, paid(), atomic) == (200, 1, [True, True, False])
        assert (post(app).status_code, paid(), atomic) == (200, 1, [True, True, False])
