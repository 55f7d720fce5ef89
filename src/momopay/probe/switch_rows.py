"""The rows that set a switch of the sandbox. Data only."""

from __future__ import annotations

from typing import Final

from momopay.probe.rows import Choice, Cost, Row


def _switch(name: str, cost: Cost, values: tuple[Choice, ...], asked: str, needs: str, section: str) -> Row:
    return Row(name, cost, asked, needs, section, values, is_switch=True)


_HISTORY: Final = "Needs a transaction in the account's list; --spend makes one."
_CALLBACKS: Final = "Cannot be found from outside: needs a public HTTPS address that receives callbacks"
_BAN: Final = "Cannot be found from outside: it would take prompts that fail, until the key is banned for an hour."
_WRITE: Final = "Needs --write."
_RATE: Final = "Needs --rate."
_SPEND: Final = "Needs --spend 1 --phone."
_ANSWER: Final = "The service gave no answer that shows it; run the probe again."

SWITCHES: Final = (
    _switch(
        "naming",
        Cost.READS,
        ("camelCase", "snake_case"),
        "Read one transaction by its id and look at the names of its fields.",
        _HISTORY,
        "Transaction",
    ),
    _switch(
        "cancel_ends_as",
        Cost.READS,
        ("CANCELLED", "FAILED"),
        "Look for a prompt that the customer cancelled: its status, and its result code 1032.",
        "Needs a cancelled prompt in the list, or --spend 1 --phone with the prompt cancelled on the phone.",
        "States",
    ),
    _switch(
        "expired_reads_as",
        Cost.READS,
        ("EXPIRED", "FAILED"),
        "Look for a prompt with the status EXPIRED; --spend watches a prompt that nobody answers.",
        "Needs an expired prompt in the list, or --spend 1 --phone with the prompt left alone on the phone.",
        "States",
    ),
    _switch(
        "fee_refunded_on_failure",
        Cost.SPEND,
        (False, True),
        "Compare the service wallet before a prompt, and after it ended without success.",
        "Needs --spend 1 --phone with the prompt cancelled or left alone, and an account that pays fees.",
        "POST /b2c/payouts",
    ),
    _switch(
        "late_pin",
        Cost.OUTSIDE,
        (False, True),
        "Not asked.",
        "Cannot be found from outside: a customer would have to enter the PIN after the prompt has ended.",
        "States",
    ),
    _switch(
        "callback_posts",
        Cost.OUTSIDE,
        (5, 6),
        "Not asked.",
        f"{_CALLBACKS} and acknowledges none.",
        "Callbacks",
    ),
    _switch(
        "callback_on_reversed",
        Cost.OUTSIDE,
        (False, True),
        "Not asked.",
        f"{_CALLBACKS}, and a payout that fails.",
        "Callbacks",
    ),
    _switch(
        "strict_callback_urls",
        Cost.OUTSIDE,
        (False, True),
        "Not asked.",
        "Cannot be found from outside: the callback URL would have to name an address inside the service.",
        "Callbacks",
    ),
    _switch(
        "strict_fields",
        Cost.SPEND,
        (False, True),
        "Send the prompt without a description and a callback URL.",
        _SPEND,
        "POST /payments/stk",
    ),
    _switch(
        "rate_window",
        Cost.RATE,
        ("fixed", "sliding"),
        "Send a few requests, the rest of the limit half a minute later, and more when the first are a minute old.",
        _RATE,
        "Limits",
    ),
    _switch(
        "created_status",
        Cost.WRITE,
        (200, 201, 202),
        "Look at the status of the answers that create: a channel, and with --spend a prompt.",
        "Needs --write, or --spend 1 --phone.",
        "Conventions",
    ),
    _switch(
        "delete_answer",
        Cost.WRITE,
        ("envelope", "empty"),
        "Delete the probe's own channel.",
        _WRITE,
        "DELETE /payment-wallet/channels/{id}",
    ),
    _switch(
        "immutable_channel_fields",
        Cost.WRITE,
        ("refuse", "ignore"),
        "Send another shortcode in a PATCH of the probe's own channel, and read the channel.",
        _WRITE,
        "PATCH /payment-wallet/channels/{id}",
    ),
    _switch(
        "patch_unknown_channel",
        Cost.WRITE,
        ("CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND"),
        "PATCH a channel that does not exist.",
        _WRITE,
        "PATCH /payment-wallet/channels/{id}",
    ),
    _switch(
        "transaction_not_found_status",
        Cost.READS,
        (400, 404),
        "Read a transaction with a made-up id.",
        _ANSWER,
        "Errors",
    ),
    _switch(
        "list_phone",
        Cost.READS,
        ("whole", "masked"),
        "Look at the phones in the list.",
        _HISTORY,
        "GET /transactions",
    ),
    _switch(
        "list_amount",
        Cost.READS,
        ("amount", "with_fee"),
        "Compare the amount and the fee of an item with the read of the same transaction.",
        "Needs a transaction with a fee in the list, PENDING or SUCCESS; --spend makes one if the account pays fees.",
        "GET /transactions",
    ),
    _switch(
        "list_type",
        Cost.READS,
        ("upper", "lower"),
        "Look at the types in the list.",
        _HISTORY,
        "GET /transactions",
    ),
    _switch(
        "list_times",
        Cost.READS,
        ("utc", "local"),
        "Compare the times of an item with those of the read of the same transaction.",
        _HISTORY,
        "GET /transactions",
    ),
    _switch(
        "health_rule",
        Cost.OUTSIDE,
        (False, True),
        "Not asked.",
        "Cannot be found from outside: it would take 100 prompts, 71 of them without success.",
        "POST /payments/stk",
    ),
    _switch("ban_pushes", Cost.OUTSIDE, (), "Not asked.", _BAN, "POST /payments/stk"),
    _switch("ban_window", Cost.OUTSIDE, (), "Not asked.", _BAN, "POST /payments/stk"),
    _switch("ban_success_rate", Cost.OUTSIDE, (), "Not asked.", _BAN, "POST /payments/stk"),
)
