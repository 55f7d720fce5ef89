"""Release a payout in doubt, as a human decides, after a search of the whole list."""

from __future__ import annotations

import logging
from functools import partial

from momopay._core.backend import BackendT
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import RequestValidationError
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import Journal, accounts_of, payments_of
from momopay.journal.releases import check_free, check_lease_is_over
from momopay.journal.rules import Finding, finding
from momopay.resources.journal_access import report_change
from momopay.resources.reconcile import check_tenant, describe, outcome_unknown, search_for
from momopay.resources.search import search

logger: logging.Logger = logging.getLogger("momopay")


async def release(session: Session[BackendT], journal: Journal, reference: str, by: str) -> JournalEntry:
    """Do what `Payouts.release` promises."""
    if not isinstance(by, str) or not by.strip():
        raise RequestValidationError({"by": "must be the name of who decides, as text"})
    payments = payments_of(journal)
    in_thread = session.backend.in_thread
    # The list of another account would show nothing, whatever was paid.
    accounts = accounts_of(journal)
    identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
    await in_thread(accounts.check, identity)
    await check_tenant(session, accounts, identity)
    entry = await in_thread(payments.get, reference)
    if entry is None or entry.state is not JournalState.UNKNOWN:
        return check_free(entry)
    await in_thread(check_lease_is_over, payments, entry)
    # By the reference alone, and without a bound in time: a wrong clock, a fee in the amount or a masked phone must not
    # hide a payout that was made.
    wanted = search_for(entry, await in_thread(payments.others, entry))
    (matches,) = await search(session, [wanted], whole_list=True)
    match finding(matches.exact, matches.near):
        case Finding.MADE:
            (found,) = matches.exact
            if await in_thread(payments.accept, reference, report_of(found)):
                report_change(session, entry.kind, reference, entry.state, JournalState.ACCEPTED, found)
        case Finding.UNCLEAR:
            raise outcome_unknown(entry, describe(matches), matches)
        case Finding.ABSENT:
            if await in_thread(partial(payments.release, entry, by)):
                logger.warning("reference %s was released by %s: it may be sent", redacted_repr(reference), by)
                report_change(session, entry.kind, reference, entry.state, JournalState.NOT_SENT)
    return check_free(await in_thread(payments.get, reference))
