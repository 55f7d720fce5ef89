"""The judge: holds the service's record, the only witness, against the journal and against what each call said."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import Self

from momopay import EntryKind, JournalEntry, JournalState, TransactionStatus


class Finding(StrEnum):
    DOUBLE = "double payments (of an order, without a late PIN)"
    TWO_OPEN = "customers with two open prompts"
    AGAIN = "prompts of an order that a call had already returned as paid"
    LOST = "lost payments (at the service, in the journal neither ACCEPTED nor UNKNOWN)"
    FORGOTTEN = "paid prompts that the journal does not have after a sweep"
    READS_UNPAID = "paid orders that read as unpaid after a sweep"
    LATE = "payouts executed long after their call's deadline"
    SAID_FAILED = "unknown, paid or prompted, reported as failed"
    WRONG_STATE = "wrong states (ACCEPTED or paid without that payment)"
    WRONG_WORD = "records returned of payments that the service does not have"
    WRONG_AMOUNT = "wrong amounts or phones, or payments of no order"
    UNTYPED = "errors that are no MomoPayError"
    HANDLED = "ends not handled exactly once"
    BELIEVED = "payments that a word without a read changed"
    MISSED = "left UNKNOWN though the list shows them"
    UNPAID = "orders not paid in the end"


class Said(StrEnum):
    """How a call of `pay_once` or `collect_once` ended."""

    PAID = "paid"
    OPEN = "a prompt is open"
    UNKNOWN = "outcome unknown"
    FAILED = "surely not sent"
    DUPLICATE = "duplicate refused"
    NO_JOURNAL = "journal failed, surely not sent"
    IN_DOUBT = "journal failed, outcome unknown"
    MISCONFIGURED = "journal refused"
    CANCELLED = "cancelled"
    UNTYPED = "untyped error"


@dataclass(frozen=True)
class Order:
    """One payment that somebody is owed, exactly once."""

    reference: str
    amount: Decimal
    phone: str


@dataclass(frozen=True)
class Payment:
    """One payout or prompt as the service committed it; `call` is the call that asked for it.

    Of a prompt, `ended` is when it first ended, and `was_late` whether the PIN came after that.
    """

    reference: str
    amount: Decimal
    phone: str
    transaction_id: str
    call: str
    at: float
    ended: float | None = None
    is_paid: bool = True
    was_late: bool = False


@dataclass(frozen=True)
class Word:
    """What one call said, when it began and when it ended; the service's payments are dated by the same clock."""

    call: str
    reference: str
    said: Said
    begun: float
    ended: float = inf
    error: str = ""
    transaction_id: str | None = None
    amount: Decimal | None = None

    @property
    def case(self) -> str:
        return f"{self.reference}, call {self.call}: {self.said.value} {self.error}".rstrip()


@dataclass
class Verdict:
    kind: EntryKind = EntryKind.PAYOUT
    orders: int = 0
    payments: int = 0
    paid_once: int = 0
    paid_twice: int = 0
    left_unknown: int = 0
    findings: dict[Finding, list[str]] = field(default_factory=lambda: defaultdict[Finding, list[str]](list))

    @property
    def figures(self) -> dict[str, int]:
        return {
            "orders": self.orders,
            "payments at the service": self.payments,
            "orders paid exactly once": self.paid_once,
            "orders paid twice, by a late PIN, and known to be": self.paid_twice,
        }

    @property
    def found(self) -> set[Finding]:
        return {finding for finding, cases in self.findings.items() if cases}

    @property
    def holds(self) -> bool:
        return not self.found

    def note(self, finding: Finding, case: str) -> None:
        if case not in self.findings[finding]:
            self.findings[finding].append(case)

    def add(self, other: Self) -> None:
        self.orders += other.orders
        self.payments += other.payments
        self.paid_once += other.paid_once
        self.paid_twice += other.paid_twice
        self.left_unknown += other.left_unknown
        self.join(other)

    def join(self, other: Self) -> None:
        for finding, cases in other.findings.items():
            for case in cases:
                self.note(finding, case)


def judge(
    orders: Sequence[Order],
    payments: Iterable[Payment],
    entries: Mapping[str, JournalEntry | None],
    words: Sequence[Word],
    *,
    kind: EntryKind = EntryKind.PAYOUT,
    closed: bool = True,
    latest: float = inf,
    released: Mapping[str, float] = MappingProxyType({}),
) -> Verdict:
    """Compare the three.

    `closed`: the faults are over and every order had its last chance. `latest`: seconds after its call began by which a
    payout is executed. `released`: when a person last began to release a reference. Whoever did so before the service
    had executed it told the journal what was not so.
    """
    made = by_order(payments, entries)
    verdict = Verdict(kind, len(orders), sum(map(len, made.values())))
    verdict.paid_once = sum(sum(each.is_paid for each in made.get(order.reference, ())) == 1 for order in orders)
    verdict.paid_twice = sum(sum(each.is_paid for each in each_made) > 1 for each_made in made.values())
    verdict.left_unknown = sum(each is not None and each.state is JournalState.UNKNOWN for each in entries.values())
    _judge_money(verdict, orders, made)
    judge_entry = _judge_payout if kind is EntryKind.PAYOUT else _judge_order
    for order in orders:
        judge_entry(verdict, order, entries.get(order.reference), made.get(order.reference, []), closed=closed)
    for word in words:
        _judge_word(verdict, word, made.get(word.reference, []), latest, released.get(word.reference, inf))
    if kind is EntryKind.COLLECTION:
        _judge_repeats(verdict, words, made)
    return verdict


