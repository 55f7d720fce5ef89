"""Release a payment that is unresolved, as a person decides, after a search of the whole list."""

from __future__ import annotations

import logging
from functools import partial

from momopay._core.backend import BackendT
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.durable.access import check_account, report_change
from momopay.durable.search import describe, outcome_unknown, search, search_for
from momopay.errors import RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.journal import Journal, parts_of
from momopay.journal.rules import Proof, proof

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
    """Do what `Payouts.release` promises."""
    if not isinstance(by, str) or not by.strip():
        raise RequestValidationError({"by": "must be the name of who decides, as text"})
    store, in_thread = parts_of(journal).store, session.backend.in_thread
    # The list of another account would show nothing, whatever was paid.
    await check_account(session, journal)
    entry = await in_thread(partial(journal.get, reference, kind))
    if entry is None or entry.state is not JournalState.UNKNOWN:
        return _check_free(entry)
    # What was sent may still be on its way, and a sender that is frozen may go on.
    seconds = await in_thread(partial(store.seconds_to_release, entry))
    if seconds > 0:
        problem = f"its last attempt may still reach the service; release it in {seconds:.0f} s"
        raise RequestValidationError({"reference": problem})
    if searched_elsewhere:
        logger.warning("reference %s is released without a search, as %s says", redacted_repr(reference), by)
        found = Proof.ABSENT
    else:
        # By the reference alone, and without a bound in time: a wrong clock, a fee in the amount or a masked phone must
        # not hide a payment that was made.
        wanted = search_for(entry, await in_thread(partial(store.others, entry)))
        (matches,) = await search(session, [wanted], whole_list=True)
        found = proof(entry.kind, matches.exact, matches.near)
        if found is Proof.UNRESOLVED:
            raise outcome_unknown(entry, describe(matches), matches)
        for each in reversed(matches.exact):
            report = report_of(each, session.clock.service_now_if_known())
            if await in_thread(partial(store.record, entry, report)):
                report_change(session, entry.kind, reference, entry.state, JournalState.ACCEPTED, each)
    if found is Proof.ABSENT and await in_thread(partial(store.release, entry, by)):
        logger.warning("reference %s was released by %s: it may be sent", redacted_repr(reference), by)
        report_change(session, entry.kind, reference, entry.state, JournalState.NOT_SENT)
    return _check_free(await in_thread(partial(store.get, entry.kind, reference)))


def _check_free(entry: JournalEntry | None) -> JournalEntry:
    """Return the entry of a payment that may be sent; else raise RequestValidationError."""
    if entry is None:
        raise RequestValidationError({"reference": "is not in the journal"})
    if entry.state in MAY_BE_SENT:
        return entry
    problem = {
        JournalState.ACCEPTED: f"was accepted as transaction {entry.transaction_id}",
        JournalState.SENDING: "is being sent",
    }.get(entry.state, "was changed meanwhile, and may have been made")
    raise RequestValidationError({"reference": f"{problem}; it must not be sent again"})
