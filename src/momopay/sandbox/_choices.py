"""What the page offers to choose from: outcomes, faults and the routes they fit, and switches."""

from collections.abc import Mapping
from typing import Any

from momopay.sandbox._faults import Fault
from momopay.sandbox._outcomes import OUTCOME_BY_DIGITS, Outcome
from momopay.sandbox._switches import Switches

_PAYMENTS = ("POST /payments/stk", "POST /b2c/payouts")
_WITH_TOP_UPS = (*_PAYMENTS, "POST /wallets/service/topups")
_LIST, _READ = "GET /transactions", "GET /transactions/{id}"
_ROUTES = (
    *_WITH_TOP_UPS,
    _LIST,
    _READ,
    "GET /wallets/service/balance",
    "GET /payment-wallet/channels",
    "POST /payment-wallet/channels",
    "GET /payment-wallet/channels/{id}",
    "PATCH /payment-wallet/channels/{id}",
    "DELETE /payment-wallet/channels/{id}",
)
_FAULTS: Mapping[Fault, str] = {
    Fault.refuse: "The connection closes without an answer. Not executed.",
    Fault.reset_before_read: "The connection is reset before the request is read. Not executed.",
    Fault.reset_after_commit: "Executed, then the connection is reset: the answer is lost.",
    Fault.hang_after_commit: "Executed, then no answer until the client gives up.",
    Fault.error_before_commit: "500 INTERNAL_ERROR. Not executed.",
    Fault.error_after_commit: "500 INTERNAL_ERROR, although it was executed.",
    Fault.truncated: "Executed, and half of the answer arrives.",
    Fault.html_502: "502 with an HTML page, as from a proxy. Not executed.",
    Fault.slow_drip: "Executed, and the answer arrives byte by byte.",
    Fault.refused_after_commit: "An unknown error code with the status below, although it was executed.",
    Fault.other_transaction: "The answer names another transaction.",
    Fault.other_amount: "The answer names another amount.",
    Fault.other_phone: "The answer names another phone number.",
    Fault.other_reference: "The answer names another reference.",
    Fault.list_lag: "Lists show transactions 60 seconds late.",
    Fault.callback_duplicate: "The callback of this payment arrives twice.",
    Fault.callback_late: "The callback of this payment comes 300 seconds late.",
    Fault.callback_reordered: "The callback of this payment comes after the next one.",
    Fault.callback_lost: "The callback of this payment is never sent.",
}
_OUTCOMES: Mapping[Outcome, str] = {
    Outcome.success: "Pays after 35 seconds.",
    Outcome.insufficient_funds: "Fails with code 1: not enough money.",
    Outcome.risk_limit: "Fails with code 17: risk limit.",
    Outcome.too_many_requests: "Fails with code 20: too many requests.",
    Outcome.cancelled: "The customer cancels: code 1032.",
    Outcome.timeout: "Fails with code 1037 after 65 seconds.",
    Outcome.expired: "Nobody reacts: expires after 60 seconds.",
    Outcome.never_answers: "Stays PENDING (a payout: PROCESSING).",
    Outcome.reversed: "A payout fails and is reversed; a prompt fails.",
    Outcome.callback_lost: "Pays, and the callback is never sent.",
    Outcome.late_success: "Pays after six minutes.",
    Outcome.by_hand: "Waits until you act on the phone.",
    Outcome.never_confirmed: "The PIN is entered, then it stays PROCESSING.",
}


def choices() -> dict[str, Any]:
    """Return everything that can be chosen, as plain JSON."""
    digits = {outcome: each for each, outcome in OUTCOME_BY_DIGITS.items()}
    return {
        "outcomes": [
            {"value": outcome, "digits": digits.get(outcome, ""), "text": text} for outcome, text in _OUTCOMES.items()
        ],
        "routes": [
            {"value": route, "faults": [fault for fault in _FAULTS if _fits(fault, route)]} for route in _ROUTES
        ],
        "faults": [{"value": fault, "text": text} for fault, text in _FAULTS.items()],
        "switches": Switches.model_json_schema()["properties"],
    }


def _fits(fault: Fault, route: str) -> bool:
    """Return whether a fault can show on a route."""
    if fault is Fault.list_lag:
        return route in (*_WITH_TOP_UPS, _LIST)
    if fault.is_effect:
        return route in _PAYMENTS
    return not fault.names_another or route in (*_WITH_TOP_UPS, _READ)
