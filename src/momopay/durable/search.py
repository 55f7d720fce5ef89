"""Search the service's list for payments, and say what the result proves.

The list can prove that a payment was made, but never that it was not: a transaction may appear in it late. So only a
match changes an entry of the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, Final

from momopay._core.reads import EVERYTHING, PageWalk, read_page
from momopay._core.session import Session
from momopay.errors import OutcomeUnknownError
from momopay.journal.entries import EntryKind, JournalEntry
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
    now = session.clock.service_now()
    recently = {"since": now - _FUTURE_MARGIN}
    return [each.model_copy(update=recently) if each.since > now + CLOCK_TOLERANCE else each for each in wanted]


def search_for(entry: JournalEntry, sharing: Iterable[JournalEntry] = ()) -> Search:
    """Return the search for an entry's payment. Transactions of entries `sharing` its reference count as known."""
    is_order = entry.kind is EntryKind.COLLECTION
    wanted = Search.checked(
        reference=entry.wire_reference,
        # Any attempt of an order may have become a prompt, even the first one.
        since=min(entry.created_at, entry.sent_at) if is_order else entry.sent_at,
        amount=entry.amount,
        phone=None if entry.is_anonymised else entry.phone,
        type=entry.kind.transaction_type.value,
        # If False, the search reaches further back. What it finds there is a near match, which a person must compare.
        is_measured=entry.clock_offset is not None,
        known=frozenset(entry.transaction_ids).union(*(each.transaction_ids for each in sharing)),
    )
    # `sent_at` is by the sender's clock, which may have been ahead of the service's.
    return wanted.shifted(max(0.0, entry.clock_offset or 0.0))


def describe(matches: Matches) -> str:
    """Return what a search proves, for a message."""
    if matches.exact:
        return f"{len(matches.exact)} transactions fit it"
    if matches.near:
        return "a transaction has its reference, and another amount, phone, type or time"
    return "the list does not show it, which proves nothing"


def outcome_unknown(entry: JournalEntry, why: str, matches: Matches | None = None) -> OutcomeUnknownError:
    """Return the error for a payment that is still unresolved."""
    found = matches or Matches()
    what = "the payout" if entry.kind is EntryKind.PAYOUT else "a prompt"
    return OutcomeUnknownError(
        f"{what} of reference {entry.reference!r} may have been made: {why.rstrip('.')}. It is not sent again"
        " unless a person releases it, with client.payouts.release",
        sent_at=entry.sent_at,
        reference=entry.reference,
        amount=entry.amount,
        phone=entry.phone,
        transaction_id=entry.transaction_id,
        matches=found.exact,
        near_matches=found.near,
    )
