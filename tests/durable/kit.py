"""What the tests of the durable calls share: the calls, what the sandbox saw of them, and a service in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any, Protocol

import httpx
import pytest

from bodies import envelope, page, wallet
from drivers import Driver
from events_kit import Watcher
from journal.constants import PHONE
from journal.database_kit import execute
from journal.kit import found
from momopay import EntryKind, Journal, JournalEntry, JournalState, Payment, RateBudget
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from momopay.types import Lane, SweepReport

Call = Callable[[Any], Any]

BY_HAND = phone_for(Outcome.by_hand)
"""A customer who does what the test says."""
FAILING, CANCELLING = phone_for(Outcome.insufficient_funds), phone_for(Outcome.cancelled)
KEY_CHECK = "GET /wallets/service/balance"
"""The request that a key costs which the journal does not know. Requests are counted without it."""

over_both_clients = pytest.mark.parametrize("client_kind", ["blocking", "async"])
with_each_client_and_database = pytest.mark.parametrize(
    ("client_kind", "url"), [("blocking", "sqlite"), ("async", "postgresql")], indirect=["url"]
)


def pay(journal: Journal, reference: str = "r", **fields: Any) -> Call:
    """Pay KES 10 once."""
    arguments: dict[str, Any] = {"reference": reference, "amount": 10, "phone": PHONE, **fields}
    return lambda client: client.payouts.pay_once(journal=journal, **arguments)


def collect(journal: Journal, reference: str = "r", **fields: Any) -> Call:
    """Collect KES 10 once."""
    arguments: dict[str, Any] = {"reference": reference, "amount": 10, "phone": BY_HAND, **fields}
    return lambda client: client.stk.collect_once(journal=journal, **arguments)


def pay_all(journal: Journal, *references: str) -> Call:
    """Pay KES 10 under each reference, as a payroll."""
    items = [{"reference": each, "amount": 10, "phone": PHONE} for each in references]
    return lambda client: client.payouts.pay_all(items, journal=journal)


def initiate(reference: str, amount: int = 10) -> Call:
    """Pay without a journal."""
    return lambda client: client.payouts.initiate(reference=reference, amount=amount, phone=PHONE)


def refund(journal: Any, of: Any = "o", **fields: Any) -> Call:
    """Pay back what was paid of an order, or a part."""
    return lambda client: client.payouts.refund(journal=journal, of=of, **fields)


def release(journal: Journal, reference: str = "r", **fields: Any) -> Call:
    """Release a payment, as a person does."""
    arguments: dict[str, Any] = {"reference": reference, "by": "Njeri", **fields}
    return lambda client: client.payouts.release(journal=journal, **arguments)


def sweep(journal: Journal, handler: Any = None) -> Call:
    """Make one pass over all that has not ended."""
    return lambda client: client.transactions.sweep(journal=journal, handler=handler)


@dataclass
class Caller:
    """A client of either kind with its journal."""

    journal: Journal
    sdk: Driver

    def __call__(self, call: Call) -> Any:
        return self.sdk(call)

    def pay(self, reference: str = "r", **fields: Any) -> Any:
        return self.sdk(pay(self.journal, reference, **fields))

    def collect(self, reference: str = "r", **fields: Any) -> Any:
        return self.sdk(collect(self.journal, reference, **fields))

    def refund(self, of: Any = "o", **fields: Any) -> Any:
        return self.sdk(refund(self.journal, of, **fields))

    def release(self, reference: str = "r", **fields: Any) -> Any:
        return self.sdk(release(self.journal, reference, **fields))

    def sweep(self, handler: Any = None) -> SweepReport:
        report: SweepReport = self.sdk(sweep(self.journal, handler))
        return report

    def reconcile_all(self) -> list[JournalEntry]:
        """Search for all that is unresolved. The first time, also have the journal learn whose the key is."""
        entries: list[JournalEntry] = self.sdk(self.journal.reconcile_all)
        return entries

    def entry(self, reference: str = "r", kind: EntryKind | None = None) -> JournalEntry:
        return found(self.journal, reference, kind)

    def state(self, reference: str = "r", kind: EntryKind | None = None) -> JournalState:
        return self.entry(reference, kind).state


@dataclass
class Shop(Caller):
    """A caller of a sandbox."""

    sandbox: Sandbox
    key: str
    account: Account

    @contextmanager
    def refusing(self) -> Generator[None]:
        """Have the service refuse what is sent, as its wallet cannot pay the fee."""
        self.account.service_balance, self.account.fee = Decimal(0), Decimal(1)
        yield
        self.account.service_balance = Decimal(100)

    def later(self, seconds: float) -> None:
        self.sandbox.advance(seconds)

    def settle(self, prompt: Any) -> None:
        """Let the customer pay a prompt; the money has arrived after it."""
        self.sandbox.enter_pin(prompt)
        self.later(60)


def long_ago(journal: Journal) -> None:
    """Make all leases those of attempts that ended long ago, so that a person may release them."""
    execute(journal, "UPDATE momopay_payments SET lease_until = 0")


@dataclass(frozen=True)
class Calls:
    """The calls of one kind, and what the sandbox saw of them."""

    kind: EntryKind
    once: Callable[..., Call]
    path: str
    movement: str
    fields: dict[str, Any]
    """What the service's records of it have."""
    name: str
    """What messages call one payment."""

    def paid(self, sandbox: Sandbox) -> list[str | None]:
        """Return the references by which money moved."""
        return [each.reference for each in sandbox.ledger if str(each.kind) == self.movement]

    def sent(self, sandbox: Sandbox) -> int:
        """Return how many were sent."""
        return requests(sandbox).count(f"POST {self.path}")

    def fail_next(self, sandbox: Sandbox, fault: Fault, times: int = 1) -> None:
        sandbox.fail_next("POST", self.path, fault, times=times)


