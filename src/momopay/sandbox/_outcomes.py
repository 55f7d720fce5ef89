"""How the last digits of a phone number decide a payment: a table of outcomes, and the steps of each."""

from collections.abc import Mapping
from enum import StrEnum

from momopay.sandbox._transactions import Kind, Status, Step, Transaction


class Outcome(StrEnum):
    """The outcome that a phone number leads to."""

    success = "success"
    insufficient_funds = "insufficient_funds"
    risk_limit = "risk_limit"
    too_many_requests = "too_many_requests"
    cancelled = "cancelled"
    timeout = "timeout"
    expired = "expired"
    never_answers = "never_answers"
    reversed = "reversed"
    callback_lost = "callback_lost"
    late_success = "late_success"
    by_hand = "by_hand"
    never_confirmed = "never_confirmed"


OUTCOME_BY_DIGITS: Mapping[str, Outcome] = {
    "9901": Outcome.insufficient_funds,
    "9917": Outcome.risk_limit,
    "9920": Outcome.too_many_requests,
    "9932": Outcome.cancelled,
    "9937": Outcome.timeout,
    "9940": Outcome.expired,
    "9941": Outcome.never_answers,
    "9942": Outcome.reversed,
    "9943": Outcome.callback_lost,
    "9944": Outcome.late_success,
    "9945": Outcome.by_hand,
    "9946": Outcome.never_confirmed,
}

RESULT_DESCRIPTIONS: Mapping[str, str] = {
    "0": "The service request is processed successfully.",
    "1": "The balance is insufficient for the transaction.",
    "17": "Risk limit exceeded.",
    "20": "Too many requests.",
    "1032": "Request cancelled by user.",
    "1037": "DS timeout, user cannot be reached.",
}

# Virtual seconds, each from the step before it.
PIN_AFTER = 5.0
CONFIRMED_AFTER = 30.0
TOP_UP_CONFIRMED_AFTER = 60.0
TIMED_OUT_AFTER = 60.0
EXPIRED_AFTER = 60.0
# With the PIN 360 s in all: past the 5 minutes after which pollers are advised to give up.
LATE_AFTER = 355.0
REVERSED_AFTER = 10.0

_RESULT_CODES: Mapping[Outcome, str] = {
    Outcome.insufficient_funds: "1",
    Outcome.risk_limit: "17",
    Outcome.too_many_requests: "20",
    Outcome.cancelled: "1032",
    Outcome.timeout: "1037",
    Outcome.expired: "1037",
    Outcome.reversed: "1",
}


def outcome_of(phone: str) -> Outcome:
    """Return the outcome that a normalised phone number leads to; an ordinary number succeeds."""
    return OUTCOME_BY_DIGITS.get(phone[-4:], Outcome.success)


def outcome_for(transaction: Transaction) -> Outcome:
    """Return the outcome that was planned for a transaction, or else that of its phone number."""
    return outcome_of(transaction.phone) if transaction.outcome is None else Outcome(transaction.outcome)


def phone_for(outcome: Outcome) -> str:
    """Return a phone number that leads to an outcome."""
    digits = next((digits for digits, end in OUTCOME_BY_DIGITS.items() if end is outcome), "0000")
    return f"25471234{digits}"


def confirmation(kind: Kind) -> Step:
    """Return the provider's confirmation, counted from the PIN (or from taking the payout)."""
    return Step(TOP_UP_CONFIRMED_AFTER if kind is Kind.WALLET_TOPUP else CONFIRMED_AFTER, Status.SUCCESS, "0")


def plan(kind: Kind, outcome: Outcome) -> list[Step]:
    """Return the steps that a new transaction takes if nobody intervenes."""
    taken = Step(PIN_AFTER, Status.PROCESSING)
    code = _RESULT_CODES.get(outcome)
    if kind is Kind.B2C and code:
        # A payout has no prompt that could be cancelled or expire: each of these outcomes fails, then is reversed.
        wait = TIMED_OUT_AFTER if code == "1037" else CONFIRMED_AFTER
        return [taken, Step(wait, Status.FAILED, code), Step(REVERSED_AFTER, Status.REVERSED, code)]
    if outcome is Outcome.never_confirmed or (kind is Kind.B2C and outcome is Outcome.never_answers):
        return [taken]
    if outcome is Outcome.late_success:
        return [taken, Step(LATE_AFTER, Status.SUCCESS, "0")]
    return [taken, confirmation(kind)] if kind is Kind.B2C else _prompt_plan(kind, outcome, taken, code)


def _prompt_plan(kind: Kind, outcome: Outcome, taken: Step, code: str | None) -> list[Step]:
    match outcome:
        case Outcome.never_answers | Outcome.by_hand:
            return []
        case Outcome.cancelled:
            return [Step(PIN_AFTER, Status.CANCELLED, code)]
        case Outcome.expired:
            return [Step(EXPIRED_AFTER, Status.EXPIRED, code)]
        case Outcome.timeout:
            return [taken, Step(TIMED_OUT_AFTER, Status.FAILED, code)]
        case _:
            return [taken, Step(CONFIRMED_AFTER, Status.FAILED, code) if code else confirmation(kind)]