def by_order(
    payments: Iterable[Payment], entries: Mapping[str, JournalEntry | None]
) -> defaultdict[str, list[Payment]]:
    """Return the payments of each order; those that no order owns are under the service's own reference."""
    owners = {entry.wire_reference: entry.reference for entry in entries.values() if entry}
    made = defaultdict[str, list[Payment]](list)
    for payment in payments:
        made[owners.get(payment.reference, payment.reference)].append(payment)
    return made


def _judge_money(verdict: Verdict, orders: Sequence[Order], made: Mapping[str, list[Payment]]) -> None:
    owed = {order.reference: order for order in orders}
    for reference, payments in made.items():
        paid = [each for each in payments if each.is_paid]
        if len(paid) > 1 and not any(each.was_late for each in paid):
            calls = ", ".join(each.call for each in paid)
            verdict.note(Finding.DOUBLE, f"{reference} was paid {len(paid)} times, by {calls}")
        order = owed.get(reference)
        for number, payment in enumerate(payments):
            if order is None or (payment.amount, payment.phone) != (order.amount, order.phone):
                verdict.note(Finding.WRONG_AMOUNT, f"{reference}: {payment}, owed {order}")
            for earlier in payments[:number] if verdict.kind is EntryKind.COLLECTION else ():
                if payment.at < (inf if earlier.ended is None else earlier.ended):
                    verdict.note(Finding.TWO_OPEN, f"{reference}: {earlier} and {payment}")


def _judge_payout(
    verdict: Verdict, order: Order, entry: JournalEntry | None, payments: list[Payment], *, closed: bool
) -> None:
    state = None if entry is None else entry.state
    name = f"{order.reference} ({'no row' if state is None else state.value})"
    if state is JournalState.UNKNOWN and closed and payments:
        verdict.note(Finding.MISSED, name)
    if payments and state not in {JournalState.ACCEPTED, JournalState.UNKNOWN}:
        verdict.note(Finding.LOST, name)
    if entry is not None:
        if state is JournalState.ACCEPTED and entry.transaction_id not in {each.transaction_id for each in payments}:
            verdict.note(Finding.WRONG_STATE, f"{name}: transaction {entry.transaction_id}")
        if (entry.amount, entry.phone) != (order.amount, order.phone):
            verdict.note(Finding.WRONG_AMOUNT, f"{name}: the journal has {entry}")
    if closed and not payments and state is not JournalState.UNKNOWN:
        verdict.note(Finding.UNPAID, name)


def _judge_order(
    verdict: Verdict, order: Order, entry: JournalEntry | None, prompts: list[Payment], *, closed: bool
) -> None:
    """Judge what the journal says of an order when a sweep has run."""
    paid = [each.transaction_id for each in prompts if each.is_paid]
    reads_paid = entry is not None and entry.status is TransactionStatus.SUCCESS
    name = f"{order.reference} ({'no row' if entry is None else f'{entry.state.value}, {entry.status}'})"
    if entry is not None and entry.state is JournalState.UNKNOWN and not closed:
        return  # it reads as in doubt: a person who sees a near match may still settle it
    if paid and not reads_paid:
        verdict.note(Finding.READS_UNPAID, f"{name}: {prompts}")
    if reads_paid and (entry is None or entry.transaction_id not in paid):
        verdict.note(Finding.WRONG_STATE, f"{name}: {prompts}")
    known = {each.transaction_id for each in entry.transactions if each.is_paid} if entry is not None else set[str]()
    for missing in set(paid) - known:
        verdict.note(Finding.FORGOTTEN, f"{name}: {missing} of {prompts}")
    if entry is not None and len(paid) > 1 and not entry.paid_twice:
        verdict.note(Finding.FORGOTTEN, f"{name} is not paid twice: {prompts}")
    if closed and not paid:
        verdict.note(Finding.UNPAID, name)


def _judge_word(verdict: Verdict, word: Word, payments: list[Payment], latest: float, released: float) -> None:
    own = [each for each in payments if each.call == word.call]
    if any(each.at - word.begun > latest for each in own):
        verdict.note(Finding.LATE, f"{word.case}, executed after {[each.at - word.begun for each in own]} s")
    match word.said:
        case Said.UNTYPED:
            verdict.note(Finding.UNTYPED, word.case)
        case Said.FAILED | Said.NO_JOURNAL if verdict.kind is EntryKind.PAYOUT:
            if own or any(each.at < min(word.begun, released) for each in payments):
                verdict.note(Finding.SAID_FAILED, word.case)
        case Said.FAILED | Said.NO_JOURNAL | Said.DUPLICATE | Said.MISCONFIGURED:
            # They speak of this call alone: it sent nothing.
            if own:
                verdict.note(Finding.SAID_FAILED, word.case)
        case Said.PAID | Said.OPEN:
            told = (word.transaction_id, word.amount)
            returned = [each for each in payments if (each.transaction_id, each.amount) == told]
            if not returned or (word.said is Said.PAID and not returned[0].is_paid):
                verdict.note(Finding.WRONG_WORD, f"{word.case}: transaction {word.transaction_id}")
        case _:
            pass


def _judge_repeats(verdict: Verdict, words: Sequence[Word], made: Mapping[str, list[Payment]]) -> None:
    """Find prompts that went out after a call had returned the order as paid."""
    by_call = defaultdict[str, list[Payment]](list)
    for prompts in made.values():
        for each in prompts:
            by_call[each.call].append(each)
    paid_since: dict[str, float] = {}
    for word in words:
        if word.said is Said.PAID:
            paid_since[word.reference] = min(word.ended, paid_since.get(word.reference, inf))
    for word in words:
        if word.begun > paid_since.get(word.reference, inf) and by_call[word.call]:
            verdict.note(Finding.AGAIN, f"{word.reference}: {by_call[word.call]}")
