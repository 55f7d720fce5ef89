"""The SQL statements that read and change the rows of payments, each built once.

Parameters: ``the_...`` is what the row must be, ``new_...`` what it becomes, ``now`` the time as text. `TAKE_LEASE` has
its own.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Text, Update, and_, bindparam, case, func, or_, select, update

from momopay.journal.entries import OPEN, EntryKind, JournalState
from momopay.journal.prepared import Prepared
from momopay.journal.rules import TRANSITIONS, Cause, Transitions
from momopay.journal.schema import TAKE_LEASE, insert_statements, lease_left, look_alikes, payments, prompts
from momopay.models.enums import FAILURES

_columns: Final = payments.c
ROW: Final = tuple(_columns[name] == bindparam(f"the_{name}") for name in ("account", "kind", "reference"))


def change(
    cause: Cause,
    to: JournalState,
    *expected: ColumnElement[bool],
    transitions: Transitions = TRANSITIONS,
    **values: Any,
) -> Update:
    """Return the statement by which a cause changes a row, with the rules' states as its condition."""
    # Not IN, whose list SQLAlchemy expands anew at each execution.
    before = or_(*(_columns.state == state for state in JournalState if state in transitions[cause][to]))
    return update(payments).where(*ROW, before, *expected).values(state=to, **values)


def kept_or(name: str) -> Any:
    """Return an expression for a column that changes only if there is something new."""
    return func.coalesce(bindparam(f"new_{name}", type_=_columns[name].type), _columns[name])


# Built once: building a statement takes several times as long as executing it.
SAME_CLAIM: Final = _columns.claim == bindparam("the_claim")
# The offset of the clock that wrote `sent_at`: what a later attempt measures is that of another moment.
OFFSET: Final = case(
    (_columns.attempts > 1, _columns.clock_offset),
    else_=func.coalesce(_columns.clock_offset, bindparam("new_clock_offset", type_=_columns.clock_offset.type)),
)
FIRST_OFFSET: Final = case(
    (_columns.attempts > 0, _columns.clock_offset),
    else_=bindparam("new_clock_offset", type_=_columns.clock_offset.type),
)
_REPORTED: Final[dict[str, Any]] = {
    name: kept_or(name) for name in ("result_code", "receipt", "fee", "ended_at", "unhandled_since")
} | {"clock_offset": OFFSET}
SELECT_TAKEN: Final = select(_columns.reference).where(
    _columns.account == bindparam("the_account"),
    _columns.transaction_id == bindparam("new_transaction_id"),
    _columns.state == JournalState.ACCEPTED,
)
SELECT: Final = select(payments, lease_left(payments)).where(*ROW)
SELECT_LOOK_ALIKES: Final = select(look_alikes).where(look_alikes.c.account == bindparam("the_account"))
SELECT_OPEN: Final = (
    select(payments, lease_left(payments)).where(*ROW[:2], _columns.state.in_(OPEN)).order_by(_columns.sent_at)
)
SELECT_OTHERS: Final = (
    select(prompts.c.transaction_id)
    .join(payments, (prompts.c.account == _columns.account) & (prompts.c.reference == _columns.reference))
    .where(
        _columns.account == bindparam("the_account"),
        _columns.kind == EntryKind.COLLECTION,
        _columns.wire_reference == bindparam("the_reference"),
    )
)
# No index has phones: it reads the whole account.
SELECT_TO_PHONES: Final = select(payments, lease_left(payments)).where(
    *ROW[:2], _columns.phone.in_(bindparam("phones", expanding=True))
)
BEGIN: Final = change(
    Cause.BEGIN,
    JournalState.SENDING,
    SAME_CLAIM,
    _columns.amount == bindparam("the_amount"),
    _columns.phone == bindparam("the_phone"),
    transaction_id=None,
    code=None,
    attempts=_columns.attempts + 1,
    # What was refused or released may have been paid the first time after all, so a search begins there.
    sent_at=case((_columns.attempts > 0, _columns.sent_at), else_=bindparam("now", type_=Text())),
    clock_offset=FIRST_OFFSET,
    metadata=kept_or("metadata"),
    body_hash=bindparam("new_body_hash"),
    **TAKE_LEASE,
)
OUTCOMES: Final = {
    to: change(
        Cause.OUTCOME,
        to,
        SAME_CLAIM,
        transaction_id=bindparam("new_transaction_id"),
        code=bindparam("new_code"),
        attempts=_columns.attempts - (1 if to is JournalState.NOT_SENT else 0),
        clock_offset=OFFSET,
    )
    for to in TRANSITIONS[Cause.OUTCOME]
}
ACCEPT: Final = change(
    Cause.ACCEPTANCE,
    JournalState.ACCEPTED,
    _columns.state != JournalState.ACCEPTED,
    transaction_id=bindparam("new_transaction_id"),
    code=None,
    status=kept_or("status"),
    **_REPORTED,
)
REPORT: Final = (
    update(payments)
    .where(
        *ROW,
        _columns.state == JournalState.ACCEPTED,
        _columns.transaction_id == bindparam("new_transaction_id"),
        # A page of the list that was read before the end may be reported after it.
        _columns.ended_at.is_(None) | bindparam("new_ended_at", type_=_columns.ended_at.type).is_not(None),
        # And the callback for FAILED may come again after the payout was REVERSED.
        _columns.status.is_(None)
        | and_(_columns.status != "SUCCESS", _columns.status != "REVERSED")
        | and_(*(bindparam("new_status", type_=Text()) != failure for failure in sorted(FAILURES))),
    )
    .values(status=kept_or("status"), **_REPORTED)
)
CONTRADICT: Final = change(
    Cause.CONTRADICTION, JournalState.UNKNOWN, _columns.transaction_id == bindparam("the_transaction_id")
)
SIGHT: Final = change(Cause.SIGHTING, JournalState.UNKNOWN, SAME_CLAIM)
RELEASE: Final = change(
    Cause.RELEASE,
    JournalState.NOT_SENT,
    SAME_CLAIM,
    released_by=bindparam("new_released_by"),
    released_at=bindparam("now"),
)

# What each payment executes.
READ_ROW: Final = Prepared(SELECT)
INSERT_ROW: Final = Prepared(insert_statements(payments))
ACCEPT_ROW: Final = Prepared(ACCEPT)
READ_TAKEN: Final = Prepared(SELECT_TAKEN)
