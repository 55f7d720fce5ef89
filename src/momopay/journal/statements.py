"""The SQL statements that change a payment and its transactions, derived from the rules.

Parameters: ``the_...`` is the value that a row must have, ``new_...`` the value that it gets, and ``now`` the time as
text. `TAKE_LEASE` has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, TextClause, Update, and_, bindparam, case, delete, func, or_, select, update

from momopay.journal.entries import JournalState
from momopay.journal.guards import MARK, MARKS
from momopay.journal.rules import Cause, transitions
from momopay.journal.schema import (
    PAYMENT,
    TAKE_LEASE,
    TRANSACTION,
    InsertNew,
    Now,
    payments,
    transactions,
)
from momopay.models.enums import EntryKind, Stage, TransactionStatus

_SEARCH_DELAY: Final = 600.0  # seconds after a release, when a sweep searches for the payment once more

Condition: TypeAlias = ColumnElement[bool] | TextClause

IS_ROW: Final = and_(*(PAYMENT[name] == bindparam(f"the_{name}") for name in ("account", "kind", "reference")))
IS_TRANSACTION: Final = and_(*(TRANSACTION[name] == bindparam(f"the_{name}") for name in ("account", "transaction_id")))
AS_READ: Final = PAYMENT.revision == bindparam("the_revision")

IS_TRANSACTION_OF_ROW: Final = and_(*(TRANSACTION[name] == PAYMENT[name] for name in ("account", "kind", "reference")))

# One statement reads whole entries: one row for each transaction, with the payment and its lease.
ENTRIES: Final = select(payments, *(column.label(f"of_{column.name}") for column in TRANSACTION)).outerjoin(
    transactions, IS_TRANSACTION_OF_ROW
)

# The entry of one reference. Prepared, because building a statement takes longer than executing it.
ENTRY: Final = ENTRIES.where(IS_ROW)
# The same beside the journal's mark, which has one row even if there is no entry: see `momopay.journal.guards`.
ENTRY_AND_MARK: Final = select(*MARK, *ENTRIES.selected_columns).select_from(
    MARKS.outerjoin(payments, IS_ROW).outerjoin(transactions, IS_TRANSACTION_OF_ROW)
)


def _new(column: str, table: Any = PAYMENT) -> ColumnElement[Any]:
    return bindparam(f"new_{column}", type_=table[column].type)


def _changes(
    cause: Cause, to: JournalState, *expected: ColumnElement[bool], **values: Any
) -> Mapping[EntryKind, Update]:
    """Return, by kind, the statement that changes a row for a cause if the rules allow that in the row's state.

    A kind for which they never allow it has none.
    """
    changes: dict[EntryKind, Update] = {}
    for kind in EntryKind:
        # Not IN, because SQLAlchemy expands its list again at each execution.
        before = [PAYMENT.state == state for state in JournalState if state in transitions(kind)[cause][to]]
        if not before:
            continue
        change = update(payments).where(IS_ROW, or_(*before), *expected)
        changes[kind] = change.values(state=to, revision=PAYMENT.revision + 1, **values)
    return changes


# The offset of the clock that wrote `sent_at`, which for a payout is from its first attempt.
_OFFSET: Final = case(
    (and_(PAYMENT.kind == EntryKind.PAYOUT, PAYMENT.attempts > 1), PAYMENT.clock_offset),
    else_=func.coalesce(PAYMENT.clock_offset, _new("clock_offset")),
)
_IS_REPEATED_PAYOUT: Final = and_(PAYMENT.kind == EntryKind.PAYOUT, PAYMENT.attempts > 0)
BEGIN: Final = _changes(
    Cause.BEGIN,
    JournalState.SENDING,
    AS_READ,
    phone=_new("phone"),
    seen_id=None,
    code=None,
    attempts=PAYMENT.attempts + 1,
    idempotency_key=_new("idempotency_key"),
    key_since=_new("key_since"),
    # The first attempt at a refused or released payout may have been paid after all, so a search begins there.
    sent_at=case((_IS_REPEATED_PAYOUT, PAYMENT.sent_at), else_=bindparam("now", type_=PAYMENT.sent_at.type)),
    clock_offset=case((_IS_REPEATED_PAYOUT, PAYMENT.clock_offset), else_=_new("clock_offset")),
    metadata=func.coalesce(_new("metadata"), PAYMENT.metadata),
    paid_before=_new("paid_before"),
    **TAKE_LEASE,
)
RESEND: Final = _changes(Cause.RESEND, JournalState.SENDING, AS_READ, attempts=PAYMENT.attempts + 1, **TAKE_LEASE)
OUTCOMES: Final = {
    to: _changes(
        Cause.OUTCOME,
        to,
        PAYMENT.claim == bindparam("the_claim"),
        seen_id=func.coalesce(_new("seen_id"), PAYMENT.seen_id),
        code=_new("code"),
        attempts=PAYMENT.attempts - (1 if to is JournalState.NOT_SENT else 0),
        clock_offset=_OFFSET,
        key_number=PAYMENT.key_number + _new("key_number"),
        key_since=_new("key_since"),
    )
    for to in transitions(EntryKind.PAYOUT)[Cause.OUTCOME]  # a collection has the same
}
ACCEPT: Final = _changes(Cause.ACCEPTANCE, JournalState.ACCEPTED, seen_id=None, code=None, clock_offset=_OFFSET)
MARK_CONTRADICTED: Final = _changes(Cause.CONTRADICTED, JournalState.UNKNOWN, seen_id=None, key_since=None)
MARK_SEEN: Final = _changes(Cause.SEEN, JournalState.UNKNOWN, AS_READ, key_since=None)
# By the service's time if it is known. A database's clock that was set could let the search come too early.
_SEARCH_AFTER: Final = func.coalesce(bindparam("service_now", type_=PAYMENT.search_after.type), Now()) + _SEARCH_DELAY
RELEASE: Final = _changes(
    Cause.RELEASE,
    JournalState.NOT_SENT,
    AS_READ,
    released_by=_new("released_by"),
    released_at=bindparam("now"),
    search_after=_SEARCH_AFTER,
)
SEARCH_AGAIN: Final = update(payments).where(IS_ROW).values(search_after=_SEARCH_AFTER)
LEASE: Final = select(PAYMENT.claim, PAYMENT.machine, PAYMENT.lease_seconds, PAYMENT.lease_until).where(IS_ROW)
MOVE_LEASE: Final = (
    update(payments)
    .where(IS_ROW, PAYMENT.claim == bindparam("the_claim"))
    .values(machine=_new("machine"), lease_until=_new("lease_until"))
)
LOCK: Final = select(PAYMENT.revision).where(IS_ROW).with_for_update()  # over SQLite, the transaction is the lock
# In order, so that two processes that lock the same rows never wait for each other.
LOCK_SOME: Final = (
    select(PAYMENT.revision)
    .where(
        PAYMENT.account == bindparam("the_account"),
        PAYMENT.kind == bindparam("the_kind"),
        PAYMENT.reference.in_(bindparam("references", expanding=True)),
    )
    .order_by(PAYMENT.reference)
    .with_for_update()
)
TOUCH: Final = update(payments).where(IS_ROW).values(revision=PAYMENT.revision + 1)

EVIDENCE: Final = ("status", "result_code", "receipt", "fee", "ended_at", "learned_at_service")
_is_end: Final = [bindparam("status") == each for each in TransactionStatus if each.is_terminal]
_own: Final[dict[str, Any]] = {
    column.name: bindparam(column.name) for column in TRANSACTION if column.name not in {"learned_at", "checked_at"}
}
ADD_TRANSACTION: Final = InsertNew(transactions).values(_own | {"learned_at": case((or_(*_is_end), Now()))})
_IS_NOT_PAID: Final = TRANSACTION.status.is_(None) | (TRANSACTION.status != TransactionStatus.SUCCESS)
_IS_OPEN: Final = or_(
    TRANSACTION.status.is_(None),
    and_(*(TRANSACTION.status != each for each in TransactionStatus if each.is_terminal)),  # not IN, as above
)
_IS_NOT_REVERSED: Final = TRANSACTION.status.is_(None) | (TRANSACTION.status != TransactionStatus.REVERSED)
_is_reversal: Final = _new("status", TRANSACTION) == TransactionStatus.REVERSED
_shown: Final = {name: _new(name, TRANSACTION) for name in EVIDENCE}
_added: Final = {name: func.coalesce(new, TRANSACTION[name]) for name, new in _shown.items()}
# The code of an acceptance is not that of an end.
_code_of_end: Final = case((_IS_OPEN, _shown["result_code"]), else_=_added["result_code"])
# REVERSED after FAILED is another end. Of the same end the first time counts: reading it again is not learning it.
_is_new_end: Final = or_(_IS_OPEN, and_(_is_reversal, _IS_NOT_REVERSED))
_learned_at: Final = case((_is_new_end, Now()), else_=func.coalesce(TRANSACTION.learned_at, Now()))
_learned_at_service: Final = case(
    (_is_new_end, _shown["learned_at_service"]),
    else_=func.coalesce(TRANSACTION.learned_at_service, _shown["learned_at_service"]),
)
# By the stage that the evidence shows. None takes a transaction back to an earlier stage: a page that was read before
# an end may be recorded after it, and the callback for FAILED may come again after REVERSED.
ADVANCE: Final[Mapping[Stage, Update]] = {
    Stage.OPEN: update(transactions).where(IS_TRANSACTION, _IS_OPEN).values(_added),
    Stage.ENDED: update(transactions)
    .where(IS_TRANSACTION, _IS_NOT_PAID, _IS_NOT_REVERSED | _is_reversal)
    .values(
        _added | {"result_code": _code_of_end, "learned_at": _learned_at, "learned_at_service": _learned_at_service}
    ),
    Stage.PAID: update(transactions).where(IS_TRANSACTION).values(_added),
}
# What was reported of the open transaction stays true. What was reported of an end without success does not: its code,
# and a fee of 0.
_fee_of_payment: Final = case((_IS_OPEN, TRANSACTION.fee), else_=func.nullif(TRANSACTION.fee, "0"))
MARK_PAID: Final = (
    update(transactions)
    .where(IS_TRANSACTION, _IS_NOT_PAID)
    .values(
        _shown
        | {
            "receipt": case((_IS_OPEN, _added["receipt"]), else_=_shown["receipt"]),
            "fee": func.coalesce(_shown["fee"], _fee_of_payment),
            "learned_at": Now(),
        }
    )
)
# A receipt is all that is taken from a callback which nothing confirms.
ADD_RECEIPT: Final = (
    update(transactions).where(IS_TRANSACTION, TRANSACTION.receipt.is_(None)).values(receipt=_shown["receipt"])
)
# Only if it is this row's: another call may have deleted it before, and it may belong to another payment since.
_IS_OF_ROW: Final = and_(*(TRANSACTION[name] == bindparam(f"the_{name}") for name in ("kind", "reference")))
DELETE_TRANSACTION: Final = delete(transactions).where(IS_TRANSACTION, _IS_OF_ROW)
