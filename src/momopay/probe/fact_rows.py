"""The rows that set no switch. Data only."""

from __future__ import annotations

from typing import Final

from momopay.probe.rows import Cost, Row

_HISTORY: Final = "Needs a transaction in the account's list; --spend makes one."
_NEEDS: Final = {
    Cost.READS: "The service gave no answer that shows it; run the probe again.",
    Cost.WRITE: "Needs --write.",
    Cost.RATE: "Needs --rate.",
    Cost.SPEND: "Needs --spend 1 --phone.",
}


def _read(name: str, asked: str, section: str, needs: str = _NEEDS[Cost.READS]) -> Row:
    return Row(name, Cost.READS, asked, needs, section)


def _costs(name: str, cost: Cost, asked: str, section: str) -> Row:
    return Row(name, cost, asked, _NEEDS[cost], section)


def _closed(name: str, needs: str, section: str) -> Row:
    return Row(name, Cost.OUTSIDE, "Not asked.", f"Cannot be found from outside: {needs}", section)


_LIST: Final = "GET /transactions"
_PATCH: Final = "PATCH /payment-wallet/channels/{id}"
_DELETE: Final = "DELETE /payment-wallet/channels/{id}"
_RECEIVER: Final = "needs a public HTTPS address that receives callbacks."

