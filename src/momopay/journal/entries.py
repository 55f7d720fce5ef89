"""The journal's records of payments and their transactions. No I/O.

A payment is what the caller wants: an account, a kind and a reference, with an amount and a phone. Its transactions are
what the service made of it: a payout has at most one, an order (a collection) has one for each accepted prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import Field, computed_field

from momopay.models.enums import EntryKind, ResultCode, TransactionStatus, has_settled
from momopay.models.records import MaskedModel, Timestamp


class JournalState(StrEnum):
    """How far the latest attempt at a payment came."""

    SENDING = "SENDING"
    """A call is sending it now."""
    ACCEPTED = "ACCEPTED"
    """The service accepted it, as ``transaction_id``."""
    REFUSED = "REFUSED"
    """The service refused it, with ``code``. It may be sent again."""
    NOT_SENT = "NOT_SENT"
    """It was not sent, or a person released it. It may be sent."""
    UNKNOWN = "UNKNOWN"
    """It may have been executed. It is not sent again."""


ANONYMISED: Final = "hmac-sha256:"
"""The prefix of a hash in place of a phone."""
MAY_BE_SENT: Final[frozenset[JournalState]] = frozenset({JournalState.REFUSED, JournalState.NOT_SENT})
# The stored states of an entry that may read as UNKNOWN: a row in SENDING does once its sender died.
UNRESOLVED: Final[frozenset[JournalState]] = frozenset({JournalState.SENDING, JournalState.UNKNOWN})


class JournalTransaction(MaskedModel):
    """One transaction of a payment: an accepted payout, or an accepted prompt of an order.

    Attributes:
        transaction_id: The service's id.
        amount: KES.
        phone: ``254XXXXXXXXX``; if anonymised, "" or ``hmac-sha256:`` and a hash.
        status: The last status that the service reported, if any.
        result_code: The provider's code for how it ended, if the service reported one.
        receipt: The provider's receipt, once a callback or a read has shown it.
        fee: The service's fee in KES, if it was reported.
        sent_at: When it was about to be sent. All times are in UTC.
        ended_at: When it reached a terminal status, by the service's clock.
    """

    transaction_id: str
    amount: Decimal
    phone: str
    status: TransactionStatus | None = None
    result_code: ResultCode | None = None
    receipt: str | None = None
    fee: Decimal | None = None
    sent_at: Timestamp
    ended_at: Timestamp | None = None

    @property
    def is_paid(self) -> bool:
        """Whether the money moved."""
        return self.status is TransactionStatus.SUCCESS

    @property
    def is_open(self) -> bool:
        """Whether it may still be paid: the service has reported no terminal status."""
        return self.status is None or not self.status.is_terminal


class JournalEntry(MaskedModel):
    """One payment, and its outcome as far as it is known. The repr masks the phone.

    Attributes:
        kind: Payout or collection.
        reference: The caller's reference, unique in the journal's account for each kind.
        amount: KES.
        phone: The phone of the latest attempt, ``254XXXXXXXXX``; if anonymised, "" or ``hmac-sha256:`` and a hash.
        state: How far the latest attempt came. A row that a process left in SENDING when it died reads as UNKNOWN.
        code: The service's error code, if it refused the payment.
        attempts: How often it was or may have been sent, including refused attempts.
        idempotency_key: The Idempotency-Key that a payout was last sent with.
        sent_at: When it was about to be sent: the first attempt at a payout, the latest one at an order. All times are
            in UTC.
        created_at: When the reference was first used.
        released_by: Who released it last, if anybody did.
        released_at: When it was last released.
        metadata: The caller's own JSON object.
        wire_reference: The reference that the service has. For an order it may be a token, or chosen by the caller.
        refund_of: For a refund, the reference of the collection.
        paid_before: For a refund, how much of the collection had been paid when the refund began, in KES.
        transactions: What the service made of it, oldest first.
        seen_id: While the state is UNKNOWN, a transaction id that a broken response showed.
        clock_offset: Seconds by which this machine's clock was ahead of the service's at sending, if known.
        claim: The id of the lease of the last call that wrote the row as SENDING.
        revision: Number of changes to the entry.
        key_number: The number of the attempt, from which the next `idempotency_key` is derived.
        key_since: The `Moment` at which it was first sent with `idempotency_key`, as text; None if that is not known or
            the service must not get that key again.
    """

    kind: EntryKind
    reference: str
    amount: Decimal
    phone: str
    state: JournalState
    code: str | None = None
    attempts: int = 0
    idempotency_key: str | None = Field(default=None, repr=False)
    sent_at: Timestamp
    created_at: Timestamp
    released_by: str | None = None
    released_at: Timestamp | None = None
    metadata: dict[str, Any] | None = None
    wire_reference: str
    refund_of: str | None = None
    paid_before: Decimal | None = Field(default=None, repr=False)
    transactions: tuple[JournalTransaction, ...] = ()
    seen_id: str | None = Field(default=None, repr=False)
    clock_offset: float | None = Field(default=None, repr=False)
    claim: str = Field(default="", repr=False)
    revision: int = Field(default=0, repr=False)
    # For the library alone: they are no part of what a user dumps.
    key_number: int = Field(default=1, repr=False, exclude=True)
    key_since: str | None = Field(default=None, repr=False, exclude=True)

    @property
    def transaction(self) -> JournalTransaction | None:
        """The transaction that counts: the first one that was paid, else that of the latest attempt, if accepted."""
        paid = next((each for each in self.transactions if each.is_paid), None)
        if paid is None and self.transactions and self.state is JournalState.ACCEPTED:
            return self.transactions[-1]
        return paid

    @computed_field  # type: ignore[prop-decorator]
    @property
    def transaction_id(self) -> str | None:
        """The id of `transaction`. While the state is UNKNOWN, it may be an id that a broken response showed."""
        return self.seen_id if self.transaction is None else self.transaction.transaction_id

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> TransactionStatus | None:
        """The last status that the service reported for `transaction`, if any."""
        return None if self.transaction is None else self.transaction.status

    @property
    def result_code(self) -> ResultCode | None:
        """The provider's code for how it ended, if the service reported one."""
        return None if self.transaction is None else self.transaction.result_code

    @property
    def receipt(self) -> str | None:
        """The provider's receipt, once a callback or a read has shown it."""
        return None if self.transaction is None else self.transaction.receipt

    @property
    def fee(self) -> Decimal | None:
        """The service's fee in KES, if it was reported."""
        return None if self.transaction is None else self.transaction.fee

    @property
    def ended_at(self) -> datetime | None:
        """When it reached a terminal status, by the service's clock."""
        return None if self.transaction is None else self.transaction.ended_at

    @property
    def transaction_ids(self) -> tuple[str, ...]:
        """The ids of all `transactions`, oldest first."""
        return tuple(each.transaction_id for each in self.transactions)

    def status_of(self, transaction_id: str) -> TransactionStatus | None:
        """Return the last known status of one of its transactions."""
        return next((each.status for each in self.transactions if each.transaction_id == transaction_id), None)

    @property
    def is_anonymised(self) -> bool:
        """Whether ``journal.anonymise`` removed the phone or replaced it by a hash."""
        return not self.phone or self.phone.startswith(ANONYMISED)

    @property
    def paid_twice(self) -> bool:
        """Whether it was paid more than once. Pay back, or ask back, all but one."""
        return len(self.counting) > 1

    @property
    def counting(self) -> tuple[JournalTransaction, ...]:
        """The transactions that move money: those of an order that were paid, those of a payout that may be."""
        if self.kind is EntryKind.COLLECTION:
            return tuple(each for each in self.transactions if each.is_paid)
        # The wallet is debited when a payout is accepted.
        return tuple(each for each in self.transactions if each.status is None or not each.status.ended_without_success)

    @property
    def has_settled(self) -> bool:
        """Whether the money is where it will stay. A payout that FAILED has settled once it is REVERSED."""
        return self.status is not None and has_settled(self.kind.transaction_type, self.status)


