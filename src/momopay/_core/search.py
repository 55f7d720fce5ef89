"""Search the service's list for payments.

The list can prove that a payment was made, but never that it was not: a transaction may appear in it late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import Any, Final

from momopay._core.reads import EVERYTHING, PageWalk, read_page
from momopay._core.session import Session
from momopay.models.requests import CLOCK_TOLERANCE, Fit, Search, comparable
from momopay.models.transactions import TransactionSummary

# If a payment's time is in the service's future, how far before the service's present its search begins.
_FUTURE_MARGIN: Final = timedelta(days=1)


@dataclass
class Matches:
    """What a search found for one payment, newest first, and whether the walk reached back to the payment's time."""

    exact: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    near: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    known: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    is_complete: bool = True


async def search(
    session: Session[Any],
    wanted: list[Search],
    until: float = inf,
    *,
    whole_list: bool = False,
    walk: PageWalk | None = None,
) -> list[Matches]:
    """Walk the list once, back to the oldest wanted payment, and return the matches of each.

    With `whole_list`, continue towards the list's end while any payment has no match. The caller's `walk` may end
    earlier. Each page has the deadline of a call; the walk as a whole ends by the monotonic time `until`.
    """
    # Not filtered by type: a transaction with the reference and another type is a near match.
    walk = walk or PageWalk(partial(read_page, session, EVERYTHING, until=until))
    by_reference: dict[str, dict[str, TransactionSummary]] = {comparable(each.reference): {} for each in wanted}

    def is_found(each: Search) -> bool:
        return not by_reference[comparable(each.reference)].keys() <= each.known

    page = last = await walk.next()
    if page is not None:
        session.clock.observe(page.response.headers)
        wanted = _in_service_time(session, wanted)
    oldest = min(wanted, key=lambda each: each.earliest)
    while page is not None:
        last = page
        for item in page.items:
            # Keyed by id, because a list that grows during the walk shows some transactions twice.
            by_reference.get(comparable(item.account_reference), {})[item.transaction_id] = item
        # A transaction older than the payment can only be a near match, and one near match is enough.
        is_done = oldest.is_past(page) and (not whole_list or all(map(is_found, wanted)))
        page = None if is_done else await walk.next()
    found = list[Matches]()
    for each in wanted:
        fits = [(each.fit(item), item) for item in by_reference[comparable(each.reference)].values()]
        exact, near, known = ([item for fit, item in fits if fit is kind] for kind in (Fit.EXACT, Fit.NEAR, Fit.KNOWN))
        is_complete = walk.is_at_end or (last is not None and each.is_past(last))
        found.append(Matches(exact, near, known, is_complete))
    return found


def _in_service_time(session: Session[Any], wanted: list[Search]) -> list[Search]:
    """Return the searches with times of the service's clock: times in the list are the service's."""
    wanted = [each.shifted(session.clock.ahead) for each in wanted]
    # A time in the service's future comes from a clock that was ahead at sending, even if it is right by now.
    now = session.clock.service_now_if_known() or datetime.now(UTC)
    recently = {"since": now - _FUTURE_MARGIN}
    return [each.model_copy(update=recently) if each.since > now + CLOCK_TOLERANCE else each for each in wanted]
