"""What happened to each payment, in order: rows that are only added, each in the transaction of its change.

A change and its rows are committed together, so the state of a payment and its history never disagree. Whether an end
was delivered is read from here, and stands nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Insert, Select, and_, bindparam, insert, or_, select

from momopay.journal.entries import EntryKind, HistoryEntry, HistoryKind, JournalEntry, JournalState
from momopay.journal.evidence import Report
from momopay.journal.schema import IS_DELIVERY, Now, history
from momopay.models.enums import TransactionStatus, end_of, outranks

_row: Final = history.c
_FIELDS: Final = ("service_time", "before", "after", "transaction_id", "attempt", "source", "by_whom")
# Inline, so that no driver returns the number: see `momopay.journal.database`.
ADD: Final[Insert] = (
    insert(history)
    .values(at=Now(), **{name: bindparam(name) for name in ("account", "kind", "reference", "what", *_FIELDS)})
    .inline()
)
# By end: the statuses whose delivery keeps it from a handler, which are its own and those that outrank it.
_DONE_BY: Final = {
    end: [each.value for each in TransactionStatus if end_of(each) is end or outranks(each, end)]
    for end in {end_of(each) for each in TransactionStatus}
}


def event(account: str, of: Any, what: HistoryKind, **fields: object) -> dict[str, object]:
    """Return the parameters of `ADD` for something that happened to a payment."""
    known = {"account": account, "kind": of.kind, "reference": of.reference, "what": what}
    return {**dict.fromkeys(_FIELDS), **known, **fields}


def of_record(
    account: str, before: JournalEntry, report: Report, *, is_reported: bool, is_latest: bool, is_paid_twice: bool
) -> list[dict[str, object]]:
    """Return what happened when a record of the service was recorded in an entry, as it was `before`.

    `is_reported`: its status was newer than the known one. `is_latest`: a new transaction is of the latest attempt.
    `is_paid_twice`: money moved twice, now.
    """
    known = next((each for each in before.transactions if each.transaction_id == report.transaction_id), None)
    details: dict[str, object] = {"transaction_id": report.transaction_id, "source": report.source}
    details["service_time"] = report.learned_at_service
    rows = list[dict[str, object]]()
    if known is None:
        details["attempt"] = before.attempts
        state = JournalState.ACCEPTED if is_latest else before.state
        if report.source == "answer":
            rows.append(event(account, before, HistoryKind.SENT, before=before.state, after=before.state, **details))
        rows.append(event(account, before, HistoryKind.ACCEPTED, before=before.state, after=state, **details))
    last, receipt = (None, None) if known is None else (known.status, known.receipt)
    if is_reported and report.status not in {None, last}:
        rows.append(event(account, before, HistoryKind.STATUS, before=last, after=report.status, **details))
    if is_reported and report.receipt not in {None, receipt}:
        rows.append(event(account, before, HistoryKind.RECEIPT, before=receipt, after=report.receipt, **details))
    if is_paid_twice:
        rows.append(event(account, before, HistoryKind.PAID_TWICE, **details))
    return rows


def text_of(moment: datetime | None) -> str | None:
    """Return a time as a column has it."""
    return None if moment is None else moment.isoformat()


def add(connection: Connection, rows: list[dict[str, object]]) -> None:
    """Add rows, within the transaction of what they tell."""
    if rows:
        connection.execute(ADD, rows)


def of_payment(account: str, reference: str, kind: EntryKind | None) -> Select[Any]:
    """Return the query for the history of a payment, in order."""
    found = select(history).where(_row.account == account, _row.reference == reference).order_by(_row.number)
    return found if kind is None else found.where(_row.kind == kind)


def entry_of(row: Any) -> HistoryEntry:
    """Return what a row tells."""
    return HistoryEntry(
        kind=EntryKind(row.kind),
        reference=row.reference,
        at=datetime.fromtimestamp(row.at, UTC),
        service_time=None if row.service_time is None else datetime.fromisoformat(row.service_time),
        what=HistoryKind(row.what),
        from_=row.before,
        to=row.after,
        transaction_id=row.transaction_id,
        attempt=row.attempt,
        source=row.source,
        by=row.by_whom,
    )


def deliveries_of(account: object, transaction_id: object) -> Select[*tuple[Any, ...]]:
    """Return the query for the deliveries of a transaction's ends: what, the status, and the id of the call."""
    found = select(_row.what, _row.after, _row.by_whom)
    return found.where(IS_DELIVERY, _row.account == account, _row.transaction_id == transaction_id)


def was_delivered(rows: Iterable[Any], status: TransactionStatus) -> bool:
    """Return whether rows of `deliveries_of` show that a status, or one that outranks it, was delivered."""
    delivered = [TransactionStatus(row.after) for row in rows if row.what == HistoryKind.DELIVERED]
    return any(end_of(each) is end_of(status) or outranks(each, status) for each in delivered)


def delivers(status: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a delivery was of a status, or of one that outranks it."""
    return or_(
        *(
            and_(status.in_([each.value for each in TransactionStatus if end_of(each) is end]), _row.after.in_(done))
            for end, done in _DONE_BY.items()
        )
    )
