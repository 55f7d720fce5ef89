"""The judge: holds the service's ledger, the only witness, against the journal and against what each call said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from math import inf
from types import MappingProxyType

from campaign.orders import Order
from momopay import JournalEntry, JournalState


class Finding(StrEnum):
    """What must never be found."""

    DOUBLE = "double payments"
    LOST = "lost payments (at the service, in the journal neither ACCEPTED nor UNKNOWN)"
    LATE = "payouts executed long after their call's deadline"
    SAID_FAILED = "unknown or paid, reported as failed"
    WRONG_STATE = "wrong states (ACCEPTED without that payment)"
    WRONG_WORD = "records returned of payments that the service does not have"
    WRONG_AMOUNT = "wrong amounts or phones"
    UNTYPED = "errors that are no MomoPayError"
    MISSED = "left UNKNOWN though the list shows them"
    UNPAID = "orders not paid in the end"
    HUNG = "calls that never ended"


class Said(StrEnum):
    """How a call of `pay_once` ended."""

    PAID = "paid"
    UNKNOWN = "outcome unknown"
    FAILED = "surely not paid"
    DUPLICATE = "duplicate refused"
    NO_JOURNAL = "journal failed, surely not paid"
    IN_DOUBT = "journal failed, outcome unknown"
    MISCONFIGURED = "journal refused"
    CANCELLED = "cancelled"
    STRUCK = "struck by a signal"
    HUNG = "never ended"
    UNTYPED = "untyped error"


@dataclass(frozen=True)
class Payment:
    """One payout as the service committed it; `call` is the call of `pay_once` that asked for it."""

    reference: str
    amount: Decimal
    phone: str
    transaction_id: str
    call: str
    at: float


@dataclass(frozen=True)
class Word:
    """What one call said, and when it began; the service's payments are dated by the same clock."""

    call: str
    reference: str
    said: Said
    begun: float
    error: str = ""
    transaction_id: str | None = None
    amount: Decimal | None = None


@dataclass
class Verdict:
    """What was found, and what is left in doubt."""

    orders: int
    payments: int
    paid_once: int
    left_unknown: int
    findings: dict[Finding, list[str]] = field(default_factory=lambda: defaultdict[Finding, list[str]](list))

    @property
    def rows(self) -> dict[str, object]:
        """What there was, in words."""
        return {
            "orders": self.orders,
            "payments at the service": self.payments,
            "orders paid exactly once": self.paid_once,
        }

    @property
    def cases(self) -> dict[StrEnum, list[str]]:
        """Every finding with its cases."""
        return {finding: self.findings[finding] for finding in Finding}

    @property
    def found(self) -> set[Finding]:
        """What was found that must never be."""
        return {finding for finding, cases in self.findings.items() if cases}

    @property
    def holds(self) -> bool:
        """Whether nothing was found that must never be."""
        return not self.found

    def add(self, other: Verdict) -> None:
        """Sum up two campaigns."""
        self.orders += other.orders
        self.payments += other.payments
        self.paid_once += other.paid_once
        self.left_unknown += other.left_unknown
        for finding, cases in other.findings.items():
            self.findings[finding] += cases


def judge(
    orders: Sequence[Order],
    payments: Iterable[Payment],
    entries: Mapping[str, JournalEntry | None],
    words: Iterable[Word],
    *,
    closed: bool = True,
    latest: float = inf,
    misled: Mapping[str, str] = MappingProxyType({}),
    released: Mapping[str, float] = MappingProxyType({}),
    forgotten: Collection[str] = (),
) -> Verdict:
    """Compare the three.

    `closed`: the faults are over and every order had its last chance. `latest`: seconds after its call began by which a
    payout is executed. `misled`: the calls that were answered with another payout's id, and that id. They may tell it
    where the journal, which has it already, could not be asked; the row may not. `released`: when a person last began
    to release a reference. Whoever did so before the service had executed it told the journal what was not so.
    `forgotten`: what a restored copy of the journal does not have, and a person took out of what is to be paid.
    """
    paid: dict[str, list[Payment]] = defaultdict(list)
    for payment in payments:
        paid[payment.reference].append(payment)
    once = sum(len(paid[order.reference]) == 1 for order in orders)
    verdict = Verdict(len(orders), sum(map(len, paid.values())), once, 0)
    _judge_money(verdict, orders, paid)
    for order in orders:
        if order.reference in forgotten:
            continue
        _judge_state(verdict, order, entries.get(order.reference), paid[order.reference], closed=closed)
    for word in words:
        if word.transaction_id is None or word.transaction_id != misled.get(word.call):
            _judge_word(verdict, word, paid.get(word.reference, []), latest, released.get(word.reference, inf))
    return verdict


