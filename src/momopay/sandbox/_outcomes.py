"""How a payment ends: as planned, or else by the last digits of its phone number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self
from uuid import uuid4

from momopay.sandbox._bodies import normalise_phone
from momopay.sandbox._records import TOP_UPS, Kind, Status, Step, Transaction
from momopay.sandbox._refusals import Refusal


class Outcome(StrEnum):
    """How a payment ends."""

    label: str
    text: str
    digits: str
    code: str | None

    # The defaults are for type checkers, which take `Outcome("expired")` for a call of `__new__`.
    def __new__(cls, value: str, label: str = "", text: str = "", digits: str = "", code: str | None = None) -> Self:
        """Make a member with its texts on the page, the last digits that lead to it, and its result code on failure."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label, member.text, member.digits, member.code = label, text, digits, code
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003  the name of the base class
        raise ValueError(f"outcome must be one of: {', '.join(cls)}")

    success = "success", "Paid", "The PIN is entered after 5 seconds, the money is there after 35."
    insufficient_funds = "insufficient_funds", "Not enough money", "Fails after 35 seconds with code 1.", "9901", "1"
    risk_limit = "risk_limit", "Over the risk limit", "Fails after 35 seconds with code 17.", "9917", "17"
    too_many_requests = "too_many_requests", "Too many requests", "Fails after 35 seconds with code 20.", "9920", "20"
    cancelled = "cancelled", "Cancelled", "The customer cancels after 5 seconds: code 1032.", "9932", "1032"
    timeout = "timeout", "Phone not reached", "Fails after 65 seconds with code 1037.", "9937", "1037"
    expired = "expired", "Ignored until it expires", "Nobody reacts for 60 seconds: code 1037.", "9940", "1037"
    never_answers = "never_answers", "Never ends", "Stays PENDING (a payout: PROCESSING).", "9941"
    reversed = "reversed", "Fails and is reversed", "A payout's money comes back; a prompt fails.", "9942", "1"
    callback_lost = "callback_lost", "Paid, and the callback is lost", "You learn of it only by asking.", "9943"
    late_success = "late_success", "Paid after six minutes", "Later than the service tells you to wait.", "9944"
    by_hand = "by_hand", "You decide on the phone", "Waits until you enter the PIN, cancel or ignore it.", "9945"
    never_confirmed = "never_confirmed", "PIN entered, never confirmed", "Stays PROCESSING.", "9946"


_BY_DIGITS = {outcome.digits: outcome for outcome in Outcome if outcome.digits}

RESULT_DESCRIPTIONS: Mapping[str, str] = {
    "0": "The service request is processed successfully.",
    "1": "The balance is insufficient for the transaction.",
    "17": "Risk limit exceeded.",
    "20": "Too many requests.",
    "1032": "Request cancelled by user.",
    "1037": "DS timeout, user cannot be reached.",
    "9999": "The request could not be processed.",
}

# The provider's end of a prompt with long texts, for which no code is known. As in practice, it does not say why.
TEXTS_FAIL = Step(10.0, Status.FAILED, "9999")
# Virtual seconds since the step before.
PIN_AFTER = 5.0
CONFIRMED_AFTER = 30.0
TOP_UP_CONFIRMED_AFTER = 60.0
TIMED_OUT_AFTER = 60.0
EXPIRED_AFTER = 60.0
# With the PIN 360 s in all, which is later than the 5 minutes after which pollers are advised to give up.
LATE_AFTER = 355.0
REVERSED_AFTER = 10.0


def outcome_of(phone: str) -> Outcome:
    """Return the outcome of a normalised phone number. An ordinary number succeeds."""
    return _BY_DIGITS.get(phone[-4:], Outcome.success)


def outcome_for(transaction: Transaction) -> Outcome:
    """Return the outcome that was planned for a transaction, or that of its phone number."""
    return outcome_of(transaction.phone) if transaction.outcome is None else Outcome(transaction.outcome)


def phone_for(outcome: Outcome) -> str:
    """Return a phone number that leads to an outcome."""
    return f"25471234{outcome.digits or '0000'}"


def confirmation(kind: Kind) -> Step:
    """Return the provider's confirmation, which follows the PIN or the acceptance of a payout."""
    return Step(TOP_UP_CONFIRMED_AFTER if kind in TOP_UPS else CONFIRMED_AFTER, Status.SUCCESS, "0")


def plan(kind: Kind, outcome: Outcome) -> list[Step]:
    """Return the steps that a new transaction takes if nobody intervenes."""
    taken, code, is_payout = Step(PIN_AFTER, Status.PROCESSING), outcome.code, kind is Kind.B2C
    match outcome:
        case _ if is_payout and code:
            # A payout has no prompt to cancel or ignore, so each of these fails and is then reversed.
            wait = TIMED_OUT_AFTER if code == "1037" else CONFIRMED_AFTER
            steps = [taken, Step(wait, Status.FAILED, code), Step(REVERSED_AFTER, Status.REVERSED, code)]
        case Outcome.never_answers | Outcome.by_hand if not is_payout:
            steps = []
        case Outcome.never_answers | Outcome.never_confirmed:
            steps = [taken]
        case Outcome.late_success:
            steps = [taken, Step(LATE_AFTER, Status.SUCCESS, "0")]
        case Outcome.cancelled:
            steps = [Step(PIN_AFTER, Status.CANCELLED, code)]
        case Outcome.expired:
            steps = [Step(EXPIRED_AFTER, Status.EXPIRED, code)]
        case Outcome.timeout:
            steps = [taken, Step(TIMED_OUT_AFTER, Status.FAILED, code)]
        case _:
            steps = [taken, Step(CONFIRMED_AFTER, Status.FAILED, code) if code else confirmation(kind)]
    return steps


# To the customer, an STK payment and a top-up are both a prompt.
KINDS = {"prompt": TOP_UPS | {Kind.STK}, "payout": frozenset({Kind.B2C})}


@dataclass(slots=True)
class PlannedOutcome:
    """An outcome for the next payments, of one phone number or, if `phone` is None, of any."""

    outcome: Outcome
    phone: str | None = None
    kind: str = "prompt"
    times: int = 1
    id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid outcome, kind or phone number, and for `times` below 1."""
        self.outcome = Outcome(self.outcome)
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of: {', '.join(KINDS)}")
        if self.times < 1:
            raise ValueError("times must be at least 1")
        try:
            self.phone = None if self.phone is None else normalise_phone("".join(self.phone.split()))
        except Refusal as refusal:
            raise ValueError(refusal.message) from refusal


@dataclass(slots=True)
class OutcomePlan:
    """The outcomes that are planned. The first one planned applies first."""

    waiting: list[PlannedOutcome] = field(default_factory=list[PlannedOutcome])

    def take(self, kind: Kind, phone: str) -> Outcome | None:
        """Return the outcome that was planned for a payment, or None, and count it."""
        for planned in self.waiting:
            if kind in KINDS[planned.kind] and planned.phone in {None, phone}:
                planned.times -= 1
                if not planned.times:
                    self.waiting.remove(planned)
                return planned.outcome
        return None
