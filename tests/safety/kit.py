"""A shop, its journal and the service, with what can go wrong between them."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event

from durable.kit import Shop
from journal.constants import COLLECTION
from journal.database_kit import execute
from momopay import JournalEntry, OutcomeUnknownError
from momopay.sandbox import Sandbox

OTHER_PHONE = "254722000111"
HOUR = 3600.0
SEARCH_AGAIN = 11 * 60.0
"""Seconds after which a sweep looks once more at what had ended or was released."""


class Between(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Stands between a client and the service: changes responses, and holds requests back.

    Attributes:
        edit: Called with the path and the data of each successful response, which it may change.
        first: Called with the method and the path before a request goes on.
        date_shift: Added to the ``Date`` header; None removes it.
        time_shift: Added to all times of the service's records.
    """

    def __init__(self) -> None:
        self.edit: Callable[[str, Any], None] = lambda _path, _data: None
        self.first: Callable[[str, str], None] = lambda _method, _path: None
        self.date_shift: timedelta | None = timedelta(0)
        self.time_shift = timedelta(0)
        self.requests: list[str] = []
        self._held: list[Callable[[], httpx.Response]] = []
        self._to_hold: list[httpx.Response | None] = []
        self._http = httpx.Client(trust_env=False, verify=False, timeout=30.0)

    def hold_next_post(self, answer: httpx.Response | None = None) -> None:
        """Keep the next POST, which then times out, or gets this response."""
        self._to_hold.append(answer)

    def deliver(self, most: int = 9) -> None:
        for _ in self._held[:most]:
            assert self._held.pop(0)().status_code < 300

    def close(self) -> None:
        self._http.close()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        content = request.read()
        return self._respond(request, content)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        return self._respond(request, content)

    async def aclose(self) -> None:
        """Leave it open: a test may look at it after its client was closed."""

    def _respond(self, request: httpx.Request, content: bytes) -> httpx.Response:
        path = request.url.path.removeprefix("/v1")
        self.requests.append(f"{request.method} {path}")
        self.first(request.method, path)
        headers = [(name, value) for name, value in request.headers.items() if name != "accept-encoding"]
        send = partial(self._http.request, request.method, str(request.url), headers=headers, content=content)
        if request.method == "POST" and self._to_hold:
            self._held.append(send)
            answer = self._to_hold.pop(0)
            if answer is None:
                raise httpx.ReadTimeout("the service did not answer", request=request)
            return answer
        return self._changed(path, send())

    def _changed(self, path: str, response: httpx.Response) -> httpx.Response:
        body = response.json()
        data = body.get("data")
        for record in _records(data):
            for name in ("createdAt", "updatedAt"):
                if name in record and self.time_shift:
                    record[name] = (datetime.fromisoformat(record[name]) + self.time_shift).isoformat()
        if data is not None:
            self.edit(path, data)
        headers = {"content-type": "application/json"}
        if self.date_shift is not None:
            shifted = parsedate_to_datetime(response.headers["date"]) + self.date_shift
            headers["date"] = format_datetime(shifted, usegmt=True)
        return httpx.Response(response.status_code, headers=headers, content=json.dumps(body).encode())


def _records(data: Any) -> list[dict[str, Any]]:
    found: dict[str, Any] = data if data is not None else {}
    return [found, *found.get("items", ())]


def records_of(data: Any, identity: str) -> list[dict[str, Any]]:
    """Return the records of a transaction in a response's data, to be changed."""
    return [each for each in _records(data) if each.get("transactionId") == identity]


class DatabaseClock:
    """Moves the clock by which SQLite's statements go. Install it before the journal is opened."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    @contextmanager
    def installed(self) -> Generator[None]:
        event.listen(Engine, "connect", self._replace)
        try:
            yield
        finally:
            event.remove(Engine, "connect", self._replace)

    def _replace(self, connection: Any, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.create_function("julianday", 1, self._now)

    def _now(self, _text: str) -> float:
        return (datetime.now(UTC).timestamp() + self.ahead) / 86400 + 2440587.5


@dataclass
class FragileShop(Shop):
    """A shop whose connection and clocks a test may disturb."""

    clock: DatabaseClock
    between: Between

    def collect(self, reference: str = "o", **fields: Any) -> Any:
        return super().collect(reference, **fields)

    def order(self, reference: str = "o") -> JournalEntry:
        return self.entry(reference, COLLECTION)

    def later(self, seconds: float) -> None:
        super().later(seconds)
        self.clock.ahead += seconds
        execute(self.journal, f"UPDATE momopay_payments SET lease_until = lease_until - {seconds}")

    def send_unresolved(self, call: Callable[..., object], *arguments: Any, **fields: Any) -> None:
        """Make a payment that the service will execute later."""
        self.between.hold_next_post()
        with pytest.raises(OutcomeUnknownError):
            call(*arguments, **fields)

    @property
    def paid_out(self) -> Counter[str]:
        return moved(self.sandbox, "payout", self.account.tenant_id)

    @property
    def paid_in(self) -> Counter[str]:
        """How much customers have paid, by the service's reference."""
        return moved(self.sandbox, "stk", self.account.tenant_id)

    @property
    def payouts(self) -> int:
        return self.between.requests.count("POST /b2c/payouts")

    @property
    def prompts(self) -> int:
        return self.between.requests.count("POST /payments/stk")

    def newest(self) -> str:
        return next(each.transaction_id for each in reversed(self.sandbox.ledger) if str(each.kind) != "fee")


def moved(sandbox: Sandbox, kind: str, tenant: str | None = None) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in sandbox.ledger:
        if str(each.kind) == kind and tenant in {None, each.tenant_id}:
            assert each.amount == int(each.amount), "tests of safety use whole shillings"
            total[each.reference] += int(each.amount)
    return total


def criticals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
