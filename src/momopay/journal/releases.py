"""What must hold before a person may release a payment in doubt, and what a release leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from momopay.errors import RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.payments import Payments


def check_lease_is_over(payments: Payments, entry: JournalEntry) -> None:
    """Raise RequestValidationError if the sender of an unclear payment may still be alive, and frozen."""
    seconds = payments.seconds_to_release(entry)
    if seconds > 0:
        problem = f"its sender ended without a word and may be frozen; release it in {seconds:.0f} s"
        raise RequestValidationError({"reference": problem})


def check_free(entry: JournalEntry | None) -> JournalEntry:
    """Return the entry of a payment that may be sent; else raise RequestValidationError."""
    if entry is None:
        raise RequestValidationError({"reference": "is not in the journal"})
    if entry.state in MAY_BE_SENT:
        return entry
    problem = {
        JournalState.ACCEPTED: f"was accepted as transaction {entry.transaction_id}",
        JournalState.SENDING: "is being sent",
    }.get(entry.state, "was changed meanwhile, and may have been made")
    raise RequestValidationError({"reference": f"{problem}; it must not be sent again"})
