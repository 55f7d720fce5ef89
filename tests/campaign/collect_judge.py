"""The judge of collections: compares the service's prompts with the journal and with what each call returned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from math import inf
from typing import Any

from campaign.orders import Order
from campaign.till import Prompt
from momopay import JournalEntry, JournalState, TransactionStatus


class Finding(StrEnum):
    """What must never be found."""

    TWO_OPEN = "customers with two open prompts"
    TWICE = "orders paid twice, without a late PIN"
    AGAIN = "prompts of an order that a call had already returned as paid"
    UNPAID = "paid orders that read as unpaid after a sweep"
    FORGOTTEN = "paid prompts that the journal does not have after a sweep"
    WRONG_STATE = "orders that read as paid and are not"
    SAID_FAILED = "prompted, reported as certainly not"
    WRONG_WORD = "records returned that are no prompt of the order"
    WRONG_PROMPT = "prompts of another amount or phone, or of no order"
    UNTYPED = "errors that are no MomoPayError"
    UNFINISHED = "orders not paid in the end"


class Said(StrEnum):
    """How a call of `collect_once` ended."""

    PAID = "paid"
    OPEN = "a prompt is open"
    UNKNOWN = "outcome unknown"
    FAILED = "surely not prompted"
    CANCELLED = "cancelled"
    UNTYPED = "untyped error"


@dataclass(frozen=True)
class Word:
    """What one call said, when it began and when it ended, by the clock of the prompts."""

    call: str
    reference: str
    said: Said
    begun: float
    ended: float
    error: str = ""
    transaction_id: str | None = None


@dataclass
class Verdict:
    """What was found, and what there was."""

    orders: int = 0
    prompts: int = 0
    paid_once: int = 0
    paid_twice: int = 0
    findings: dict[Finding, list[str]] = field(default_factory=lambda: defaultdict[Finding, list[str]](list))

    @property
    def rows(self) -> dict[str, object]:
        """What there was, in words."""
        return {
            "orders": self.orders,
            "prompts at the service": self.prompts,
            "orders paid exactly once": self.paid_once,
            "orders paid twice, by a late PIN, and known to be": self.paid_twice,
        }

    @property
    def cases(self) -> dict[StrEnum, list[str]]:
        """Every finding with its cases."""
        return {finding: self.findings[finding] for finding in Finding}

    @property
    def found(self) -> set[Finding]:
        """What was found that must never be."""
        return {finding for finding, cases in self.findings.items() if cases}

    def add(self, finding: Finding, case: str) -> None:
        """Note a case, once."""
        if case not in self.findings[finding]:
            self.findings[finding].append(case)


def read_word(fields: dict[str, Any]) -> Word:
    """Read a word back from its line."""
    return Word(said=Said(fields["said"]), **{name: value for name, value in fields.items() if name != "said"})


def by_order(prompts: Iterable[Prompt], entries: Mapping[str, JournalEntry | None]) -> dict[str, list[Prompt]]:
    """Return the prompts of each order; those that no order owns are under the service's own reference."""
    owners = {entry.wire_reference: entry.reference for entry in entries.values() if entry}
    found = defaultdict[str, list[Prompt]](list)
    for prompt in prompts:
        found[owners.get(prompt.reference, prompt.reference)].append(prompt)
    return found


def judge_prompts(verdict: Verdict, orders: Sequence[Order], prompts: Mapping[str, Sequence[Prompt]]) -> None:
    """Judge what customers saw: `prompts` has those of each order, by its own reference, oldest first."""
    owed = {order.reference: order for order in orders}
    verdict.orders = len(orders)
    verdict.prompts = sum(map(len, prompts.values()))
    verdict.paid_once = sum(sum(each.is_paid for each in made) == 1 for made in prompts.values())
    verdict.paid_twice = sum(sum(each.is_paid for each in made) > 1 for made in prompts.values())
    for reference, made in prompts.items():
        order = owed.get(reference)
        for prompt in made:
            if order is None or (prompt.amount, prompt.phone) != (order.amount, order.phone):
                verdict.add(Finding.WRONG_PROMPT, f"{reference}: {prompt}, owed {order}")
        for number, later in enumerate(made):
            for earlier in made[:number]:
                if later.created < (inf if earlier.ended is None else earlier.ended):
                    verdict.add(Finding.TWO_OPEN, f"{reference}: {earlier} and {later}")
        paid = [each for each in made if each.is_paid]
        if len(paid) > 1 and not any(each.was_late for each in paid):
            verdict.add(Finding.TWICE, f"{reference}: {paid}")


def judge_words(verdict: Verdict, words: Sequence[Word], prompts: Mapping[str, Sequence[Prompt]]) -> None:
    """Judge what calls said."""
    by_call: dict[str, list[Prompt]] = defaultdict(list)
    for each in chain.from_iterable(prompts.values()):
        by_call[each.call].append(each)
    returned_as_paid: dict[str, float] = {}
    for word in words:
        _judge_word(verdict, word, prompts.get(word.reference, ()), by_call[word.call])
        if word.said is Said.PAID:
            returned_as_paid[word.reference] = min(word.ended, returned_as_paid.get(word.reference, inf))
    for word in words:
        if word.begun > returned_as_paid.get(word.reference, inf) and by_call[word.call]:
            verdict.add(Finding.AGAIN, f"{word.reference}: {by_call[word.call]}")


def _judge_word(verdict: Verdict, word: Word, prompts: Sequence[Prompt], own: Sequence[Prompt]) -> None:
    case = f"{word.reference}, call {word.call}: {word.said.value} {word.error}".rstrip()
    match word.said:
        case Said.UNTYPED:
            verdict.add(Finding.UNTYPED, case)
        case Said.FAILED if own:
            verdict.add(Finding.SAID_FAILED, f"{case}, and {own}")
        case Said.PAID | Said.OPEN:
            returned = [each for each in prompts if each.transaction_id == word.transaction_id]
            if not returned or (word.said is Said.PAID and not returned[0].is_paid):
                verdict.add(Finding.WRONG_WORD, f"{case}: {word.transaction_id}")
        case _:
            pass


def judge_journal(
    verdict: Verdict,
    orders: Sequence[Order],
    entries: Mapping[str, JournalEntry | None],
    prompts: Mapping[str, Sequence[Prompt]],
    *,
    closed: bool,
) -> None:
    """Judge what the journal says when a sweep has run; `closed`: and every order had its last chance."""
    for order in orders:
        entry, made = entries.get(order.reference), prompts.get(order.reference, ())
        paid = [each.transaction_id for each in made if each.is_paid]
        reads_paid = entry is not None and entry.status is TransactionStatus.SUCCESS
        name = f"{order.reference} ({'no row' if entry is None else f'{entry.state.value}, {entry.status}'})"
        if entry is not None and entry.state is JournalState.UNKNOWN and not closed:
            continue  # it reads as in doubt: a person who sees a near match may still settle it
        if paid and not reads_paid:
            verdict.add(Finding.UNPAID, f"{name}: {made}")
        if reads_paid and (entry is None or entry.transaction_id not in paid):
            verdict.add(Finding.WRONG_STATE, f"{name}: {made}")
        known = (
            {each.transaction_id for each in entry.transactions if each.is_paid} if entry is not None else set[str]()
        )
        for missing in set(paid) - known:
            verdict.add(Finding.FORGOTTEN, f"{name}: {missing} of {made}")
        if entry is not None and len(paid) > 1 and not entry.paid_twice:
            verdict.add(Finding.FORGOTTEN, f"{name} is not paid twice: {made}")
        if closed and not paid:
            verdict.add(Finding.UNFINISHED, name)
