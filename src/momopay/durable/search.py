"""Find payments in the service's list by what is known of them, and say what that proves.

The list proves that a payment was made, and never that it was not: a transaction may appear in it late. So only a match
changes an entry of the journal.
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

# How far before the service's present a search begins for a payment whose time is in the service's future.
_FUTURE_MARGIN: Final = timedelta(days=1)


@dataclass
class Matches:
    """What a search found for one payment, newest first, and whether it reached back to the payment's time."""

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
    """Walk the list once, back to the oldest of the wanted payments, and return what was found of each.

    With `whole_list`, go on to its end as long as any of them was not found at all. A `walk` of the caller's may end
    earlier. Each page has the deadline of a call; the walk as a whole ends by the monotonic time `until`.
    """
    # Not filtered by type: what has the reference and another type must be seen.
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
            # By id, because a list that grows while it is walked shows some transactions twice.
            by_reference.get(comparable(item.account_reference), {})[item.transaction_id] = item
        # What is older than a payment can only be a near match, and one of those is enough.
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
    """Return the same searches with times of the service's clock, which this client has observed."""
    # Times in the list are the service's, those of the wanted payments are this machine's.
    wanted = [each.shifted(session.clock.ahead) for each in wanted]
    # What was sent in the service's future was sent by a clock that was ahead, even if it is right by now.
    now = session.clock.service_now()
    recently = {"since": now - _FUTURE_MARGIN}
    return [each.model_copy(update=recently) if each.since > now + CLOCK_TOLERANCE else each for each in wanted]


def search_for(entry: JournalEntry, sharing: Iterable[JournalEntry] = ()) -> Search:
    """Return what to search for; `sharing` are other entries under the same reference, with transactions of theirs."""
    is_order = entry.kind is EntryKind.COLLECTION
    # The reference alone may also be that of the other kind, or of an older payment.
    wanted = Search.checked(
        reference=entry.wire_reference,
        # Any attempt of an order may have become a prompt, the first one too.
        since=min(entry.created_at, entry.sent_at) if is_order else entry.sent_at,
        amount=entry.amount,
        phone=None if entry.is_anonymised else entry.phone,
        type=entry.kind.transaction_type.value,
        # It only makes the search reach further back: what it finds there is a near match, whose time a person checks.
        is_measured=entry.clock_offset is not None,
        known=frozenset(entry.transaction_ids).union(*(each.transaction_ids for each in sharing)),
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
    """Return the error for a payment that stays unresolved."""
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