PAYOUTS = Calls(EntryKind.PAYOUT, pay, "/b2c/payouts", "payout", {}, "the payout")
ORDERS = Calls(EntryKind.COLLECTION, collect, "/payments/stk", "stk", {"type": "STK", "phone": BY_HAND}, "a prompt")
of_both_kinds = pytest.mark.parametrize("calls", [PAYOUTS, ORDERS], ids=["payout", "order"])


def requests(sandbox: Sandbox) -> list[str]:
    """Return the method and path of each request that the sandbox received."""
    seen = [f"{each.method} {each.path.partition('?')[0]}".replace("/v1", "") for each in sandbox.requests]
    return [each for each in seen if each != KEY_CHECK]


def payout_record(**fields: Any) -> dict[str, Any]:
    """Make the service's record of the payout that `pay` makes, as of now."""
    now = datetime.now(UTC).isoformat()
    known = {"transactionId": "t-1", "type": "B2C", "status": "PENDING", "amount": 10, "phone": PHONE}
    return {**known, "createdAt": now, "updatedAt": now, **fields}


def listed(reference: str = "r", *, age: timedelta = timedelta(0), **fields: Any) -> dict[str, Any]:
    """Make a record as the list shows it."""
    created = ago(age)
    return payout_record(**{"accountReference": reference, "createdAt": created, "updatedAt": created, **fields})


def ago(age: timedelta) -> str:
    return (datetime.now(UTC) - age).isoformat()


class Service:
    """A service in memory. It responds as a test says to an initiation, a read and the list's pages.

    `instead` is asked before each response, and `on_post` before that to a payment; they may return another one. The
    responses have dates if the service's clock is so much `ahead`.
    """

    def __init__(
        self,
        initiation: Any = None,
        *,
        pages: Sequence[Sequence[Any]] = ((),),
        read: Any = None,
        status: int = 404,
        instead: Callable[[httpx.Request], httpx.Response | None] = lambda _request: None,
        on_post: Callable[[], httpx.Response | None] = lambda: None,
        ahead: timedelta | None = None,
    ) -> None:
        self.requests: list[str] = []
        self.refusals: list[httpx.Response] = []
        self.transport = httpx.MockTransport(self.respond)
        self.read = read
        self._initiation = initiation
        self._pages = pages
        self._status = status
        self._instead = instead
        self._on_post = on_post
        self.ahead = ahead

    @property
    def sent(self) -> int:
        """How many payments it was asked for."""
        return sum(each.startswith("POST") for each in self.requests)

    def respond(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1")
        if f"{request.method} {path}" != KEY_CHECK:
            self.requests.append(f"{request.method} {path}")
        response = self._instead(request) or self._response(request, path)
        if self.ahead is not None:
            response.headers["date"] = format_datetime(datetime.now(UTC) + self.ahead, usegmt=True)
        return response

    def _response(self, request: httpx.Request, path: str) -> httpx.Response:
        if f"{request.method} {path}" == KEY_CHECK:
            return httpx.Response(200, json=envelope(wallet()))
        if request.method == "POST":
            return self._on_post() or httpx.Response(201, json=envelope(self._initiation))
        if path == "/transactions":
            number = int(request.url.params.get("cursor", "0"))
            more = str(number + 1) if number + 1 < len(self._pages) else None
            return httpx.Response(200, json=envelope(page(self._pages[number], more)))
        return httpx.Response(200, json=envelope(self.read)) if self.read else httpx.Response(self._status, text="<")


@dataclass
class Served(Caller):
    """A caller of a service in memory, whose events are watched."""

    service: Service
    seen: Watcher

    @property
    def requests(self) -> list[str]:
        return self.service.requests


class Serve(Protocol):
    """Makes a caller of a service in memory, and closes it after the test."""

    def __call__(self, initiation: Any = None, *, options: Mapping[str, Any] = ..., **answers: Any) -> Served: ...


class Lanes(RateBudget):
    """A budget that remembers who took its slots."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Lane] = []

    def reserve(self, now: float, lane: Lane, within: float = 0.0) -> float:
        self.taken.append(lane)
        return super().reserve(now, lane, within)


# Sweeps


class Handler:
    """Remembers what it was called with, and raises what it is given first."""

    def __init__(self, *troubles: BaseException) -> None:
        self.ends: list[tuple[str, str]] = []
        self.payments: list[Payment] = []
        self._troubles = list(troubles)

    def __call__(self, payment: Payment) -> None:
        if self._troubles:
            raise self._troubles.pop(0)
        self.payments.append(payment)
        self.ends.append((payment.reference, str(payment.status)))
