"""Payouts in doubt: search the service's list for them, and record in the journal what was found.

The list proves that a payout was made, and never that it was not: a transaction may appear in it late. So only a match
changes a row, and only if it is the only one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from momopay._core.backend import BackendT
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import MomoPayError, OutcomeUnknownError
from momopay.journal.entries import JournalEntry
from momopay.journal.journal import Journal
from momopay.models.enums import TransactionType
from momopay.models.requests import Search
from momopay.models.transactions import TransactionSummary
from momopay.resources.search import search

logger: logging.Logger = logging.getLogger("momopay")


async def reconcile_all(session: Session[BackendT], journal: Journal) -> list[JournalEntry]:
    """Search for all payouts in doubt in one walk of the list, and return them as they are then."""
    entries = await session.backend.in_thread(journal.unresolved)
    if not entries:
        return []
    for entry, matches in zip(entries, await search(session, [search_for(entry) for entry in entries]), strict=True):
        if len(matches) == 1:
            await record_acceptance(session, journal, matches[0])
        else:
            name = redacted_repr(entry.reference)
            logger.warning("reference %s stays unknown: %d transactions fit it", name, len(matches))
    return await session.backend.in_thread(lambda: [journal.get(entry.reference) or entry for entry in entries])


def search_for(entry: JournalEntry) -> Search:
    """Return what to search for."""
    # The reference alone may also be that of a collection, or of an older payout.
    return Search.checked(
        reference=entry.reference,
        since=entry.sent_at,
        amount=entry.amount,
        phone=entry.phone,
        type=TransactionType.B2C.value,
    )


async def record_acceptance(session: Session[BackendT], journal: Journal, found: TransactionSummary) -> None:
    """Record that the service has a payout."""
    await write_or_log(session, lambda: journal.settle(found), found.account_reference or "")


async def write_or_log(session: Session[BackendT], write: Callable[[], object], reference: str) -> None:
    """Write to the journal, and log a failure."""
    # It is never raised: the caller has an answer of the service to return or to raise, which would be lost. A row that
    # could not be written stays in SENDING, and reads as UNKNOWN when its lease ends.
    try:
        await session.backend.in_thread(write)
    except MomoPayError as error:  # a JournalError, or the journal was closed meanwhile
        logger.error("reference %s: %s", redacted_repr(reference), error)  # noqa: TRY400  a trace may show values
    except Exception as error:  # noqa: BLE001  an error in SQLAlchemy must not lose the answer either
        logger.error("reference %s: not recorded: %s", redacted_repr(reference), type(error).__name__)  # noqa: TRY400


def outcome_unknown(entry: JournalEntry, why: str, matches: Sequence[TransactionSummary] = ()) -> OutcomeUnknownError:
    """Return the error for a payout that stays in doubt."""
    return OutcomeUnknownError(
        f"the payout of reference {entry.reference!r} may have been made: {why.rstrip('.')}. It is not sent again"
        " unless a human releases it in the journal",
        sent_at=entry.sent_at,
        reference=entry.reference,
        amount=entry.amount,
        phone=entry.phone,
        transaction_id=entry.transaction_id,
        matches=matches,
    )