class HistoryKind(StrEnum):
    """What happened to a payment."""

    BEGUN = "begun"
    """An attempt is about to be sent: this was written before it."""
    SENT = "sent"
    """The service answered the attempt, so it was sent."""
    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_SENT = "not sent"
    UNKNOWN = "unknown"
    """The attempt may have been executed."""
    STATUS = "status"
    """The service reported another status of a transaction."""
    RECEIPT = "receipt"
    PAID_TWICE = "paid twice"
    RELEASED = "released"
    CONTRADICTED = "contradicted"
    """The service's record of an accepted transaction is another payment."""
    DELIVERED = "delivered"
    """A handler got an end, and returned."""
    DELIVERY_FAILED = "delivery failed"
    """A handler got an end, and raised."""
    ANONYMISED = "anonymised"


@dataclass(frozen=True)
class HistoryEntry:
    """One thing that happened to a payment. It has no phone and no key.

    Attributes:
        kind: Payout or collection.
        reference: The caller's reference; of a payment that no entry knows, the service's.
        at: When it was recorded, by the database's clock, in UTC.
        service_time: The service's time then, if it was known.
        what: What happened.
        from_: The state of the entry before, or the status of the transaction.
        to: The state or the status after; of a delivery, the status that the handler got.
        transaction_id: The service's id of the transaction, if it is about one.
        attempt: The number of the attempt, if it is about one.
        source: Where it was learnt: ``answer``, ``callback``, ``read``, ``list``, ``search``, ``sweep`` or ``person``.
        by: Who released it; of a delivery, the id of the call.
    """

    kind: EntryKind
    reference: str
    at: datetime
    service_time: datetime | None
    what: HistoryKind
    from_: str | None
    to: str | None
    transaction_id: str | None
    attempt: int | None
    source: str | None
    by: str | None


