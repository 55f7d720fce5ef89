"""What happened to each payment, in order: rows that are only added, each in the transaction of its change.

A change and its rows are committed together, so the state of a payment and its history never disagree. Whether an end
was delivered is read from here, and stands nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, Insert, and_, bindparam, exists, insert, or_, select

from momopay.journal.database import change_and_commit, defer
from momopay.journal.entries import HistoryEntry, HistoryKind, JournalEntry, JournalState, JournalTransaction
from momopay.journal.evidence import Evidence
from momopay.journal.schema import Now, history, payments
from momopay.models.enums import EntryKind, TransactionStatus, end_of, outranks

Change: TypeAlias = tuple[HistoryKind, str | None, str | None]
"""What happened, and the state or status before and after."""

_DETAILS: Final = ("service_time", "transaction_id", "attempt", "source", "by_whom")
_SAME: Final = ("account", "kind", "reference", *_DETAILS)  # in all rows of one change
# By end: the statuses whose delivery keeps it from a handler, which are its own and those that outrank it.
_DONE_BY: Final = {
    end: [each.value for each in TransactionStatus if end_of(each) is end or outranks(each, end)]
    for end in {end_of(each) for each in TransactionStatus}
}


def add(connection: Connection, account: str, of: Any, changes: Sequence[Change], **details: object) -> None:
    """Add what happened to a payment, within the transaction that changes it. `details` are the same for each row."""
    values = {**dict.fromkeys(_DETAILS), "account": account, "kind": of.kind, "reference": of.reference, **details}
    for row, (what, before, after) in enumerate(changes):
        values |= {f"what_{row}": what, f"before_{row}": before, f"after_{row}": after}
    if changes:
        defer(connection, _insert(len(changes)), values)


def add_begun(connection: Connection, account: str, of: Any, claim: str, before: str | None, **details: object) -> bool:
    """Add that a payment began, if its row has the claim, and commit. Return whether it has: whether it began."""
    values = {**dict.fromkeys(_DETAILS), "account": account, "kind": of.kind, "reference": of.reference, **details}
    values |= {"what": HistoryKind.BEGUN, "before": before, "after": JournalState.SENDING, "claim": claim}
    return change_and_commit(connection, _INSERT_BEGUN, values)


_added: Final = [column for column in history.c if column.name not in {"number", "at"}]
_is_begun: Final = exists().where(
    *(payments.c[name] == bindparam(name) for name in ("account", "kind", "reference", "claim"))
)
# Conditional, so that PostgreSQL gets it, the row of the payment, and the COMMIT in one round trip.
_INSERT_BEGUN: Final = (
    insert(history)
    .from_select(
        ["at", *(column.name for column in _added)],
        select(Now(), *(bindparam(column.name, type_=column.type) for column in _added)).where(_is_begun),
    )
    .inline()
)


@cache
def _insert(rows: int) -> Insert:
    """Return the statement that adds so many rows."""
    same: dict[str, Any] = {"at": Now(), **{name: bindparam(name) for name in _SAME}}
    own: list[dict[str, Any]] = [
        {name: bindparam(f"{name}_{row}") for name in ("what", "before", "after")} for row in range(rows)
    ]
    # Inline, so that no driver returns the number: see `momopay.journal.database`.
    return insert(history).values([same | each for each in own]).inline()


def add_evidence(
    connection: Connection,
    account: str,
    before: JournalEntry,
    known: JournalTransaction | None,
    evidence: Evidence,
    *,
    is_newer: bool,
    is_latest: bool,
    is_paid_twice: bool,
) -> None:
    """Add what a record of the service changed in an entry, as it was `before`, and of a transaction that was `known`.

    `is_newer`: its status was newer than the known one. `is_latest`: a new transaction is of the latest attempt.
    `is_paid_twice`: this record shows a second payment.
    """
    status, receipt = (None, None) if known is None else (known.status, known.receipt)
    changes = list[Change]()
    if known is None and evidence.source == "answer":
        changes.append((HistoryKind.SENT, before.state, before.state))
    if known is None:
        changes.append((HistoryKind.ACCEPTED, before.state, JournalState.ACCEPTED if is_latest else before.state))
    if is_newer and evidence.status not in {None, status}:
        changes.append((HistoryKind.STATUS, status, evidence.status))
    if is_newer and evidence.receipt not in {None, receipt}:
        changes.append((HistoryKind.RECEIPT, receipt, evidence.receipt))
    if is_paid_twice:
        changes.append((HistoryKind.PAID_TWICE, None, None))
    add(
        connection,
        account,
        before,
        changes,
        transaction_id=evidence.transaction_id,
        attempt=before.attempts if known is None else None,
        source=evidence.source,
        service_time=evidence.learned_at_service,
    )


def of_payment(connection: Connection, account: str, reference: str, kind: EntryKind | None) -> list[HistoryEntry]:
    """Return what happened to a payment, in order."""
    found = select(history).where(history.c.account == account, history.c.reference == reference)
    found = found if kind is None else found.where(history.c.kind == kind)
    return [
        HistoryEntry(
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
        for row in connection.execute(found.order_by(history.c.number))
    ]


def was_delivered(rows: Iterable[Any], status: TransactionStatus) -> bool:
    """Return whether deliveries of a transaction show that a status, or one that outranks it, was delivered."""
    delivered = [TransactionStatus(row.after) for row in rows if row.what == HistoryKind.DELIVERED]
    return any(end_of(each) is end_of(status) or outranks(each, status) for each in delivered)


def delivers(status: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a delivery was of a status, or of one that outranks it."""
    return or_(
        *(
            and_(
                status.in_([each.value for each in TransactionStatus if end_of(each) is end]), history.c.after.in_(done)
            )
            for end, done in _DONE_BY.items()
        )
    )
