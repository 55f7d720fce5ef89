"""Outcomes on demand: how the next prompt or payout ends, whatever the digits of its phone number say."""

from dataclasses import dataclass, field
from uuid import uuid4

from momopay.sandbox._outcomes import Outcome
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._transactions import Kind
from momopay.sandbox._values import normalise_phone

# STK and top-up are the same to the customer: a prompt.
KINDS = {"prompt": frozenset({Kind.STK, Kind.WALLET_TOPUP}), "payout": frozenset({Kind.B2C})}


@dataclass(slots=True)
class PlannedOutcome:
    """An outcome that waits for its payments; a `phone` of None is any."""

    kind: str
    outcome: Outcome
    phone: str | None
    times: int
    id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(slots=True)
class OutcomePlan:
    """The outcomes that wait, first planned, first applied."""

    waiting: list[PlannedOutcome] = field(default_factory=list[PlannedOutcome])

    def add(self, outcome: Outcome, *, phone: str | None = None, kind: str = "prompt", times: int = 1) -> None:
        """Plan how the next `times` payments of a kind end.

        Raises:
            ValueError: No such kind, no phone number, or `times` below 1.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of: {', '.join(KINDS)}")
        if times < 1:
            raise ValueError("times must be at least 1")
        try:
            number = None if phone is None else normalise_phone("".join(phone.split()))
        except Refusal as refusal:
            raise ValueError(refusal.message) from refusal
        self.waiting.append(PlannedOutcome(kind, outcome, number, times))

    def take(self, kind: Kind, phone: str) -> Outcome | None:
        """Return the outcome that was planned for this payment, if one was, and count it."""
        for planned in self.waiting:
            if kind in KINDS[planned.kind] and planned.phone in {None, phone}:
                planned.times -= 1
                if not planned.times:
                    self.waiting.remove(planned)
                return planned.outcome
        return None
