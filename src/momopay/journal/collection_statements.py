"""The SQL statements of collections: their rows, where these differ from those of payouts, and their prompts.

Parameters as in `momopay.journal.statements`; ``new_transaction_id`` names the prompt that the service reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import BindParameter, Text, Update, bindparam, case, delete, func, select, update

from momopay.journal.collection_rules import COLLECTION_TRANSITIONS, Stage
from momopay.journal.entries import EntryKind, JournalState
from momopay.journal.rules import Cause
from momopay.journal.schema import PROMPT_IS_OPEN, TAKE_LEASE, lease_left, payments, prompts
from momopay.journal.statements import ROW, SAME_CLAIM, change, kept_or

_row: Final = payments.c
_prompt: Final = prompts.c
_PAID: Final = "SUCCESS"
# What the row has of the prompt that was paid, else of the latest.
_OF_PROMPT: Final = ("status", "result_code", "receipt", "fee", "ended_at")
_new_transaction: Final[BindParameter[str]] = bindparam("new_transaction_id", type_=Text())
_ROW_IS_NOT_PAID: Final = _row.status.is_(None) | (_row.status != _PAID)

# Of the clock that wrote `sent_at`, which is that of the latest attempt.
_NEW_OFFSET: Final[BindParameter[float]] = bindparam("new_clock_offset", type_=_row.clock_offset.type)
_OFFSET: Final = func.coalesce(_row.clock_offset, _NEW_OFFSET)

BEGIN_PROMPT: Final = change(
    Cause.BEGIN,
    JournalState.SENDING,
    SAME_CLAIM,
    _row.amount == bindparam("the_amount"),
    _row.phone == bindparam("the_phone"),
    _row.state == bindparam("the_state"),
    # A prompt that became known meanwhile is the row's transaction now.
    func.coalesce(_row.transaction_id, "") == bindparam("the_transaction"),
    _ROW_IS_NOT_PAID,
    transitions=COLLECTION_TRANSITIONS,
    transaction_id=None,
    code=None,
    **dict.fromkeys(_OF_PROMPT),
    attempts=_row.attempts + 1,
    sent_at=bindparam("now"),
    metadata=kept_or("metadata"),
    clock_offset=_NEW_OFFSET,
    body_hash=bindparam("new_body_hash"),
    **TAKE_LEASE,
)
PROMPT_OUTCOMES: Final = {
    to: change(
        Cause.OUTCOME,
        to,
        SAME_CLAIM,
        # An earlier prompt may have been paid while this one was sent.
        transaction_id=case((_row.status == _PAID, _row.transaction_id), else_=_new_transaction),
        code=bindparam("new_code"),
        attempts=_row.attempts - (1 if to is JournalState.NOT_SENT else 0),
        clock_offset=_OFFSET,
    )
    for to in COLLECTION_TRANSITIONS[Cause.OUTCOME]
}
SIGHT_PROMPT: Final = change(Cause.SIGHTING, JournalState.UNKNOWN, SAME_CLAIM, transitions=COLLECTION_TRANSITIONS)
ACCEPT_PROMPT: Final = change(
    Cause.ACCEPTANCE,
    JournalState.ACCEPTED,
    transitions=COLLECTION_TRANSITIONS,
    # What an unclear response named may be the transaction of another row, which only one accepted row may have.
    transaction_id=case((_row.status == _PAID, _row.transaction_id)),
    code=None,
    clock_offset=_OFFSET,
)
# The sender's own response: a later attempt is not touched.
ACCEPT_OWN_PROMPT: Final = ACCEPT_PROMPT.where(SAME_CLAIM)
CONTRADICT_PROMPT: Final = change(
    Cause.CONTRADICTION,
    JournalState.UNKNOWN,
    _row.transaction_id == bindparam("the_transaction_id"),
    transitions=COLLECTION_TRANSITIONS,
    transaction_id=None,
    **dict.fromkeys(_OF_PROMPT),
)

_PROMPT_IS_NOT_PAID: Final = _prompt.status.is_(None) | (_prompt.status != _PAID)
_change_prompt: Final = update(prompts).where(
    _prompt.account == bindparam("the_account"),
    _prompt.reference == bindparam("the_reference"),
    _prompt.transaction_id == _new_transaction,
)
_reported: Final = {
    name: bindparam(f"new_{name}", type_=_prompt[name].type) for name in (*_OF_PROMPT, "unhandled_since")
}
_added: Final = _change_prompt.values({name: func.coalesce(new, _prompt[name]) for name, new in _reported.items()})

# What an end without success reported is not true of a payment.
PAY_PROMPT: Final = _change_prompt.where(_PROMPT_IS_NOT_PAID).values(_reported)
# By the stage of what is reported. A page of the list that was read before the end may be reported after it.
REPORT_PROMPT: Final[Mapping[Stage, Update]] = {
    Stage.OPEN: _added.where(PROMPT_IS_OPEN),
    Stage.ENDED: _added.where(_PROMPT_IS_NOT_PAID),
    Stage.PAID: _added,
}
# The row has the first prompt that was paid, for ever.
SHOW_PROMPT: Final = (
    update(payments)
    .where(*ROW, _ROW_IS_NOT_PAID | (_row.transaction_id == _new_transaction))
    .values(
        {
            "transaction_id": _new_transaction,
            **{
                name: select(_prompt[name])
                .where(
                    _prompt.account == bindparam("the_account"),
                    _prompt.reference == bindparam("the_reference"),
                    _prompt.transaction_id == _new_transaction,
                )
                .scalar_subquery()
                for name in _OF_PROMPT
            },
        }
    )
)
SHOW_CURRENT_PROMPT: Final = SHOW_PROMPT.where(_row.transaction_id == _new_transaction)

DELETE_PROMPT: Final = delete(prompts).where(
    _prompt.account == bindparam("the_account"),
    _prompt.reference == bindparam("the_reference"),
    _prompt.transaction_id == bindparam("the_transaction_id"),
)
SELECT_PROMPTS: Final = (
    select(prompts)
    .where(_prompt.account == bindparam("the_account"), _prompt.reference.in_(bindparam("references", expanding=True)))
    .order_by(_prompt.sent_at, _prompt.transaction_id)
)
SELECT_BY_WIRE_REFERENCE: Final = select(payments, lease_left(payments)).where(
    *ROW[:2], _row.wire_reference == bindparam("the_wire_reference")
)
SELECT_OTHER_PAYOUTS: Final = select(_row.transaction_id).where(
    _row.account == bindparam("the_account"),
    _row.kind == EntryKind.PAYOUT,
    _row.reference == bindparam("the_reference"),
    _row.state == JournalState.ACCEPTED,
    _row.transaction_id.is_not(None),
)
