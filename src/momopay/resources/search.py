"""Find payments in the service's list by what is known of them."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Final

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.endpoint import Endpoint
from momopay._core.retry import SAFE
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay.models.enums import TransactionType
from momopay.models.records import Envelope
from momopay.models.requests import Search, TransactionQuery
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary
from momopay.resources.pagination import PageWalk

GET: Final = Endpoint("GET", SAFE, Lane.READ, Envelope[Transaction])
LIST: Final = Endpoint("GET", SAFE, Lane.READ, Envelope[TransactionPage])

# The types that the list can be filtered by. It shows others too, so these are searched for without a filter.
_FILTERED: Final = frozenset({TransactionType.STK, TransactionType.B2C})


async def search(
    session: Session[BackendT], wanted: list[Search], until: float = inf
) -> list[list[TransactionSummary]]:
    """Walk the list once, back to the oldest of the wanted payments, and return what fits each of them."""
    # Each page has the deadline of a call; the walk as a whole ends by the monotonic time `until`.
    types = {each.type for each in wanted}
    only = types.pop() if len(types) == 1 else None
    query = TransactionQuery.checked(limit=100, type=only if only in _FILTERED else None)
    oldest = min(wanted, key=lambda each: each.since)
    # Grouped by id, because a list that grows while it is walked shows some transactions twice.
    by_reference: dict[str, dict[str, TransactionSummary]] = {each.reference: {} for each in wanted}
    walk = PageWalk(partial(page_at, session, query, until=until))
    while (page := await walk.next()) is not None:
        for item in page.items:
            by_reference.get(item.account_reference or "", {})[item.transaction_id] = item
        if oldest.is_past(page):
            break
    return [[item for item in by_reference[each.reference].values() if each.fits(item)] for each in wanted]


async def page_at(
    session: Session[BackendT], query: TransactionQuery, cursor: str | None, *, until: float = inf
) -> TransactionPage:
    """Return the page at a cursor, the first one for None."""
    return await call(session, LIST, "/transactions" + query.after(cursor).to_query(), until=until)
