"""Payments in doubt: search the service's list for them, and record in the journal what was found.

The list proves that a payment was made, and never that it was not: a transaction may appear in it late. So only a match
changes a row, and only if it is the only one.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import OutcomeUnknownError
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import Journal, accounts_of, rows_of
from momopay.journal.rules import Finding, finding
from momopay.models.requests import Search
from momopay.models.transactions import TransactionSummary
from momopay.resources.journal_access import report_change
from momopay.resources.search import Matches, search
from momopay.resources.wallet import BALANCE

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.accounts import Accounts

logger: logging.Logger = logging.getLogger("momopay")


async def reconcile_all(session: Session[BackendT], journal: Journal) -> list[JournalEntry]:
    """Search for all payments in doubt in one walk of the list, and return them as they are then."""
    identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
    await session.backend.in_thread(accounts_of(journal).check, identity)
    entries = await session.backend.in_thread(journal.unresolved)
    if not entries:
        return []
    others = await session.backend.in_thread(lambda: [rows_of(journal, each.kind).others(each) for each in entries])
    wanted = [search_for(entry, known) for entry, known in zip(entries, others, strict=True)]
    for entry, matches in zip(entries, await search(session, wanted), strict=True):
        made = await session.backend.in_thread(_resolve, journal, entry, matches)
        for each in made:
            report_change(session, entry.kind, entry.reference, entry.state, JournalState.ACCEPTED, each)
        if not made:
            logger.warning("reference %s stays unknown: %s", redacted_repr(entry.reference), describe(matches))
    return await session.backend.in_thread(lambda: [journal.get(each.reference, each.kind) or each for each in entries])


def _resolve(journal: Journal, entry: JournalEntry, matches: Matches) -> list[TransactionSummary]:
    """Record what a search found of a payment in doubt, and return the transactions that were recorded."""
    rows = rows_of(journal, entry.kind)
    return [each for each in made_of(entry, matches) if rows.accept(entry.reference, report_of(each))]


def made_of(entry: JournalEntry, matches: Matches) -> list[TransactionSummary]:
    """Return the transactions that a search proves to be those of an entry in doubt, oldest first."""
    if entry.kind is EntryKind.COLLECTION:
        return matches.exact[::-1]
    return matches.exact if finding(matches.exact, matches.near) is Finding.MADE else []


async def check_tenant(
    session: Session[BackendT], accounts: Accounts, identity: KeyIdentity, until: float = inf
) -> None:
    """Raise ConfigurationError if the key belongs to another tenant than the journal, whose list shows other payments.

    It costs a request the first time that a key is used with a journal in which it paid nothing yet.
    """
    if await session.backend.in_thread(accounts.needs_tenant, identity):
        balance = await call(session, BALANCE, "/wallets/service/balance", until=until)
        if balance.tenant_id:
            await session.backend.in_thread(accounts.learn, identity, balance.tenant_id)
            await session.backend.in_thread(accounts.check, identity)


def search_for(entry: JournalEntry, known: frozenset[str] = frozenset()) -> Search:
    """Return what to search for. What is known to be a prompt of the order, or of the other kind, is not a match."""
    is_order = entry.kind is EntryKind.COLLECTION
    # The reference alone may also be that of the other kind, or of an older payment.
    wanted = Search.checked(
        reference=entry.wire_reference or entry.reference,
        # Any attempt of an order may have become a prompt, the first one too.
        since=min(entry.created_at, entry.sent_at) if is_order else entry.sent_at,
        amount=entry.amount,
        phone=entry.phone,
        type=entry.kind.transaction_type.value,
        # What is found only because of this is a near match: a person looks at the times.
        is_measured=entry.clock_offset is not None,
        known=known.union(entry.transaction_ids) if is_order else known,
    )
    # The time is the payer's, whose clock may have been ahead of the service's when it was sent.
    return wanted.shifted(max(0.0, entry.clock_offset or 0.0))


def describe(matches: Matches) -> str:
    """Return what a search proves, for a message."""
    if matches.exact:
        return f"{len(matches.exact)} transactions fit it"
    if matches.near:
        return "a transaction has its reference, and another amount, phone, type or time"
    return "the list does not show it, which proves nothing"


def outcome_unknown(entry: JournalEntry, why: str, matches: Matches | None = None) -> OutcomeUnknownError:
    """Return the error for a payment that stays in doubt."""
    found = matches or Matches()
    what = "the payout" if entry.kind is EntryKind.PAYOUT else "a prompt"
    return OutcomeUnknownError(
        f"{what} of reference {entry.reference!r} may have been made: {why.rstrip('.')}. It is not sent again"
        " unless a human releases it in the journal",
        sent_at=entry.sent_at,
        reference=entry.reference,
        amount=entry.amount,
        phone=entry.phone,
        transaction_id=entry.transaction_id,
        matches=found.exact,
        near_matches=found.near,
    )
