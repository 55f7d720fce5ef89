"""What the journal says about one reference. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, Field

from momopay.models.enums import ResultCode, TransactionStatus, TransactionType, has_settled
from momopay.models.masking import MaskedModel
from momopay.models.records import Timestamp


class EntryKind(StrEnum):
    """What kind of payment an entry is about. A reference may be used once for each kind."""

    PAYOUT = "PAYOUT"
    """A B2C payout."""
    COLLECTION = "COLLECTION"
    """An STK collection."""

    @property
    def transaction_type(self) -> TransactionType:
        """The type that the service's transactions of this kind have."""
        return TransactionType.B2C if self is EntryKind.PAYOUT else TransactionType.STK


class JournalState(StrEnum):
    """How far a payout, or the latest prompt of a collection, came."""

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


ANONYMISED: Final = "hmac-sha256:"
"""What begins the phone of an entry whose phone was replaced by a hash."""
MAY_BE_SENT: Final[frozenset[JournalState]] = frozenset({JournalState.REFUSED, JournalState.NOT_SENT})
OPEN: Final[frozenset[JournalState]] = frozenset({JournalState.SENDING, JournalState.UNKNOWN})


class Prompt(MaskedModel):
    """One prompt of a collection that the service accepted.

    Attributes:
        transaction_id: The service's id.
        status: The last status that the service reported, None if it reported none.
        result_code: The provider's code for how it ended, where the service reported one.
        receipt: The provider's receipt, which only a callback carries.
        fee: The service's fee, KES, where it was reported.
        sent_at: When it was about to be sent; UTC, as are all times here.
        ended_at: When it reached a status that nothing follows, by the service's clock.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    transaction_id: str
    status: TransactionStatus | None = None
    result_code: ResultCode | None = None
    receipt: str | None = None
    fee: Decimal | None = None
    sent_at: Timestamp
    ended_at: Timestamp | None = None

    @property
    def is_paid(self) -> bool:
        """Whether the customer paid it."""
        return self.status is TransactionStatus.SUCCESS

    @property
    def is_open(self) -> bool:
        """Whether the customer may still pay it: it has not ended, as far as the service reported."""
        return self.status is None or not self.status.is_terminal


class JournalEntry(MaskedModel):
    """One reference, and the outcome of its payment as far as it is known. The repr masks the phone.

    Attributes:
        kind: Payout or collection.
        reference: The caller's reference, unique in the journal's account for each kind.
        amount: KES.
        phone: ``254XXXXXXXXX``; once it was anonymised, "" or ``hmac-sha256:`` and a hash.
        state: How far it came. A row that a process left in SENDING when it died reads as UNKNOWN.
        transaction_id: The service's id; of a collection, that of the prompt that was paid, else of the latest. While
            the state is UNKNOWN, an id that an unclear response showed.
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
        wire_reference: Of a collection: the reference that the service has, which is a token where the own one is
            longer than it allows.
        refund_of: Of a payout: the reference of the collection of which it pays something back.
        prompts: Of a collection: its prompts, oldest first.
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
    sent_at: Timestamp
    created_at: Timestamp = Field(default_factory=lambda fields: fields["sent_at"])
    ended_at: Timestamp | None = None
    released_by: str | None = None
    released_at: Timestamp | None = None
    metadata: dict[str, Any] | None = None
    wire_reference: str | None = None
    refund_of: str | None = None
    prompts: tuple[Prompt, ...] = ()
    clock_offset: float | None = None
    body_hash: str = Field(repr=False)
    claim: str = Field(default="", repr=False)

    @property
    def transaction_ids(self) -> tuple[str, ...]:
        """The ids of all its transactions, oldest first."""
        if self.kind is EntryKind.COLLECTION:
            return tuple(prompt.transaction_id for prompt in self.prompts)
        return () if self.transaction_id is None else (self.transaction_id,)

    @property
    def is_anonymised(self) -> bool:
        """Whether ``journal.anonymise`` removed the phone or replaced it by a hash."""
        return not self.phone or self.phone.startswith(ANONYMISED)

    @property
    def paid_twice(self) -> bool:
        """Whether more than one prompt of a collection was paid. Pay back all but one."""
        return sum(prompt.is_paid for prompt in self.prompts) > 1

    @property
    def has_settled(self) -> bool:
        """Whether the money is where it will stay. A payout that FAILED has settled once it is REVERSED."""
        return self.status is not None and has_settled(self.kind.transaction_type, self.status)


@dataclass(frozen=True)
class Filters:
    """Which entries are wanted; None is any.

    Attributes:
        kind: Of this kind.
        state: Read as this state.
        status: With this last known status.
        since: First used then or later.
        until: First used before.
    """

    kind: EntryKind | None = None
    state: JournalState | None = None
    status: TransactionStatus | None = None
    since: datetime | None = None
    until: datetime | None = None
