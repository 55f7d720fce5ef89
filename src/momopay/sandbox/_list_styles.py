"""List items in the styles that the switches `list_...` choose, where "GET /transactions" states no format."""

from datetime import datetime, timedelta, timezone
from typing import Any

from momopay.sandbox._serializers import SnakeRecord, TransactionItem
from momopay.sandbox._switches import Switches
from momopay.sandbox._values import json_number

_NAIROBI = timezone(timedelta(hours=3))


class StyledList(SnakeRecord):
    """A page whose items are plain JSON already."""

    overview: dict[str, int]
    items: list[dict[str, Any]]
    nextCursor: str | None  # noqa: N815 - the name on the wire


def is_styled(switches: Switches) -> bool:
    """Return whether any item of a list looks different from what the other endpoints show."""
    chosen = switches.list_phone, switches.list_amount, switches.list_type, switches.list_times
    return chosen != ("whole", "amount", "upper", "utc")


def styled(item: TransactionItem, switches: Switches) -> dict[str, Any]:
    """Return one item as the switches have it."""
    shown = item.model_dump(by_alias=True)
    if switches.list_phone == "masked":
        shown["phone"] = f"{item.phone[:4]}*****{item.phone[-3:]}"
    if switches.list_amount == "with_fee":
        shown["amount"] = json_number(item.amount + item.transaction_fee)
    if switches.list_type == "lower":
        shown["type"] = item.kind.lower()
    if switches.list_times == "local":
        shown |= {"createdAt": _local(item.created_at), "updatedAt": _local(item.updated_at)}
    return shown


def _local(instant: datetime) -> str:
    return instant.astimezone(_NAIROBI).replace(tzinfo=None).isoformat(timespec="milliseconds")