FACTS: Final = (
    # Every answer
    _read("read_statuses", "Look at the HTTP status of every read that succeeded.", "Conventions"),
    _read("request_id", "Look at the requestId of successes and refusals.", "Conventions"),
    _read("error_details", "Look at the details of a refusal that has none.", "Conventions"),
    _read("amounts", "Look at the amounts of the service wallet: numbers or text.", "Conventions"),
    _read("rate_headers", "Look for headers about the rate limit in ordinary answers.", "Limits"),
    _read("deprecation_headers", "Look for the headers Deprecation and Sunset.", "Versioning"),
    _read("unknown_path", "Read a path that does not exist.", "Errors"),
    _read("server_error_code", "Look at the code of a 5xx.", "Errors", "Needs a failure of the service meanwhile."),
    # Fields
    _read("balance_fields", "Read the service wallet.", "Service wallet"),
    _read("channel_fields", "List the channels.", "Payment channel", "Needs a channel on the account."),
    _read("channel_categories", "List the channels.", "Payment channel", "Needs a channel on the account."),
    _read("read_fields", "Read one transaction by its id.", "Transaction", _HISTORY),
    _read("list_fields", "List the transactions.", "Transaction", _HISTORY),
    _read("read_fee_field", "Look at the name of the fee in a read.", "Transaction", _HISTORY),
    _read("list_fee_field", "Look at the name of the fee in the list.", "Transaction", _HISTORY),
    _read("read_times", "Look at the format of the times in a read.", "Transaction", _HISTORY),
    _read("top_up_type", "Look at the type of top-ups in the list.", "Transaction", "Needs a top-up in the list."),
    # Refusals
    _read("transaction_not_found", "Read a transaction with a made-up id.", "Errors"),
    _read("malformed_transaction_id", "Read a transaction with an id that is no UUID.", "Errors"),
    _read("limit_of_zero", "List with limit=0: which limit it is taken as.", _LIST),
    _read("limit_above_100", "List with limit=101: which limit it is taken as.", _LIST),
    _read("unknown_status_filter", "List with a status that does not exist.", _LIST),
    _read("expired_status_filter", "List with status=EXPIRED, which no filter is specified for.", _LIST),
    _read("top_up_type_filter", "List with type=WALLET_TOPUP, which no filter is specified for.", _LIST),
    _read("invalid_cursor", "List with a cursor that is none.", _LIST),
    _read("unknown_parameter", "List with a parameter that does not exist.", _LIST),
    _read("invalid_time_filter", "List with a from that is no time.", _LIST),
    _read("invalid_amount_filter", "List with an amountMin that is no number.", _LIST),
    _read("invalid_channel_filter", "List with a channelId that is no UUID.", _LIST),
    # Filters
    _read(
        "time_formats",
        "List from a day far in the future, as a time, a date, and seconds and milliseconds since 1970.",
        _LIST,
        _HISTORY,
    ),
    _read("q_finds_ids", "List with the id of a transaction as q.", _LIST, _HISTORY),
    _read("q_finds_phones", "List with the phone of a transaction as q.", _LIST, _HISTORY),
    _read("q_finds_references", "List with the reference of a transaction as q.", _LIST, _HISTORY),
    _read("q_finds_parts", "List with a reference without its first characters as q.", _LIST, _HISTORY),
    # A channel of its own
    _costs("channel_created_status", Cost.WRITE, "Create a channel.", "POST /payment-wallet/channels"),
    _costs("invalid_body", Cost.WRITE, "Create a channel from an empty object.", "Errors"),
    _costs(
        "required_channel_fields",
        Cost.WRITE,
        "Look at what the details name, and add it until they name nothing more.",
        "POST /payment-wallet/channels",
    ),
    _costs("changed_shortcode", Cost.WRITE, "Send another shortcode in a PATCH of the probe's own channel.", _PATCH),
    _costs("changed_type", Cost.WRITE, "Send another type in a PATCH of the probe's own channel.", _PATCH),
    _costs("unknown_channel_patch", Cost.WRITE, "PATCH a channel that does not exist.", _PATCH),
    _costs("channel_changed_status", Cost.WRITE, "Send the name in a PATCH of the probe's own channel.", _PATCH),
    _costs("delete_status", Cost.WRITE, "Delete the probe's own channel.", _DELETE),
    _costs("delete_data", Cost.WRITE, "Look at the data of the answer to that.", _DELETE),
    _costs("deleted_channel_delete", Cost.WRITE, "Delete the probe's own channel again.", _DELETE),
    # A minute's requests
    _costs(
        "rate_limit",
        Cost.RATE,
        "Look at the limit that a 429 states, or count the requests that a window lets through.",
        "Limits",
    ),
    _costs("retry_after", Cost.RATE, "Look at the Retry-After header of a 429.", "Errors"),
    _costs("throttled_details", Cost.RATE, "Look at the details of a 429.", "Errors"),
    _costs("throttled_headers", Cost.RATE, "Look for headers about the rate limit in a 429.", "Limits"),
    # A prompt
    _costs("prompt_created_status", Cost.SPEND, "Send a prompt.", "POST /payments/stk"),
    Row(
        "expires_from",
        Cost.SPEND,
        "Watch a prompt that nobody answers: its status before EXPIRED.",
        "Needs --spend 1 --phone with the prompt left alone on the phone.",
        "States",
    ),
    # Beyond a probe
    _closed("other_accounts_transaction", "needs a transaction of another account.", "GET /transactions/{id}"),
    _closed("payout_required_fields", "needs a payout of KES 10.", "POST /b2c/payouts"),
    _closed("payout_fee_field", "needs a payout of KES 10.", "Transaction"),
    _closed("top_up_required_fields", "needs a top-up.", "POST /wallets/service/topups"),
    _closed("top_up_states", "needs a top-up.", "States"),
    _closed("idempotency_key_lifetime", "needs top-ups, and days.", "POST /wallets/service/topups"),
    _closed("top_up_callbacks", _RECEIVER, "Callbacks"),
    _closed("callback_fields", _RECEIVER, "Callbacks"),
    _closed("processing_callbacks", _RECEIVER, "Callbacks"),
    _closed("callback_signature", _RECEIVER, "Callbacks"),
    _closed("maximum_amounts", "needs payments above the maximum.", "Limits"),
    _closed("b2c_wallet_fields", "no endpoint shows the B2C wallet.", "POST /b2c/payouts"),
    _closed("customer_fields", "no endpoint shows customers.", _DELETE),
    _closed("credential_fields", "no endpoint shows credential profiles.", "POST /payments/stk"),
    _closed("console_endpoints", "no endpoint for keys, KYC and credential profiles is described.", "Authentication"),
    _closed("key_permissions", "needs keys with other permissions.", "Authentication"),
    _closed("deprecation_policy", "ask the service.", "Versioning"),
    _closed("service_sandbox", "ask the service.", "Versioning"),
)
