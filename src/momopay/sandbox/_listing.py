"""Lists of transactions: filters, a stable cursor, and the overview."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation

from momopay.sandbox._accounts import Switches
from momopay.sandbox._records import Kind, Status, Transaction
from momopay.sandbox._refusals import Refusal, invalid_field
from momopay.sandbox._state import AccountState

_KINDS = (Kind.STK, Kind.B2C)
_PENDING = frozenset({Status.PENDING, Status.PROCESSING})
_MAXIMUM_LIMIT = 100
CURSOR = r"before-(0|[1-9][0-9]{0,11})"  # not `\d`, which also matches the digits of other scripts


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a list. All bounds are inclusive."""

    limit: int = 20
    before: int | None = None
    status: Status | None = None
    kind: Kind | None = None
    since: datetime | None = None
    until: datetime | None = None
    channel_id: str | None = None
    amount_min: Decimal | None = None
    amount_max: Decimal | None = None
    text: str = ""

    def match(self, transaction: Transaction, now: datetime) -> bool:
        return (
            (self.status is None or transaction.status is self.status)
            and (self.kind is None or transaction.kind is self.kind)
            and (self.since is None or transaction.created_at >= self.since)
            and (self.until is None or transaction.created_at <= self.until)
            and (self.channel_id is None or transaction.channel_id == self.channel_id)
            and (self.amount_min is None or transaction.amount >= self.amount_min)
            and (self.amount_max is None or transaction.amount <= self.amount_max)
            and (transaction.listed_from is None or transaction.listed_from <= now)
            and (not self.text or self._mentions(transaction))
        )

    def _mentions(self, transaction: Transaction) -> bool:
        fields = (transaction.reference, transaction.phone, transaction.description, transaction.id)
        return any(self.text in field.casefold() for field in fields)


@dataclass(frozen=True, slots=True)
class Page:
    """One page, newest first."""

    items: list[Transaction]
    next_cursor: str | None
    overview: dict[str, int]


def statuses_under(switches: Switches) -> tuple[Status, ...]:
    """Return the statuses that GET /transactions can filter by; EXPIRED is not one of those that are specified."""
    return tuple(status for status in Status if switches.more_filters or status is not Status.EXPIRED)


def kinds_under(switches: Switches) -> dict[str, Kind]:
    """Return the types that GET /transactions can filter by, as the switches spell them."""
    kinds = {kind.value: kind for kind in _KINDS}
    more = {switches.topup_type: Kind.WALLET_TOPUP, Kind.WALLET_TOPUP_B2C.value: Kind.WALLET_TOPUP_B2C}
    return kinds | more if switches.more_filters else kinds


def parse_filters(query: Mapping[str, str], switches: Switches) -> Filters:
    """Return the filters of a query string. Unknown names are ignored."""
    limit = query.get("limit", "20")
    if not (re.fullmatch("[0-9]{1,3}", limit) and 1 <= int(limit) <= _MAXIMUM_LIMIT):
        raise invalid_field("limit", "must be an integer from 1 to 100")
    status, kind = query.get("status"), query.get("type")
    statuses, kinds = statuses_under(switches), kinds_under(switches)
    if status is not None and status not in statuses:
        raise invalid_field("status", f"must be one of {', '.join(statuses)}")
    if kind is not None and kind not in kinds:
        raise invalid_field("type", f"must be one of {', '.join(kinds)}")
    for name in ("from", "to"):
        if name in query and not switches.time_filters:
            raise invalid_field(name, "is no parameter")
    return Filters(
        limit=int(limit),
        before=_place(query["cursor"], switches) if "cursor" in query else None,
        status=Status(status) if status else None,
        kind=kinds[kind] if kind else None,
        since=_instant(query, "from"),
        until=_instant(query, "to"),
        channel_id=query.get("channelId"),
        amount_min=_amount(query, "amountMin"),
        amount_max=_amount(query, "amountMax"),
        text=query.get("q", "").casefold(),
    )


def list_page(account_state: AccountState, filters: Filters, now: datetime) -> Page:
    # Looks for one item more than the page has, which shows whether there is a next page. It starts at the cursor, so
    # that the last page costs no more than the first.
    history = account_state.history
    index = len(history) if filters.before is None else min(filters.before, len(history))
    items: list[Transaction] = []
    while index > 0:
        index -= 1
        transaction = history[index]
        if filters.match(transaction, now):
            if len(items) == filters.limit:
                # The number of the last item never changes; an offset would shift with each new transaction.
                return Page(items, f"before-{items[-1].number}", _overview(account_state, filters, now))
            items.append(transaction)
    return Page(items, None, _overview(account_state, filters, now))


def _overview(account_state: AccountState, filters: Filters, now: datetime) -> dict[str, int]:
    statuses = Counter(each.status for each in account_state.history if filters.match(each, now))
    completed, pending = statuses[Status.SUCCESS], sum(statuses[each] for each in _PENDING)
    total = statuses.total()
    return {"total": total, "completed": completed, "failed": total - completed - pending, "pending": pending}


def _place(cursor: str, switches: Switches) -> int:
    found = re.fullmatch(CURSOR, cursor)
    if found is None and switches.more_codes:
        raise Refusal("INVALID_CURSOR")
    if found is None:
        raise invalid_field("cursor", "must be that of an earlier page")
    return int(found[1])


def _instant(query: Mapping[str, str], name: str) -> datetime | None:
    value = query.get(name)
    if value is None:
        return None
    try:
        # A date means its first instant as a lower bound, and its last as an upper bound.
        if len(value) <= len("2026-01-31"):
            return datetime.combine(date.fromisoformat(value), time.min if name == "from" else time.max, UTC)
        instant = datetime.fromisoformat(value)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid_field(name, "must be an ISO 8601 date or date-time") from None


def _amount(query: Mapping[str, str], name: str) -> Decimal | None:
    value = query.get(name)
    if value is None:
        return None
    try:
        amount = Decimal(value)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not value.isascii() or "_" in value:
        raise invalid_field(name, "must be a number of KES")
    return amount