def _judge_money(verdict: Verdict, orders: Sequence[Order], paid: Mapping[str, list[Payment]]) -> None:
    owed = {order.reference: order for order in orders}
    for reference, payments in paid.items():
        if len(payments) > 1:
            calls = ", ".join(payment.call for payment in payments)
            verdict.findings[Finding.DOUBLE].append(f"{reference} was paid {len(payments)} times, by {calls}")
        order = owed.get(reference)
        for payment in payments:
            if order is None or (payment.amount, payment.phone) != (order.amount, order.phone):
                verdict.findings[Finding.WRONG_AMOUNT].append(f"{reference}: {payment}, owed {order}")


def _judge_state(
    verdict: Verdict, order: Order, entry: JournalEntry | None, payments: list[Payment], *, closed: bool
) -> None:
    state = None if entry is None else entry.state
    name = f"{order.reference} ({'no row' if state is None else state.value})"
    if state is JournalState.UNKNOWN:
        verdict.left_unknown += 1
        if closed and payments:
            verdict.findings[Finding.MISSED].append(name)
    if payments and state not in {JournalState.ACCEPTED, JournalState.UNKNOWN}:
        verdict.findings[Finding.LOST].append(name)
    if entry is not None:
        if state is JournalState.ACCEPTED and entry.transaction_id not in {each.transaction_id for each in payments}:
            verdict.findings[Finding.WRONG_STATE].append(f"{name}: transaction {entry.transaction_id}")
        if (entry.amount, entry.phone) != (order.amount, order.phone):
            verdict.findings[Finding.WRONG_AMOUNT].append(f"{name}: the journal has {entry}")
    if closed and not payments and state is not JournalState.UNKNOWN:
        verdict.findings[Finding.UNPAID].append(name)


def _judge_word(verdict: Verdict, word: Word, payments: list[Payment], latest: float, released: float) -> None:
    case = f"{word.reference}, call {word.call}: {word.said.value} {word.error}".rstrip()
    late = [payment.at - word.begun for payment in payments if payment.call == word.call]
    if any(seconds > latest for seconds in late):
        verdict.findings[Finding.LATE].append(f"{case}, executed after {late} s")
    if word.said is Said.HUNG:
        verdict.findings[Finding.HUNG].append(case)
    elif word.said is Said.UNTYPED:
        verdict.findings[Finding.UNTYPED].append(case)
    elif word.said in {Said.FAILED, Said.NO_JOURNAL}:
        own = any(payment.call == word.call for payment in payments)
        if own or any(payment.at < min(word.begun, released) for payment in payments):
            verdict.findings[Finding.SAID_FAILED].append(case)
    elif word.said in {Said.DUPLICATE, Said.MISCONFIGURED}:
        # They speak of this call alone: it sent nothing.
        if any(payment.call == word.call for payment in payments):
            verdict.findings[Finding.SAID_FAILED].append(case)
    elif word.said is Said.PAID:
        told = (word.transaction_id, word.amount)
        if told not in {(payment.transaction_id, payment.amount) for payment in payments}:
            verdict.findings[Finding.WRONG_WORD].append(f"{case}: transaction {word.transaction_id}")
