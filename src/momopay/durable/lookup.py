"""Payments that were attempted before: read their transactions, search the list for them, let a person release them.

Nothing here sends a payment; the next call may send one that was released. Absence from the list proves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from momopay._core.reads import Matches, read_transaction, read_unread, search
from momopay._polling.loop import is_transient
from momopay._redaction import redacted_repr
from momopay.durable.access import JournalAccess, emit_change
from momopay.durable.payment import outcome_unknown
from momopay.errors import MomoPayError, OutcomeUnknownError, RequestValidationError
from momopay.journal.entries import JournalEntry, JournalState, JournalTransaction
from momopay.journal.evidence import Evidence, differences, is_keepable
from momopay.journal.rules import Proof, blocks, is_contested, proof
from momopay.models.enums import EntryKind, Stage, stage_of
from momopay.models.requests import Fit, Search
from momopay.models.transactions import Transaction, TransactionSummary, transaction_from

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.store import Store

logger: logging.Logger = logging.getLogger("momopay")

_MOST_SHOWN: Final = 5  # ids, in a message
_PREFERRED: Final = (Stage.PAID, Stage.OPEN, Stage.ENDED)  # of several transactions of an order, the one to return


@dataclass(frozen=True)
class Searched:
    """What a search showed of a payment: its transaction, or why it is not known whether it was made, or neither."""

    found: Transaction | None = None
    doubt: OutcomeUnknownError | None = None


class PaymentLookup:
    """Reads and searches for a payment that was attempted before, on behalf of one call."""

    def __init__(self, journal: JournalAccess) -> None:
        self._journal = journal
        self._session = journal.session
        self._store = journal.store

    async def read(self, entry: JournalEntry, known: JournalTransaction) -> Transaction:
        """Read a known transaction and record its status. Raise OutcomeUnknownError if it is a different payment."""
        transaction = await self._get(known.transaction_id)
        differing = differences(entry, transaction)
        if transaction.transaction_id != known.transaction_id:
            differing.append("id")
        if differing:
            changed = await self._journal.run_or_log(self._store.mark_contradicted, entry, known.transaction_id)
            if changed:
                emit_change(self._session, entry, entry.state, JournalState.UNKNOWN)
            why = f"the service's record of transaction {known.transaction_id} has another {', '.join(differing)}"
            raise outcome_unknown(entry, why)
        has_changed = transaction.status != known.status
        if has_changed or (transaction.receipt is not None and known.receipt is None):
            # An end that allows another attempt must be recorded first, so a failed write is raised then.
            is_free = not blocks(entry.kind, stage_of(transaction.status))
            run = self._journal.run if is_free else self._journal.run_or_log
            if await run(self._store.record, entry, self._evidence(transaction), may_add=False) and has_changed:
                emit_change(self._session, entry, entry.state, entry.state, transaction)
        return transaction

    async def reconcile(self, entry: JournalEntry) -> Searched:
        """Search for an unresolved attempt, as `search`. A list that cannot be read is a doubt as well."""
        matches: Matches | None = None
        with suppress(MomoPayError):  # the list may still show it
            matches = await self._find_by_id(entry)
        try:
            matches = matches or await self._matches(entry)
        except MomoPayError as error:
            doubt = outcome_unknown(entry, f"the search failed: {error.message}")
            doubt.__cause__ = error
            return Searched(doubt=doubt)
        return await self._resolve(entry, matches)

    async def search(self, entry: JournalEntry, *, whole_list: bool) -> Searched:
        """Search the list for the payment, and record what is found. There is a doubt if a listed one may be it."""
        matches = await self._find_by_id(entry) or await self._matches(entry, whole_list=whole_list)
        return await self._resolve(entry, matches)

    async def refresh(self, entry: JournalEntry) -> None:
        """Read open transactions and search for an unresolved attempt. An outcome that stays unknown does not raise."""
        if entry.state is JournalState.UNKNOWN and (await self.reconcile(entry)).doubt is not None:
            return
        with suppress(OutcomeUnknownError):
            for known in entry.transactions:
                if known.is_open:
                    await self.read(entry, known)

    async def _matches(self, entry: JournalEntry, *, whole_list: bool = False) -> Matches:
        sharing = await self._journal.run(self._store.sharing, entry)
        if is_contested(entry, sharing):
            problem = "is that of another order too, whose outcome is not known: what the list shows may be that one's"
            raise RequestValidationError({"account_reference": problem})
        wanted = search_for(entry, sharing)
        (matches,) = await search(self._session, [wanted], self._journal.deadline, whole_list=whole_list)
        await self._journal.run(forget_known, self._store, matches)
        await read_unread(self._session, wanted, matches, self._journal.deadline)
        # The pages also show known transactions. A late PIN may have paid one of them since.
        unpaid = {each.transaction_id for each in entry.transactions if not each.is_paid}
        paid = [each for each in matches.known if each.transaction_id in unpaid and stage_of(each.status) is Stage.PAID]
        for found in paid:
            if await self._journal.run(self._store.record, entry, self._evidence(found), may_add=False):
                emit_change(self._session, entry, entry.state, entry.state, found)
        return matches

    async def _find_by_id(self, entry: JournalEntry) -> Matches | None:
        """Read the transaction whose id a broken response showed. Return None if it is not this payment."""
        if entry.seen_id is None or await self._journal.run(self._store.by_transaction, entry.seen_id) is not None:
            return None
        try:
            transaction = await self._get(entry.seen_id)
        except MomoPayError as error:
            if is_transient(error):
                raise
            return None
        wanted = search_for(entry)
        if is_seen_payment(entry, wanted, transaction):
            return Matches(exact=[transaction])
        may_be_it = not transaction.account_reference and wanted.fit(transaction) is Fit.NEAR
        return Matches(near=[transaction]) if may_be_it else None

    async def _resolve(self, entry: JournalEntry, matches: Matches) -> Searched:
        found = proof(entry.kind, matches.exact, matches.blocking)
        if found is Proof.MADE:
            return await self._adopt(entry, matches)
        if found is Proof.ABSENT:
            return Searched()
        if entry.state is not JournalState.UNKNOWN and await self._journal.run_or_log(self._store.mark_seen, entry):
            emit_change(self._session, entry, entry.state, JournalState.UNKNOWN)
        return Searched(doubt=outcome_unknown(entry, describe(matches), matches))

    async def _adopt(self, entry: JournalEntry, matches: Matches) -> Searched:
        """Record all transactions that fit. Return a paid one if there is one, else an open one, else the newest."""
        stages = {found.transaction_id: stage_of(found.status) for found in matches.exact}
        # As in `read`: if one is open or paid, the caller gets it even if it cannot be recorded.
        is_free = not any(blocks(entry.kind, stage) for stage in stages.values())
        run = self._journal.run if is_free else self._journal.run_or_log
        service_now = self._session.clock.service_now_if_known()
        made = await run(record_made, self._store, entry, matches, service_now)
        for found in made or ():
            emit_change(self._session, entry, entry.state, JournalState.ACCEPTED, found)
        if made is not None and len(made) < len(matches.exact):
            why = "a transaction that fits is already that of another reference"
            return Searched(doubt=outcome_unknown(entry, why, matches))
        best = min(matches.exact, key=lambda each: _PREFERRED.index(stages[each.transaction_id]))
        return Searched(found=transaction_from(best))

    def _evidence(self, record: TransactionSummary) -> Evidence:
        return Evidence.of(record, self._session.clock.service_now_if_known())

    async def _get(self, transaction_id: str) -> Transaction:
        transaction = await read_transaction(self._session, transaction_id, until=self._journal.deadline)
        self._session.clock.observe(transaction.response.headers)
        return transaction


def record_made(
    store: Store, entry: JournalEntry, matches: Matches, service_now: datetime | None
) -> list[TransactionSummary]:
    """Record the transactions that a search proves to be the entry's. Return those recorded, oldest first."""
    if proof(entry.kind, matches.exact, matches.blocking) is not Proof.MADE:
        return []
    exact = [each for each in matches.exact[::-1] if is_keepable(each.transaction_id)]
    return [each for each in exact if store.record(entry, Evidence.of(each, service_now, "search"))]


