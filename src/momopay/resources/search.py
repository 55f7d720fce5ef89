"""Find payments in the service's list by what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import inf
from typing import Final, Protocol

from momopay._core.backend import BackendT
from momopay._core.call import Endpoint, call
from momopay._core.retry import SAFE
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay.models.matching import comparable
from momopay.models.records import Envelope
from momopay.models.requests import CLOCK_TOLERANCE, Fit, Search, TransactionQuery
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary
from momopay.resources.pagination import PageWalk

GET: Final = Endpoint("GET", SAFE, Lane.READ, Envelope[Transaction], has_id=True)
# How far before the service's present a search begins for a payment whose time is in the service's future.
_FUTURE_MARGIN: Final = timedelta(days=1)

LIST: Final = Endpoint("GET", SAFE, Lane.READ, Envelope[TransactionPage])


@dataclass
class Matches:
    """What a search found for one payment, newest first."""

    exact: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    near: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    known: list[TransactionSummary] = field(default_factory=list[TransactionSummary])


class Walk(Protocol):
    """Where a search gets its pages."""

    async def next(self) -> TransactionPage | None:
        """Return the next page, or None after the last one."""
        ...


async def search(
    session: Session[BackendT],
    wanted: list[Search],
    until: float = inf,
    *,
    whole_list: bool = False,
    walk: Walk | None = None,
) -> list[Matches]:
    """Walk the list once, back to the oldest of the wanted payments, and return what was found of each.

    With `whole_list`, go on to its end as long as any of them was not found at all. A `walk` that the caller gives may
    end earlier; then only what `service_times` says to lie on its pages was searched for.
    Each page has the deadline of a call; the walk as a whole ends by the monotonic time `until`.
    """
    # Not filtered by type: what has the reference and another type must be seen.
    query = TransactionQuery.checked(limit=100)
    by_reference: dict[str, dict[str, TransactionSummary]] = {comparable(each.reference): {} for each in wanted}

    def is_found(each: Search) -> bool:
        return not by_reference[comparable(each.reference)].keys() <= each.known

    if walk is None:
        walk = PageWalk(partial(page_at, session, query, until=until))
    page = await walk.next()
    if page is not None:
        session.clock.observe(page.response.headers)
        wanted = service_times(session, wanted)
    oldest = min(wanted, key=lambda each: each.earliest)
    while page is not None:
        for item in page.items:
            # By id, because a list that grows while it is walked shows some transactions twice.
            by_reference.get(comparable(item.account_reference), {})[item.transaction_id] = item
        # What is older than a payment can only be a near match, and one of those is enough.
        is_done = oldest.is_past(page) and (not whole_list or all(map(is_found, wanted)))
        page = None if is_done else await walk.next()
    return [_matches(each, list(by_reference[comparable(each.reference)].values())) for each in wanted]


def service_times(session: Session[BackendT], wanted: list[Search]) -> list[Search]:
    """Return the same searches with times of the service's clock, which this client has observed."""
    # Times in the list are the service's, those of the wanted payments are this machine's.
    wanted = [each.shifted(session.clock.ahead) for each in wanted]
    # What was sent in the service's future was sent by a clock that was ahead, even if it is right by now.
    now = session.clock.service_now()
    return [each.begun_by(now - _FUTURE_MARGIN) if each.since > now + CLOCK_TOLERANCE else each for each in wanted]


def _matches(wanted: Search, items: list[TransactionSummary]) -> Matches:
    fits = [(wanted.fit(item), item) for item in items]
    return Matches(*([item for fit, item in fits if fit is kind] for kind in (Fit.EXACT, Fit.NEAR, Fit.KNOWN)))


async def page_at(
    session: Session[BackendT], query: TransactionQuery, cursor: str | None, *, until: float = inf
) -> TransactionPage:
    """Return the page at a cursor, the first one for None."""
    return await call(session, LIST, "/transactions" + query.after(cursor).to_query(), until=until)
