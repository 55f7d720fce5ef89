"""Payouts that look like others: one that was made under another reference must not be made again.

Each stops a run until a person confirms it. A mistake here stops a payroll that is right, or pays twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Protocol

from momopay import errors
from momopay._redaction import redacted_repr
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.journal import Journal, internals
from momopay.models.enums import EntryKind, TransactionStatus
from momopay.models.similarity import Key, spellings_of

RECENT: Final = timedelta(hours=12)
"""How long after a payroll the same one under new references is most likely a mistake."""
FEWEST: Final = 3
"""The rows from which a file is compared with what was paid lately. Two people may be paid the same twice a day."""
_MAY_BE_PAID: Final = frozenset({JournalState.ACCEPTED, JournalState.SENDING, JournalState.UNKNOWN})
_NOT_PAID: Final = frozenset({TransactionStatus.REVERSED, TransactionStatus.CANCELLED})


class Payee(Protocol):
    """A `PayoutRequest`, an entry of the journal, a row of a file."""

    @property
    def reference(self) -> str:
        """The payout's reference."""
        ...

    @property
    def amount(self) -> Decimal:
        """KES."""
        ...

    @property
    def phone(self) -> str:
        """``254XXXXXXXXX``."""
        ...


def find_similar(journal: Journal | None, payouts: Iterable[Payee]) -> dict[str, str]:
    """Return each new payout that looks like another one, or like one in the journal, with the other's reference."""
    payouts = [*payouts]
    new = {each.reference: each for each in payouts}
    everything: list[Payee] = []
    if journal is not None:
        store = internals(journal).store
        new = {name: each for name, each in new.items() if store.get(EntryKind.PAYOUT, name) is None}
        pairs = {(each.phone, each.amount) for each in new.values()}
        everything = [each for each in _to_phones(journal, new.values()) if (each.phone, each.amount) in pairs]
    everything += payouts
    first_of: dict[tuple[Key, str, Decimal], str] = {}  # by what a reference is
    first_like: dict[tuple[Key, str, Decimal], str] = {}  # by what it may have been
    found: dict[str, str] = {}
    for each in everything:
        spellings = spellings_of(each.reference)
        of = [(key, each.phone, each.amount) for key in spellings.is_]
        like = [(key, each.phone, each.amount) for key in spellings.like]
        others = [first_of.get(key) for key in like] + [first_like.get(key) for key in of]
        other = next((name for name in others if name not in {None, each.reference}), None)
        if other is not None and each.reference in new:
            found[each.reference] = other
        for names, keys in ((first_of, of), (first_like, like)):
            for key in keys:
                names.setdefault(key, each.reference)
    return found


def check_similar(journal: Journal | None, payouts: Iterable[Payee]) -> None:
    """Raise RequestValidationError if `find_similar` finds any."""
    found = find_similar(journal, payouts).items()
    if found:
        pairs = "; ".join(f"{redacted_repr(reference)} looks like {redacted_repr(other)}" for reference, other in found)
        problem = f"{pairs}, with the same phone and amount: pass similar=True if both are to be paid"
        raise errors.RequestValidationError({"reference": problem})


def find_paid_lately(journal: Journal | None, payouts: Sequence[Payee], to_pay: Sequence[Payee]) -> dict[str, str]:
    """Return, if all that is left to pay of a file was paid lately under other references, each with the other's.

    That is the same file under new references, and not a run that goes on: what the file itself has is no other
    reference. Times are the journal's. Nothing is returned for fewer than three payouts, or if one of them is new.
    What was paid and came back is neither: if the rest was paid, the rest must not be paid again.
    """
    if journal is None or len(payouts) < FEWEST:
        return {}
    own, since = {each.reference for each in payouts}, datetime.now(UTC) - RECENT
    paid: dict[tuple[str, Decimal], str] = {}
    came_back: set[tuple[str, Decimal]] = set()
    for entry in _to_phones(journal, to_pay):
        sent_at = max([entry.sent_at, *(each.sent_at for each in entry.transactions)])  # of the attempt that counts
        if entry.reference in own or sent_at < since or entry.state not in _MAY_BE_PAID:
            continue
        if entry.status in _NOT_PAID:
            came_back.add((entry.phone, entry.amount))
        else:
            paid[entry.phone, entry.amount] = entry.reference
    pairs = {each.reference: (each.phone, each.amount) for each in to_pay}
    others = {reference: paid[pair] for reference, pair in pairs.items() if pair in paid}
    is_all = all(pair in paid or pair in came_back for pair in pairs.values())
    return others if is_all else {}


def _to_phones(journal: Journal, payouts: Iterable[Payee]) -> Iterable[JournalEntry]:
    """Return the journal's payouts to the same phones, refunds aside."""
    phones = {each.phone for each in payouts}
    return (each for each in internals(journal).store.to_phones(phones) if each.refund_of is None)
