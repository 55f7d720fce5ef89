"""Search the service's list for payments.

The list can prove that a payment was made, but never that it was not: a transaction may appear in it late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import Any, Final

from momopay._core.reads import EVERYTHING, PageWalk, read_page, read_transaction
from momopay._core.session import Session
from momopay.errors import MomoPayError
from momopay.models.requests import CLOCK_TOLERANCE, Fit, Search, comparable
from momopay.models.transactions import TransactionPage, TransactionSummary, UnreadTransaction, is_whole

# If a payment's time is in the service's future, how far before the service's present its search begins.
_FUTURE_MARGIN: Final = timedelta(days=1)
_MOST_READS: Final = 3  # by id, of the unread items that one search shows


@dataclass
class Matches:
    """What a search found for one payment, newest first, and whether the walk reached back to the payment's time."""

    exact: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    near: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    known: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    unread: list[UnreadTransaction] = field(default_factory=list[UnreadTransaction])  # items that may be the payment
    is_complete: bool = True

    @property
    def blocking(self) -> list[TransactionSummary | UnreadTransaction]:
        """What may be the payment although it is no exact match."""
        return [*self.near, *self.unread]


async def search(
    session: Session[Any],
    wanted: list[Search],
    until: float = inf,
    *,
    whole_list: bool = False,
    walk: PageWalk | None = None,
) -> list[Matches]:
    """Walk the list once, back to the oldest wanted payment, and return the matches of each.

    With `whole_list`, continue towards the list's end while any payment has no match. Raise ProtocolError if the list
    has no end, or not by the monotonic time `until`. A `walk` of the caller's may end earlier: if it fails, return what
    it found, and set its `failure`.
    """
    # Not filtered by type: a transaction with the reference and another type is a near match.
    is_own = walk is None
    fetch = partial(read_page, session, EVERYTHING, until=until)
    walk = walk or PageWalk(fetch, now=session.backend.now, until=until)
    by_reference: dict[str, dict[str, TransactionSummary]] = {comparable(each.reference): {} for each in wanted}
    unread = list[UnreadTransaction]()

    def is_found(each: Search) -> bool:
        return not by_reference[comparable(each.reference)].keys() <= each.known

    last: TransactionPage | None = None
    try:
        while (page := await walk.next()) is not None:
            if last is None:
                session.clock.observe(page.response.headers)
                wanted = _in_service_time(session, wanted)
            last = page
            for item in page.items:
                # Keyed by id, because a list that grows during the walk shows some transactions twice.
                by_reference.get(comparable(item.account_reference), {})[item.transaction_id] = item
            unread += page.unread
            # A transaction older than the payment can only be a near match, and one near match is enough.
            oldest = min(wanted, key=lambda each: each.earliest)
            if oldest.is_past(page) and (not whole_list or all(map(is_found, wanted))):
                break
    except MomoPayError as error:
        if is_own:
            raise
        walk.failure = error
    found = list[Matches]()
    for each in wanted:
        fits = [(each.fit(item), item) for item in by_reference[comparable(each.reference)].values()]
        exact, near, known = ([item for fit, item in fits if fit is kind] for kind in (Fit.EXACT, Fit.NEAR, Fit.KNOWN))
        is_complete = walk.is_at_end or (last is not None and each.is_past(last))
        may_be = {item.id or place: item for place, item in enumerate(unread) if each.may_be(item)}
        found.append(Matches(exact, near, known, list(may_be.values()), is_complete))
    return found


async def read_unread(session: Session[Any], wanted: Search, matches: Matches, until: float) -> None:
    """Read by id, where they have one, items that may be the payment. What a read shows whole is unread no longer."""
    for item in [each for each in matches.unread if each.id is not None][:_MOST_READS]:
        try:
            read = await read_transaction(session, item.id, until=until)
        except MomoPayError:  # it may be the payment still
            continue
        if is_whole(read) and read.transaction_id == item.id:
            matches.unread.remove(item)
            {Fit.EXACT: matches.exact, Fit.NEAR: matches.near}.get(wanted.fit(read), matches.known).append(read)


def _in_service_time(session: Session[Any], wanted: list[Search]) -> list[Search]:
    """Return the searches with times of the service's clock: times in the list are the service's."""
    wanted = [each.shifted(session.clock.ahead) for each in wanted]
    # A time in the service's future comes from a clock that was ahead at sending, even if it is right by now.
    now = session.clock.service_now_if_known() or datetime.now(UTC)
    recently = {"since": now - _FUTURE_MARGIN}
    return [each.model_copy(update=recently) if each.since > now + CLOCK_TOLERANCE else each for each in wanted]
