"""Release an unresolved payment on a person's decision, unless the service's list shows it."""

from __future__ import annotations

import logging

from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._redaction import redacted_repr
from momopay.durable.access import check_account, emit_change
from momopay.durable.lookup import PaymentLookup, Searched
from momopay.errors import RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState
from momopay.journal.journal import Journal
from momopay.models.enums import EntryKind

logger: logging.Logger = logging.getLogger("momopay")


async def release(
    session: Session[BackendT],
    journal: Journal,
    reference: str,
    by: str,
    kind: EntryKind | None,
    *,
    searched_elsewhere: bool,
) -> JournalEntry:
    """Release a payment as `Payouts.release` documents it."""
    if not isinstance(by, str) or not by.strip():
        raise RequestValidationError({"by": "must be the name of who decides, as text"})
    # The list of another account would not show the payment, even if it was made.
    access = await check_account(session, journal, reference)
    store = access.store
    entry = await access.run(journal.get, reference, kind)
    if entry is None or entry.state is not JournalState.UNKNOWN:
        return _require_sendable(entry)
    # A request may still be on its way, and a frozen sender may resume.
    seconds = await access.run(store.seconds_to_release, entry)
    if seconds > 0:
        problem = f"its last attempt may still reach the service; release it in {seconds:.0f} s"
        raise RequestValidationError({"reference": problem})
    searched = Searched()
    if searched_elsewhere:
        logger.warning("reference %s is released without a search, as %s says", redacted_repr(reference), by)
    else:
        # By reference alone in the whole list: a wrong clock, a fee in the amount or a masked phone must not hide it.
        searched = await PaymentLookup(access).search(entry, whole_list=True)
        if searched.doubt is not None:
            raise searched.doubt
    in_thread = session.backend.in_thread  # the search may have taken longer than the deadline
    service_now = session.clock.service_now_if_known()
    if searched.found is None and await in_thread(store.release, entry, by, service_now):
        logger.warning("reference %s was released by %s: it may be sent", redacted_repr(reference), by)
        emit_change(session, entry, entry.state, JournalState.NOT_SENT)
    return _require_sendable(await in_thread(store.get, entry.kind, reference))


def _require_sendable(entry: JournalEntry | None) -> JournalEntry:
    """Return the entry if its payment may be sent, else raise RequestValidationError."""
    if entry is None:
        raise RequestValidationError({"reference": "is not in the journal"})
    if entry.state in MAY_BE_SENT:
        return entry
    problem = {
        JournalState.ACCEPTED: f"was accepted as transaction {entry.transaction_id}",
        JournalState.SENDING: "is being sent",
    }.get(entry.state, "was changed meanwhile, and may have been made")
    raise RequestValidationError({"reference": f"{problem}; it must not be sent again"})