def is_seen_payment(entry: JournalEntry, wanted: Search, read: Transaction) -> bool:
    """Return whether a read is the payment whose broken response showed the id of the read."""
    # The response was broken, so its id may belong to another payment.
    fit = wanted.fit(read)
    if fit is Fit.NEAR and not read.account_reference:
        # Nothing else differs. With the phone, the amount and the type of the payment, it is the payment.
        return None not in {read.type, read.phone} and not entry.is_anonymised
    return fit is Fit.EXACT


def forget_known(store: Store, matches: Matches) -> None:
    """Remove unread items from matches whose id is that of a transaction in the journal."""
    matches.unread = [each for each in matches.unread if each.id is None or store.by_transaction(each.id) is None]


def search_for(entry: JournalEntry, sharing: Iterable[JournalEntry] = ()) -> Search:
    """Return the search for an entry's payment. Transactions of entries `sharing` its reference count as known."""
    is_order = entry.kind is EntryKind.COLLECTION
    wanted = Search.checked(
        reference=entry.wire_reference,
        # Any attempt of an order may have become a prompt, even the first one.
        since=min(entry.created_at, entry.sent_at) if is_order else entry.sent_at,
        amount=entry.amount,
        phone=None if entry.is_anonymised else entry.phone,
        type=entry.kind.transaction_type.value,
        # If False, the search reaches further back. What it finds there is a near match, which a person must compare.
        is_measured=entry.clock_offset is not None,
        known=frozenset(entry.transaction_ids).union(*(each.transaction_ids for each in sharing)),
    )
    # `sent_at` is by the sender's clock, which may have been ahead of the service's.
    return wanted.shifted(max(0.0, entry.clock_offset or 0.0))


def describe(matches: Matches) -> str:
    """Return what a search proves, for a message."""
    if matches.exact:
        return f"{len(matches.exact)} transactions fit it"
    if any(each.account_reference for each in matches.near):
        return "a transaction has its reference, and another amount, phone, type or time"
    if matches.blocking:
        ids = ", ".join(redacted_repr(each.transaction_id) for each in matches.blocking[:_MOST_SHOWN])
        count = len(matches.blocking)
        return f"the list shows {count} items that cannot be read or compared, and any of them may be it: {ids}"
    return "the list does not show it, which proves nothing"