@dataclass(frozen=True)
class JournalCheck:
    """What ``journal.check`` found.

    Attributes:
        account: The journal's account.
        version: The version of the tables.
        mode: The mode of the keys, ``test`` or ``live``; None before the first payment.
        host: The host of the service; None before the first payment.
        tenant_id: The tenant, once a response showed it.
        counts: The number of entries by kind and stored state. SENDING includes entries whose sender died.
        unresolved: The references of payments that may have been made.
        not_settled: The number of transactions that have not settled.
        paid_twice: The references of payments that were made twice and not paid back.
        skipped: The number of ends that no handler got within 30 days; 0 if none ever got one.
        went_back: If the journal went back in time, the reason why a person must accept it before it can be used.
        differing: The names of indexes that are missing or differ from those of the version. Without them, payments and
            sweeps read whole tables. `Journal.migrate` makes them anew.
    """

    account: str
    version: int
    mode: str | None
    host: str | None
    tenant_id: str | None
    counts: Mapping[tuple[EntryKind, JournalState], int]
    unresolved: tuple[str, ...]
    not_settled: int
    paid_twice: tuple[str, ...]
    went_back: str | None
    skipped: int = 0
    differing: tuple[str, ...] = ()

    @property
    def needs_attention(self) -> bool:
        """Whether a person must act: a payment is unresolved or was made twice, or the journal lost something."""
        return bool(self.unresolved or self.paid_twice or self.went_back or self.differing)


@dataclass(frozen=True)
class Moment:
    """A moment by clocks that nobody sets, in seconds: a machine's since it booted, and the service's if known."""

    machine: str
    clock: float
    service: float | None

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the moment that `str` made the text of."""
        return cls(*json.loads(text))

    def __str__(self) -> str:
        return json.dumps([self.machine, self.clock, self.service])

    def seconds_until(self, later: Moment) -> float | None:
        """Return the longest time that a clock shows to have passed; None if none of them shows it."""
        shown = list[float]()
        if later.machine == self.machine:
            shown.append(later.clock - self.clock)
        if None not in {self.service, later.service}:
            shown.append((later.service or 0.0) - (self.service or 0.0))
        return max(shown, default=None)
