"""The points that the service page leaves open, as data. docs/go-live/probe.md describes each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final


class Cost(Enum):
    """What it costs to learn a row. The value is the option that allows it."""

    READS = ""
    WRITE = "--write"
    RATE = "--rate"
    SPEND = "--spend"
    OUTSIDE = "cannot be found from outside"


@dataclass(frozen=True)
class Row:
    """One open point.

    Attributes:
        name: Its name in a profile. A switch of the sandbox has the same name.
        cost: What it costs to learn.
        values: The values of the sandbox's switch; empty for any number, and for a fact.
        is_switch: Whether the sandbox has a switch for it.
    """

    name: str
    cost: Cost
    values: tuple[bool | int | str, ...] = ()
    is_switch: bool = False


# What a run would need in order to learn a row that it could not tell.
NEEDS: Final = {
    Cost.READS: "Needs an answer that shows it, such as a transaction in the account's list; --spend makes one.",
    Cost.WRITE: "Needs --write, and an answer that shows it.",
    Cost.RATE: "Needs --rate, and an answer that shows it.",
    Cost.SPEND: "Needs --spend 1 --phone, with the prompt cancelled or left alone; or --spend 2 --phone.",
    Cost.OUTSIDE: "Cannot be found from outside.",
}
_FLAG: Final = (False, True)
_switch = partial(Row, is_switch=True)
SWITCHES: Final = (
    _switch("naming", Cost.READS, ("camelCase", "snake_case")),
    _switch("cancel_ends_as", Cost.READS, ("CANCELLED", "FAILED")),
    _switch("expired_reads_as", Cost.READS, ("EXPIRED", "FAILED")),
    _switch("fee_refunded_on_failure", Cost.SPEND, _FLAG),
    _switch("late_pin", Cost.OUTSIDE, _FLAG),
    _switch("callback_posts", Cost.OUTSIDE, (5, 6)),
    _switch("callback_on_reversed", Cost.OUTSIDE, _FLAG),
    _switch("strict_callback_urls", Cost.OUTSIDE, _FLAG),
    _switch("strict_fields", Cost.SPEND, _FLAG),
    _switch("rate_window", Cost.RATE, ("fixed", "sliding")),
    _switch("created_status", Cost.WRITE, (200, 201, 202)),
    _switch("delete_answer", Cost.WRITE, ("envelope", "empty")),
    _switch("immutable_channel_fields", Cost.WRITE, ("refuse", "ignore")),
    _switch("patch_unknown_channel", Cost.WRITE, ("CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND")),
    _switch("transaction_not_found_status", Cost.READS, (400, 404)),
    _switch("list_phone", Cost.READS, ("whole", "masked")),
    _switch("list_amount", Cost.READS, ("amount", "with_fee")),
    _switch("list_type", Cost.READS, ("upper", "lower")),
    _switch("list_times", Cost.READS, ("utc", "local")),
    _switch("health_rule", Cost.OUTSIDE, _FLAG),
    _switch("ban_pushes", Cost.OUTSIDE, ()),
    _switch("ban_window", Cost.OUTSIDE, ()),
    _switch("ban_success_rate", Cost.OUTSIDE, ()),
    _switch("key_prefixes", Cost.OUTSIDE, ("pk", "any")),
    _switch("cursor_field", Cost.READS, ("nextCursor", "next_cursor")),
    _switch("item_naming", Cost.OUTSIDE, ("camelCase", "snake_case")),
    _switch("overview", Cost.OUTSIDE, _FLAG),
    _switch("receipt_field", Cost.OUTSIDE, ()),
    _switch("receipt_in_reads", Cost.OUTSIDE, _FLAG),
    _switch("customer_in_reads", Cost.OUTSIDE, _FLAG),
    _switch("topup_type", Cost.OUTSIDE, ("WALLET_TOPUP", "WALLET_TOPUP_SERVICE_TOKENS")),
    _switch("minimal_answers", Cost.OUTSIDE, _FLAG),
    _switch("error_messages", Cost.OUTSIDE, ("text", "array")),
    _switch("invalid_uuid", Cost.OUTSIDE, _FLAG),
    _switch("rate_limit_headers", Cost.OUTSIDE, _FLAG),
    _switch("callback_on_processing", Cost.OUTSIDE, _FLAG),
    _switch("payout_keys", Cost.OUTSIDE, ("ignored", "honoured", "forgotten")),
    _switch("payout_callback_field", Cost.OUTSIDE, ("callbackUrl", "callback_url")),
    _switch("field_limits", Cost.OUTSIDE, ("specified", "contract")),
    _switch("channel_types", Cost.OUTSIDE, ("TILL_NUMBER", "TILL", "SHORTCODE", "any")),
    _switch("channel_reads", Cost.OUTSIDE, _FLAG),
    _switch("more_endpoints", Cost.OUTSIDE, _FLAG),
)

_FACTS: Final = {
    Cost.READS: (
        # Every answer
        *("read_statuses", "envelope_fields", "deprecation_headers"),
        # What can be read, and how it is written
        *("balance_read", "balance_fields", "balance_amounts", "balance_time_format"),
        *("channels_read", "channel_page_fields", "channel_fields", "channel_time_format"),
        *("list_read", "page_fields"),
        *("list_fields", "list_amounts", "list_status", "list_time_format"),
        *("transaction_read", "read_fields", "read_amounts", "read_phone", "read_status"),
        *("read_type", "read_time_format", "read_result_codes"),
        # Refusals, and parameters of the list
        *("transaction_not_found", "malformed_transaction_id", "unknown_path"),
        *("limit_of_zero", "limit_above_100", "invalid_cursor", "unknown_parameter", "time_formats"),
        *("unknown_status_filter", "expired_status_filter", "top_up_type_filter"),
        *("invalid_time_filter", "invalid_amount_filter", "invalid_channel_filter"),
    ),
    Cost.WRITE: ("channel_created_status", "new_channel_is_default", "channel_changed_status", "delete_status"),
    Cost.RATE: ("rate_limit", "retry_after"),
    Cost.SPEND: ("prompt_created_status", "read_delay", "list_delay", "duplicate_reference"),
}
FACTS: Final = tuple(Row(name, cost) for cost, names in _FACTS.items() for name in names)

ROWS: Final[tuple[Row, ...]] = (*SWITCHES, *FACTS)
BY_NAME: Final[Mapping[str, Row]] = {row.name: row for row in ROWS}
# A list shows some values on one day and others on another, so only a new value is a change.
VARYING: Final = frozenset({"list_amounts", "list_phone", "list_status", "list_type"})
