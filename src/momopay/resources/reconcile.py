"""Payouts in doubt: search the service's list for them, and record in the journal what was found.

The list proves that a payout was made, and never that it was not: a transaction may appear in it late. So only a match
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
from momopay.journal.entries import JournalEntry
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import Journal, accounts_of
from momopay.journal.rules import Finding, finding
from momopay.models.enums import TransactionType
from momopay.models.requests import Search
from momopay.resources.search import Matches, search
from momopay.resources.wallet import BALANCE

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.accounts import Accounts

logger: logging.Logger = logging.getLogger("momopay")


async def reconcile_all(session: Session[BackendT], journal: Journal) -> list[JournalEntry]:
    """Search for all payouts in doubt in one walk of the list, and return them as they are then."""
    identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
    await session.backend.in_thread(accounts_of(journal).check, identity)
    entries = await session.backend.in_thread(journal.unresolved)
    if not entries:
        return []
    for entry, matches in zip(entries, await search(session, [search_for(entry) for entry in entries]), strict=True):
        if finding(matches.exact, matches.near) is Finding.MADE:
            await session.backend.in_thread(journal.settle, matches.exact[0])
        else:
            logger.warning("reference %s stays unknown: %s", redacted_repr(entry.reference), describe(matches))
    return await session.backend.in_thread(lambda: [journal.get(entry.reference) or entry for entry in entries])


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


def search_for(entry: JournalEntry) -> Search:
    """Return what to search for."""
    # The reference alone may also be that of a collection, or of an older payout.
    wanted = Search.checked(
        reference=entry.reference,
        since=entry.sent_at,
        amount=entry.amount,
        phone=entry.phone,
        type=TransactionType.B2C.value,
        # What is found only because of this is a near match: a person looks at the times.
        is_measured=entry.clock_offset is not None,
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
    """Return the error for a payout that stays in doubt."""
    found = matches or Matches()
    return OutcomeUnknownError(
        f"the payout of reference {entry.reference!r} may have been made: {why.rstrip('.')}. It is not sent again"
        " unless a human releases it in the journal",
        sent_at=entry.sent_at,
        reference=entry.reference,
        amount=entry.amount,
        phone=entry.phone,
        transaction_id=entry.transaction_id,
        matches=found.exact,
        near_matches=found.near,
    )
