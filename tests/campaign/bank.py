"""The service of the simulation: a state machine over virtual time, with a ledger. It knows no sockets, no clients."""

import heapq
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from bodies import encoded, envelope, page, refusal, transaction, wallet
from campaign.judge import Payment
from journal.records import callback_body

Answer = tuple[int, bytes]
PAYOUT = "/b2c/payouts"
WALLET = "/wallets/service/balance"
HTML = b"<html><body>Bad gateway</body></html>"
REMEMBERED = {"ignored": 0.0, "honoured": inf, "forgotten": 600.0}
"""Virtual seconds for which the service knows a payout by its Idempotency-Key."""
SUCCEEDS = 0.9
"""How likely a payout succeeds."""
LISTED_LATE = 40.0
"""Virtual seconds for which a payment may be missing from every list."""
STYLES = ("masked", "with_fee", "lower_case", "local_times")
"""How a list may show payments so that none of them looks like what was asked for."""


@dataclass
class Record:
    payment: Payment
    callback_url: str
    created_at: datetime
    listed_from: float
    status: str = "PENDING"


class Bank:
    """Takes payouts, tells of them, and calls back. Times are virtual seconds since it opened."""

    def __init__(self, rng: random.Random, call_back: Callable[[str, bytes], None], keys: str = "ignored") -> None:
        self.now = 0.0
        self.records: list[Record] = []
        self.refuses: str | None = None
        self._by_id: dict[str, Record] = {}
        self._by_key: dict[str, tuple[bytes, Record]] = {}
        self._remembered = REMEMBERED[keys]
        self._rng = rng
        self._call_back = call_back
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._entries = 0
        self.style = ""
        # A whole second: its answers show their Date in seconds, and what is rounded must not differ between replays.
        self._opened = datetime.now(UTC).replace(microsecond=0)

    @property
    def ledger(self) -> list[Payment]:
        return [record.payment for record in self.records]

    @property
    def time(self) -> datetime:
        return self._opened + timedelta(seconds=self.now)

    def at(self, delay: float, act: Callable[[], object]) -> None:
        self._entries += 1
        heapq.heappush(self._agenda, (self.now + delay, self._entries, act))

    @property
    def next_due(self) -> float | None:
        return self._agenda[0][0] if self._agenda else None

    def advance(self, to: float) -> None:
        while self._agenda and self._agenda[0][0] <= to:
            due, _, act = heapq.heappop(self._agenda)
            self.now = max(self.now, due)
            act()
        self.now = max(self.now, to)

    def answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        key: str = "",
        *,
        lag: bool = False,
        callback: str = "",
        style: str = "",
    ) -> Answer:
        """Do what a request asks for.

        `lag`: lists show late; `callback`: how the payout's callback fares; `style`: how a list shows payments.
        """
        path, _, query = path.partition("?")
        if (method, path) == ("POST", PAYOUT):
            return self._pay(body or b"", key, lag=lag, callback=callback)
        if (method, path) == ("GET", "/transactions"):
            return self._list(parse_qs(query), lag=lag, style=style or self.style)
        if (method, path) == ("GET", WALLET):
            return accepted(wallet(tenantId="t", updatedAt=self.time.isoformat()))
        record = self._by_id.get(path.rpartition("/")[2])
        return refused(404, "TRANSACTION_NOT_FOUND") if record is None else accepted(_shown(record))

    def _pay(self, sent: bytes, key: str, *, lag: bool, callback: str) -> Answer:
        body = json.loads(sent, parse_float=Decimal)
        known, record = self._by_key.get(key, (b"", None))
        if record is not None and self.now - record.payment.at < self._remembered:
            if known != sent:
                return refused(409, "DUPLICATE_IDEMPOTENCY_KEY")
            return accepted(_shown(record) | {"reference": record.payment.reference})
        if self.refuses is not None:
            return refused(403 if self.refuses.startswith("KYC") else 409, self.refuses)
        identity = str(UUID(int=self._rng.getrandbits(128), version=4))
        amount = Decimal(body["amount"])
        payment = Payment(body["reference"], amount, body["phone"], identity, body.get("description", ""), self.now)
        listed = self.now + (self._rng.uniform(1, LISTED_LATE) if lag else 0.0)
        record = Record(payment, body.get("callbackUrl", ""), self.time, listed)
        self._by_id[identity] = record
        self._by_key[key] = (sent, record)
        self.records.append(record)
        self._plan_ends(record, callback)
        return accepted(_shown(record) | {"reference": payment.reference})

    def _plan_ends(self, record: Record, fate: str) -> None:
        """Let a payout succeed, or fail and be credited back."""
        delay = self._rng.uniform(0.1, 5)
        if self._rng.random() < SUCCEEDS:
            self._plan_end(record, fate, "SUCCESS", delay)
        else:
            self._plan_end(record, fate, "FAILED", delay)
            self._plan_end(record, fate, "REVERSED", delay + self._rng.uniform(1, 40))

    def _plan_end(self, record: Record, fate: str, status: str, delay: float) -> None:
        def end() -> None:
            record.status = status

        def deliver() -> None:
            self._call_back(record.callback_url, called_back(record.payment, status))

        self.at(delay, end)
        if fate != "lost":
            self.at(delay + (self._rng.uniform(5, 60) if fate in {"late", "reordered"} else 0), deliver)
        if fate == "duplicate":
            self.at(delay + self._rng.uniform(0, 2), deliver)

    def _list(self, query: dict[str, list[str]], *, lag: bool, style: str) -> Answer:
        now = self.now - LISTED_LATE if lag else self.now
        before = int(query.get("cursor", [str(len(self.records))])[0])
        limit = int(query.get("limit", ["20"])[0])
        seen = [number for number in range(before) if self.records[number].listed_from <= now]
        shown = seen[::-1][:limit]
        items = [_styled(_shown(self.records[number]), style) for number in shown]
        return accepted(page(items, str(shown[-1]) if len(seen) > limit else None))


def accepted(data: object) -> Answer:
    return 200, encoded(envelope(data))


def refused(status: int, code: str) -> Answer:
    return status, encoded(refusal(code))


def called_back(payment: Payment, status: str) -> bytes:
    stated = {"amount": float(payment.amount), "phone_number": payment.phone}
    return encoded(callback_body(payment.reference, payment.transaction_id, status, **stated))


def _styled(item: dict[str, Any], style: str) -> dict[str, Any]:
    match style:
        case "masked":
            return item | {"phone": f"{item['phone'][:4]}*****{item['phone'][-3:]}"}
        case "with_fee":
            return item | {"amount": item["amount"] + 1}
        case "lower_case":
            return item | {"type": item["type"].lower()}
        case "local_times":
            local = datetime.fromisoformat(item["createdAt"]).replace(tzinfo=None) + timedelta(hours=3)
            return item | dict.fromkeys(("createdAt", "updatedAt"), local.isoformat())
        case _:
            return item


def _shown(record: Record) -> dict[str, Any]:
    payment, when = record.payment, record.created_at.isoformat()
    names = {"type": "B2C", "phone": payment.phone, "accountReference": payment.reference}
    shown = {**names, "amount": float(payment.amount), "createdAt": when, "updatedAt": when}
    return transaction(payment.transaction_id, record.status, **shown)
