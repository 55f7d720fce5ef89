"""The points that the service page leaves open, as data. docs/go-live/probe.md describes each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
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
    Cost.SPEND: "Needs --spend 1 --phone, with the prompt cancelled or left alone.",
    Cost.OUTSIDE: "Cannot be found from outside.",
}
NEEDS_MORE: Final = {
    "duplicate_reference": "Needs --spend 2 --phone, with the first prompt cancelled or left alone.",
    "payout_keys": "Needs --spend 20 --phone, and KES 20 in the B2C wallet.",
    "payout_callback_field": "Needs --spend 20 --phone, and a read that shows the callback URL.",
}
_NAMING: Final = ("camelCase", "snake_case")
_FLAG: Final = (False, True)
# For each cost, the values of some switches, and their names.
_SWITCHES: Final[tuple[tuple[Cost, tuple[bool | int | str, ...], tuple[str, ...]], ...]] = (
    (Cost.READS, _NAMING, ("naming", "item_naming")),
    (Cost.READS, ("CANCELLED", "FAILED"), ("cancel_ends_as",)),
    (Cost.READS, ("EXPIRED", "FAILED"), ("expired_reads_as",)),
    (Cost.READS, (400, 404), ("transaction_not_found_status",)),
    (Cost.READS, ("whole", "masked"), ("list_phone",)),
    (Cost.READS, ("amount", "with_fee"), ("list_amount",)),
    (Cost.READS, ("upper", "lower"), ("list_type",)),
    (Cost.READS, ("utc", "local"), ("list_times",)),
    (Cost.READS, ("nextCursor", "next_cursor"), ("cursor_field",)),
    (Cost.READS, ("WALLET_TOPUP", "WALLET_TOPUP_SERVICE_TOKENS"), ("topup_type",)),
    (Cost.READS, ("text", "array"), ("error_messages",)),
    (Cost.READS, _FLAG, ("overview", "minimal_answers", "receipt_in_reads", "customer_in_reads")),
    (Cost.READS, _FLAG, ("invalid_uuid", "rate_limit_headers", "channel_reads", "more_endpoints")),
    (Cost.READS, (), ("receipt_field",)),
    (Cost.WRITE, (200, 201, 202), ("created_status",)),
    (Cost.WRITE, ("envelope", "empty"), ("delete_answer",)),
    (Cost.WRITE, ("refuse", "ignore"), ("immutable_channel_fields",)),
    (Cost.WRITE, ("CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND"), ("patch_unknown_channel",)),
    (Cost.WRITE, ("TILL_NUMBER", "TILL", "SHORTCODE", "any"), ("channel_types",)),
    (Cost.WRITE, ("specified", "contract"), ("field_limits",)),
    (Cost.RATE, ("fixed", "sliding"), ("rate_window",)),
    (Cost.SPEND, _FLAG, ("fee_refunded_on_failure", "strict_fields")),
    (Cost.SPEND, ("ignored", "honoured", "forgotten"), ("payout_keys",)),
    (Cost.SPEND, ("callbackUrl", "callback_url"), ("payout_callback_field",)),
    (Cost.OUTSIDE, _FLAG, ("late_pin", "callback_on_reversed", "callback_on_processing")),
    (Cost.OUTSIDE, _FLAG, ("strict_callback_urls", "health_rule")),
    (Cost.OUTSIDE, (5, 6), ("callback_posts",)),
    (Cost.OUTSIDE, (), ("ban_pushes", "ban_window", "ban_success_rate")),
    (Cost.OUTSIDE, ("pk", "any"), ("key_prefixes",)),
)
SWITCHES: Final = tuple(Row(name, cost, values, is_switch=True) for cost, values, names in _SWITCHES for name in names)

_FACTS: Final = {
    Cost.READS: (
        "unusable",  # what the SDK cannot read or use
        # Every answer
        *("read_statuses", "envelope_fields", "deprecation_headers"),
        # What can be read, and how it is written
        *("balance_read", "payout_wallet_read", "balance_fields", "balance_amounts", "balance_time_format"),
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
VARYING: Final = frozenset({"list_amounts", "list_phone", "list_status", "list_type", "topup_type", "unusable"})
