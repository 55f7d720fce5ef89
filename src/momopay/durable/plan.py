"""Decide what a sweep asks the service for, and what its answers mean. No client, no database and no clock.

A pass reads the newest pages of the list first, because one request shows a hundred transactions. It reads further
pages while they show transactions that it follows. Then it reads others by id, in random order, so that none is always
last. The next pass takes what this one does not reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, zip_longest
from random import sample
from typing import TYPE_CHECKING, Final

from momopay.journal.entries import UNRESOLVED, JournalEntry
from momopay.journal.evidence import Evidence, differences
from momopay.models.enums import EntryKind, TransactionStatus
from momopay.models.requests import Search
from momopay.models.transactions import Transaction, TransactionSummary

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.queue import Due, Followed

# Requests of one pass. Fewer of them are for pages, so that some reads by id are left.
_REQUESTS: Final = 14
MOST_PAGES: Final = 12
# Read a further page only if the last one showed at least so many transactions that this pass follows.
_WORTH_A_PAGE: Final = 2


@dataclass(frozen=True)
class Finding:
    """What a record of the service says about a transaction that a pass follows."""

    entry: JournalEntry
    record: TransactionSummary
    differing: Sequence[str] = ()  # the fields which show that it is another payment
    has_changed: bool = False  # whether its status differs from the last one
    evidence: Evidence | None = None  # to be recorded
    is_checked: bool = False  # whether it was due to be read once more after an end without success


class Plan:
    """What one pass has to find out, and what the service has shown so far."""

    def __init__(self, due: Due, searched: Sequence[tuple[JournalEntry, Search]] = ()) -> None:
        self.searched = searched
        self._undelivered = {each.transaction.transaction_id: each for each in due.undelivered}
        self._ended_prompts = {each.transaction.transaction_id: each for each in due.ended_prompts}
        not_settled = {each.transaction.transaction_id: each for each in due.not_settled}
        self.followed: dict[str, Followed] = self._ended_prompts | self._undelivered | not_settled
        self._unread = set(self.followed)  # ids that no response has shown
        self._unread_before: int  # how many were left when the last page was asked for
        self._requests = 0
        self._without_code = set[str]()  # ids that a page showed, to be read by id for the result code
        self.may_be_searched: set[str] = set()  # ids of unread items that may be an unresolved payment
        self._lacks_receipt = False  # whether a read showed a payment without its receipt

    @property
    def wants_page(self) -> bool:
        """Whether to read the next page of the list. If not, `reads` has what is left of the pass."""
        if self._requests:
            return bool(self._unread) and self._unread_before - len(self._unread) >= _WORTH_A_PAGE
        # One transaction alone is read by id first, unless an ended prompt needs the service's time, which pages have.
        return bool(self.searched or self._ended_prompts) or len(self._unread) > 1

    @property
    def wants_page_for_receipt(self) -> bool:
        """Whether to read a page after the reads by id: it may have a receipt that they lack."""
        return self._lacks_receipt and not self._requests

    def note_page(self) -> None:
        """Note that a page is asked for."""
        self._requests += 1
        self._unread_before = len(self._unread)

    def reads(self, service_now: datetime | None) -> list[str]:
        """Return the ids that are still to be read, of each kind in turn, as many as the pass has requests for."""
        undelivered, ended = self._unread & self._undelivered.keys(), self._unread & self._ended_prompts.keys()
        kinds = [
            self._unread - undelivered - ended,
            undelivered,
            self._without_code,
            {each for each in ended if self._ended_prompts[each].is_due(service_now)},
            self.may_be_searched | {entry.seen_id for entry, _ in self.searched if entry.seen_id},
        ]
        turns = zip_longest(*(sample(sorted(kind), len(kind)) for kind in kinds))
        ids = [each for each in dict.fromkeys(chain.from_iterable(turns)) if each is not None]
        return ids[: _REQUESTS - self._requests]

    def find(self, record: TransactionSummary, service_now: datetime | None) -> Finding | None:
        """Return what a page or a read says about a transaction that the pass follows; None to read it by id."""
        followed, is_read = self.followed[record.transaction_id], isinstance(record, Transaction)
        entry, known, differing = followed.entry, followed.transaction, differences(followed.entry, record)
        if differing and not is_read:
            return None  # a page may show a different amount, such as one with the fee, so it is read by id
        self._unread.discard(record.transaction_id)
        has_changed = record.status != known.status
        if differing and (known.is_open or has_changed):
            return Finding(entry, record, differing)
        # One that reads as open again may still be paid: it is not checked, so later sweeps read it again.
        ended = self._ended_prompts.get(record.transaction_id)
        is_checked = ended is not None and record.status.is_terminal and ended.is_due(service_now)
        is_undelivered = record.transaction_id in self._undelivered
        has_receipt = record.receipt is not None and known.receipt is None
        has_more = has_receipt or (is_read and (is_undelivered or record.transaction_id in self._without_code))
        if is_read and record.status is TransactionStatus.SUCCESS:
            self._lacks_receipt = self._lacks_receipt or (record.receipt or known.receipt) is None
        evidence = Evidence.of(record, service_now, "sweep") if has_changed or has_more else None
        if has_changed:
            kept = known.model_copy(update={"status": record.status})
            self.followed[record.transaction_id] = replace(followed, transaction=kept)
        self.note_end(record, needs_code=has_changed or is_undelivered)
        return Finding(entry, record, (), has_changed, evidence, is_checked)

    def follow(self, entry: JournalEntry) -> None:
        """Follow the transactions that a search found of an entry, so that a read by id says why one failed."""
        from momopay.journal.queue import Followed  # noqa: PLC0415  it needs SQLAlchemy

        for each in entry.transactions:
            self.followed.setdefault(each.transaction_id, Followed(entry, each))

    def note_end(self, record: TransactionSummary, *, needs_code: bool) -> None:
        """Note what was read: a page does not show why a payment failed, so that is then read by id."""
        if isinstance(record, Transaction):
            self._without_code.discard(record.transaction_id)
        elif record.status.ended_without_success and needs_code:
            self._without_code.add(record.transaction_id)


def is_another_journals(found: TransactionSummary, namesakes: Sequence[JournalEntry]) -> bool:
    """Return whether a transaction that no entry has was probably made with another journal, and so paid again.

    `namesakes` are the entries that the service knows by its reference. A payment of unknown outcome may be the
    transaction itself. Orders may share a reference, such as a customer's account number, which a customer can also
    pay without a prompt.
    """
    same = [each for each in namesakes if each.kind.transaction_type is found.type]
    if len(same) != 1 or same[0].state in UNRESOLVED:
        return False
    return same[0].kind is EntryKind.PAYOUT or same[0].amount == found.amount
