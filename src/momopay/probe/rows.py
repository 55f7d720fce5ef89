"""What the service page leaves open and a probe asks, as data: the switches of the sandbox, and other facts.

docs/go-live/probe.md describes each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

Choice: TypeAlias = bool | int | str


class Cost(Enum):
    """What it costs to find something out. The value is the option that allows it."""

    READS = ""
    WRITE = "--write"
    RATE = "--rate"
    SPEND = "--spend"
    OUTSIDE = "cannot be found from outside"


@dataclass(frozen=True)
class Row:
    """One open point.

    Attributes:
        name: The name in a profile; that of the switch, if it is one.
        cost: What it costs.
        needs: What it would take, if a run could not tell.
        values: What the sandbox's switch can be; empty for any number, and for a fact.
        is_switch: Whether the sandbox has a switch of this name.
    """

    name: str
    cost: Cost
    needs: str
    values: tuple[Choice, ...] = ()
    is_switch: bool = False


_ANSWER: Final = "The service gave no answer that shows it; run the probe again."
_HISTORY: Final = "Needs a transaction in the account's list; --spend makes one."
_CHANNEL: Final = "Needs a channel on the account."
_WRITE: Final = "Needs --write, and an answer that shows it."
_RATE: Final = "Needs --rate, and an answer that shows it."
_SPEND: Final = "Needs --spend 1 --phone."
_CANCELLED: Final = "Needs a cancelled prompt in the list, or --spend 1 --phone with the prompt cancelled."
_EXPIRED: Final = "Needs an expired prompt in the list, or --spend 1 --phone with the prompt left alone."
_UNPAID: Final = "Needs --spend 1 --phone with the prompt cancelled or left alone, and an account that pays fees."
_FEE: Final = "Needs a transaction with a fee in the list, PENDING or SUCCESS; --spend may make one."
_OUTSIDE: Final = "Cannot be found from outside."
_FLAG: Final = (False, True)

_switch = partial(Row, is_switch=True)
SWITCHES: Final = (
    _switch("naming", Cost.READS, _HISTORY, ("camelCase", "snake_case")),
    _switch("cancel_ends_as", Cost.READS, _CANCELLED, ("CANCELLED", "FAILED")),
    _switch("expired_reads_as", Cost.READS, _EXPIRED, ("EXPIRED", "FAILED")),
    _switch("fee_refunded_on_failure", Cost.SPEND, _UNPAID, _FLAG),
    _switch("late_pin", Cost.OUTSIDE, _OUTSIDE, _FLAG),
    _switch("callback_posts", Cost.OUTSIDE, _OUTSIDE, (5, 6)),
    _switch("callback_on_reversed", Cost.OUTSIDE, _OUTSIDE, _FLAG),
    _switch("strict_callback_urls", Cost.OUTSIDE, _OUTSIDE, _FLAG),
    _switch("strict_fields", Cost.SPEND, _SPEND, _FLAG),
    _switch("rate_window", Cost.RATE, _RATE, ("fixed", "sliding")),
    _switch("created_status", Cost.WRITE, "Needs --write, or --spend 1 --phone.", (200, 201, 202)),
    _switch("delete_answer", Cost.WRITE, _WRITE, ("envelope", "empty")),
    _switch("immutable_channel_fields", Cost.WRITE, _WRITE, ("refuse", "ignore")),
    _switch("patch_unknown_channel", Cost.WRITE, _WRITE, ("CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND")),
    _switch("transaction_not_found_status", Cost.READS, _ANSWER, (400, 404)),
    _switch("list_phone", Cost.READS, _HISTORY, ("whole", "masked")),
    _switch("list_amount", Cost.READS, _FEE, ("amount", "with_fee")),
    _switch("list_type", Cost.READS, _HISTORY, ("upper", "lower")),
    _switch("list_times", Cost.READS, _HISTORY, ("utc", "local")),
    _switch("health_rule", Cost.OUTSIDE, _OUTSIDE, _FLAG),
    _switch("ban_pushes", Cost.OUTSIDE, _OUTSIDE, ()),
    _switch("ban_window", Cost.OUTSIDE, _OUTSIDE, ()),
    _switch("ban_success_rate", Cost.OUTSIDE, _OUTSIDE, ()),
)


def _facts(cost: Cost, needs: str, *names: str) -> tuple[Row, ...]:
    return tuple(Row(name, cost, needs) for name in names)


FACTS: Final = (
    # Every answer
    *_facts(Cost.READS, _ANSWER, "read_statuses", "envelope_fields"),
    *_facts(Cost.READS, _ANSWER, "rate_headers", "deprecation_headers"),
    Row("server_error_code", Cost.READS, "Needs a failure of the service meanwhile."),
    # Records, and how their values are written
    *_facts(Cost.READS, _ANSWER, "balance_read", "balance_fields", "balance_amounts", "balance_times"),
    *_facts(Cost.READS, _ANSWER, "channels_read", "channel_page_fields"),
    *_facts(Cost.READS, _CHANNEL, "channel_fields", "channel_times"),
    *_facts(Cost.READS, _ANSWER, "list_read", "page_fields"),
    Row("cursor_field", Cost.READS, "Needs a second page of transactions."),
    *_facts(Cost.READS, _HISTORY, "list_fields", "list_amounts", "list_status_words"),
    Row("top_up_type", Cost.READS, "Needs a top-up in the list."),
    *_facts(Cost.READS, _HISTORY, "transaction_read", "read_fields", "read_amounts", "read_times", "read_phone"),
    *_facts(Cost.READS, _HISTORY, "read_fee_field", "read_status_word", "read_type_word"),
    Row("result_codes", Cost.READS, "Needs a transaction with a result code; --spend makes one."),
    # Refusals, and parameters of the list
    *_facts(Cost.READS, _ANSWER, "transaction_not_found", "malformed_transaction_id", "unknown_path"),
    *_facts(Cost.READS, _ANSWER, "limit_of_zero", "limit_above_100"),
    *_facts(Cost.READS, _HISTORY, "unknown_status_filter", "invalid_cursor", "unknown_parameter"),
    *_facts(Cost.READS, _HISTORY, "invalid_time_filter", "invalid_amount_filter", "invalid_channel_filter"),
    Row("expired_status_filter", Cost.READS, "Needs an expired prompt in the list."),
    Row("top_up_type_filter", Cost.READS, "Needs a top-up in the list."),
    Row("time_formats", Cost.READS, _HISTORY),
    # A channel of the probe's own
    *_facts(Cost.WRITE, _WRITE, "channel_created_status", "new_channel_is_default", "invalid_body"),
    *_facts(Cost.WRITE, _WRITE, "channel_changed_status", "changed_shortcode", "delete_status"),
    # A minute's requests
    *_facts(Cost.RATE, _RATE, "rate_limit", "retry_after", "throttled_details", "throttled_headers"),
    # Prompts
    *_facts(Cost.SPEND, _SPEND, "prompt_created_status", "read_delay", "list_delay"),
    Row("expires_from", Cost.SPEND, "Needs --spend 1 --phone with the prompt left alone."),
    Row("duplicate_reference", Cost.SPEND, "Needs --spend 2 --phone with the first prompt cancelled or left alone."),
)

ROWS: Final[tuple[Row, ...]] = (*SWITCHES, *FACTS)
BY_NAME: Final[Mapping[str, Row]] = {row.name: row for row in ROWS}
VARYING: Final = frozenset({"list_amounts", "list_phone", "list_status_words", "list_type", "server_error_code"})
"""One day's payments show some of the words, another day's show others: only a new one is a change."""
