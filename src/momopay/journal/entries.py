"""What the journal says about one reference. Pure."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, Field

from momopay.models.enums import ResultCode, TransactionStatus
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
    """One reference, and the outcome of its payment as far as it is known. The repr masks the phone.

    Attributes:
        kind: Payout or collection.
        reference: The caller's reference, unique in the journal's account for each kind.
        amount: KES.
        phone: ``254XXXXXXXXX``.
        state: How far it came. A row that a process left in SENDING when it died reads as UNKNOWN.
        transaction_id: The service's id. While the state is UNKNOWN, an id that an unclear response showed.
        code: The code of the refusal.
        attempts: How many times it was sent or may have been, refused times included.
        status: The last status that the service reported, None if it reported none.
        result_code: The provider's code for how it ended, where the service reported one.
        receipt: The provider's receipt, which only a callback carries.
        fee: The service's fee, KES, where it was reported.
        sent_at: When it was about to be sent for the first time, of all times when it may have been executed; UTC, as
            are all times here.
        created_at: When the reference was first used.
        ended_at: When it reached a status that nothing follows, by the service's clock.
        released_by: Who released it last, None if nobody did or the caller did not say.
        released_at: When it was released last.
        metadata: The caller's own JSON object.
        clock_offset: By how many seconds this machine's clock was ahead of the service's at sending, None if the
            service's responses did not show it.
        body_hash: SHA-256 of the request body that was last about to be sent.
        claim: The id of the call that last wrote the row as SENDING.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    kind: EntryKind = EntryKind.PAYOUT
    reference: str
    amount: Decimal
    phone: str
    state: JournalState
    transaction_id: str | None
    code: str | None
    attempts: int = 0
    status: TransactionStatus | None = None
    result_code: ResultCode | None = None
    receipt: str | None = None
    fee: Decimal | None = None
    sent_at: datetime
    created_at: datetime = Field(default_factory=lambda fields: fields["sent_at"])
    ended_at: datetime | None = None
    released_by: str | None = None
    released_at: datetime | None = None
    metadata: dict[str, Any] | None = None
    clock_offset: float | None = None
    body_hash: str = Field(repr=False)
    claim: str = Field(default="", repr=False)
