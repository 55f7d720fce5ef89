"""Convert the payments of clients and the records of the service into what the journal stores. No I/O.

No text from the service may make recording fail. What cannot be stored, such as a time at the edge of the calendar or a
text with a NUL, is left out with a WARNING.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Self, TypeAlias
from unicodedata import normalize

from momopay._redaction import redacted_repr
from momopay.journal.entries import JournalEntry, JournalTransaction
from momopay.models.callbacks import CallbackTransaction
from momopay.models.enums import EntryKind, Stage, TransactionStatus, TransactionType, end_of, is_known_type, stage_of
from momopay.models.records import is_missing, is_placeholder
from momopay.models.requests import RequestedPayment
from momopay.models.transactions import Payout, StkTransaction, Transaction, TransactionSummary
from momopay.money import format_amount

logger: logging.Logger = logging.getLogger("momopay")

_SOURCES: Final = (
    (CallbackTransaction, "callback"),
    (Transaction, "read"),
    (TransactionSummary, "list"),
    (object, "answer"),
)
_MOST_INDEXED: Final = 2000  # bytes; an index of PostgreSQL takes 2,704, the account included
ServiceRecord: TypeAlias = TransactionSummary | Payout | StkTransaction | CallbackTransaction


@dataclass(frozen=True)
class Draft:
    """A payment that is about to be sent. The fields are as in `JournalEntry`."""

    kind: EntryKind
    reference: str
    amount: Decimal
    phone: str
    wire_reference: str
    metadata: Mapping[str, object] | None = None
    refund_of: str | None = None
    idempotency_key: str | None = None
    key_since: str | None = None
    is_resend: bool = False  # an earlier request with this key may have executed

    @property
    def requested(self) -> RequestedPayment:
        """The values that the service's record must have."""
        return RequestedPayment(self.wire_reference, self.amount, self.phone, self.kind.transaction_type)


@dataclass(frozen=True)
class Evidence:
    """What a record of the service says about a transaction, as columns of the journal. None leaves a column as is."""

    transaction_id: str
    status: TransactionStatus | None = None
    result_code: str | None = None
    receipt: str | None = None
    fee: str | None = None  # KES
    created_at: datetime | None = None  # when the service accepted it, by its clock
    ended_at: str | None = None  # when it reached a terminal status, in UTC
    learned_at_service: str | None = None  # the service's current time, if known
    source: str | None = None  # where it was learnt; see `HistoryEntry`
    is_timed: bool = True  # whether `ended_at` is the record's; else it is the present

    @classmethod
    def of(cls, record: ServiceRecord, service_now: datetime | None = None, source: str | None = None) -> Self:
        """Return what a record says, without what cannot be stored.

        `service_now` is the service's time, if known. `source` is where the record was learnt, by default by its type.
        """
        kept = _kept(record)
        status, updated_at = kept.get("status"), kept.get("updated_at")
        has_ended = record.status is not None and record.status.is_terminal
        return cls(
            transaction_id=record.transaction_id,
            status=None if status is None else TransactionStatus(status),
            result_code=kept.get("result_code"),
            receipt=kept.get("receipt"),
            fee=None if record.transaction_fee is None else format_amount(record.transaction_fee),
            created_at=kept.get("created_at"),
            ended_at=(updated_at or datetime.now(UTC)).isoformat() if has_ended else None,
            learned_at_service=None if service_now is None else service_now.isoformat(),
            is_timed=updated_at is not None,
            source=source or next(name for kind, name in _SOURCES if isinstance(record, kind)),
        )

    @classmethod
    def confirmed(
        cls,
        read: ServiceRecord,
        stated: CallbackTransaction,
        service_now: datetime | None = None,
        known: JournalTransaction | None = None,
    ) -> Self:
        """Return what the record says that confirmed a callback, with what it lacks.

        That is what the journal knows of the transaction, else what the callback says of the same end: anybody may have
        sent the callback, so it replaces nothing.
        """
        found = cls.of(read, service_now, "callback")
        gaps: dict[str, str | None] = {}
        if known is not None:
            before, now = stage_of(known.status), stage_of(read.status)
            gaps["receipt"] = known.receipt
            # The code of an acceptance is of no end, and what is true of a failure is not true of a late payment.
            gaps["result_code"] = known.result_code if before is now else None
            is_late = before is Stage.ENDED and now is Stage.PAID
            gaps["fee"] = None if known.fee is None or is_late else format_amount(known.fee)
        if stated.status is not None and found.status is not None and end_of(found.status) is end_of(stated.status):
            said = cls.of(stated)
            own = {"fee": said.fee, "result_code": said.result_code}
            if found.status is TransactionStatus.SUCCESS:  # who did not pay has no receipt
                own["receipt"] = said.receipt
            gaps |= {name: value for name, value in own.items() if gaps.get(name) is None}
        return replace(
            found,
            receipt=found.receipt or gaps.get("receipt"),
            result_code=found.result_code or gaps.get("result_code"),
            fee=found.fee or gaps.get("fee"),
        )


def is_keepable(text: object) -> bool:
    """Return whether this is text that every database can store."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeError:
        return False
    return "\0" not in text


def is_indexable(text: object) -> bool:
    """Return whether this is text that every database can store in a column with an index."""
    return is_keepable(text) and len(str(text).encode()) <= _MOST_INDEXED


def _kept(record: ServiceRecord) -> dict[str, Any]:
    """Return the texts of a record, and its times in UTC, without what it lacks and what cannot be stored."""
    kept, faulty = dict[str, Any](), list[str]()
    for name in ("status", "result_code", "receipt"):
        value = getattr(record, name, None)  # only some records have a result code
        fits = is_indexable if name == "receipt" else is_keepable  # by receipts there is an index
        if value is not None and fits(str(value)):
            kept[name] = str(value)
        elif value is not None:
            faulty.append(name)
    for name in ("created_at", "updated_at"):
        moment: datetime | None = getattr(record, name)
        if moment is None:
            continue
        if is_missing(moment):
            faulty.append(name)
        else:
            kept[name] = moment.astimezone(UTC)
    for name in faulty:
        shown = redacted_repr(record.transaction_id)
        logger.warning("the %s of transaction %s cannot be kept, and is left out", name, shown)
    return kept


def reference_of(record: ServiceRecord) -> str | None:
    """Return the reference in a record of the service, normalised as references are when they are sent."""
    reference = record.reference if isinstance(record, Payout) else record.account_reference
    return None if reference is None or is_placeholder(reference) else normalize("NFC", reference)


def differences(entry: JournalEntry, record: ServiceRecord) -> list[str]:
    """Return the names of the fields in which a record of the service contradicts an entry."""
    known = next((each for each in entry.transactions if each.transaction_id == record.transaction_id), None)
    phone: str | None = entry.phone if known is None else known.phone
    if known is not None and entry.is_anonymised:  # its transaction identifies it
        phone = None
    kind: TransactionType | None = entry.kind.transaction_type
    if isinstance(record, CallbackTransaction) and not is_known_type(record.type):
        kind = None  # another name than the service's: the read that confirms the callback decides
    wanted = RequestedPayment(entry.wire_reference, entry.amount, phone, kind)
    return wanted.differences(reference_of(record), record)
