"""What the journal says about one reference. Pure."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Final

from pydantic import ConfigDict, Field

from momopay.models.masking import MaskedModel


class EntryKind(StrEnum):
    """What kind of payment an entry is about. A reference may be used once for each kind."""

    PAYOUT = "PAYOUT"
    """A B2C payout."""
    COLLECTION = "COLLECTION"
    """An STK collection."""


class JournalState(StrEnum):
    """How far a payout came."""

    SENDING = "SENDING"
    """A call is sending it now."""
    ACCEPTED = "ACCEPTED"
    """The service accepted it, as ``transaction_id``."""
    REFUSED = "REFUSED"
    """The service refused it, with ``code``; it may be sent again."""
    NOT_SENT = "NOT_SENT"
    """It was not sent, or a human released it; it may be sent."""
    UNKNOWN = "UNKNOWN"
    """It may have been executed; it is not sent again."""


MAY_BE_SENT: Final[frozenset[JournalState]] = frozenset({JournalState.REFUSED, JournalState.NOT_SENT})
OPEN: Final[frozenset[JournalState]] = frozenset({JournalState.SENDING, JournalState.UNKNOWN})


class JournalEntry(MaskedModel):
    """One reference, and the outcome of its payout as far as it is known. The repr masks the phone.

    Attributes:
        reference: The caller's reference, unique in the journal.
        amount: KES.
        phone: ``254XXXXXXXXX``.
        state: How far it came. A row that a process left in SENDING when it died reads as UNKNOWN.
        transaction_id: The service's id, once it is known.
        code: The code of the refusal.
        sent_at: When it was about to be sent for the first time, of all times when it may have been executed; UTC.
        body_hash: SHA-256 of the request body that was last about to be sent.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    reference: str
    amount: Decimal
    phone: str
    state: JournalState
    transaction_id: str | None
    code: str | None
    sent_at: datetime
    body_hash: str = Field(repr=False)
