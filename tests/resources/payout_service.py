"""A service in memory that responds as a test says, and counts what could pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx

from journal.kit import PHONE
from momopay import Journal
from virtual import envelope


def record(**fields: Any) -> dict[str, Any]:
    """Make the service's record of the payout that `pay` makes, as of now."""
    now = datetime.now(UTC).isoformat()
    return {
        "transactionId": "t-1",
        "type": "B2C",
        "status": "PENDING",
        "amount": 10,
        "phone": PHONE,
        "createdAt": now,
        "updatedAt": now,
        **fields,
    }


def listed(reference: str = "r", *, age: timedelta = timedelta(0), **fields: Any) -> dict[str, Any]:
    """Make a record as the list shows it."""
    created = (datetime.now(UTC) - age).isoformat()
    return record(**{"accountReference": reference, "createdAt": created, "updatedAt": created, **fields})


class PayoutService:
    """Responds to an initiation, a read and the list's pages."""

    def __init__(
        self, initiation: Any = None, *, pages: Sequence[Sequence[Any]] = ((),), read: Any = None, status: int = 404
    ) -> None:
        self.requests: list[str] = []
        self.refusals: list[httpx.Response] = []
        self.transport = httpx.MockTransport(self._respond)
        self._initiation = initiation
        self._pages = pages
        self._read = read
        self._status = status

    @property
    def initiations(self) -> int:
        return self.requests.count("POST /b2c/payouts")

    def _respond(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1")
        self.requests.append(f"{request.method} {path}")
        if request.method == "POST" and self.refusals:
            return self.refusals.pop()
        if request.method == "POST":
            return httpx.Response(201, json=envelope(self._initiation))
        if path == "/transactions":
            number = int(request.url.params.get("cursor", "0"))
            more = str(number + 1) if number + 1 < len(self._pages) else None
            overview = {"total": 1, "completed": 1, "failed": 0, "pending": 0}
            return httpx.Response(
                200, json=envelope({"items": self._pages[number], "overview": overview, "nextCursor": more})
            )
        return httpx.Response(200, json=envelope(self._read)) if self._read else httpx.Response(self._status, text="<")


def pay(journal: Journal, **fields: Any) -> Callable[[Any], Any]:
    """Pay 10 KES once, under the reference r."""
    arguments: dict[str, Any] = {"reference": "r", "amount": Decimal(10), "phone": PHONE, **fields}
    return lambda client: client.payouts.pay_once(journal=journal, **arguments)
