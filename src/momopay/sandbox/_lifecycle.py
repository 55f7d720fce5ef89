"""How a transaction moves from state to state, by plan or by hand, and the effects of each move.

Everything that changes a status goes through `enter`, which keeps the account's counts, its money, the health rule
and the callbacks in step with it.
"""

import secrets
from datetime import datetime
from uuid import uuid4

from momopay.sandbox import _callbacks
from momopay.sandbox._outcomes import EXPIRED_AFTER, RESULT_DESCRIPTIONS, confirmation
from momopay.sandbox._records import COMPLETED, Kind, MovementKind, Status, Step, Transaction
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import ServiceState

# Without I, O, 0 and 1, which people misread.
_RECEIPT_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


def take_step(state: ServiceState, transaction_id: str, due: datetime) -> None:
    """Take the next planned step, if the scheduler's entry is still right."""
    transaction = state.transactions.get(transaction_id)
    if transaction is None or transaction.due != due:
        return
    step = transaction.plan.pop(0)
    enter(state, transaction, step.status, step.code, due)
    state.schedule(transaction, due)


def enter_pin(state: ServiceState, transaction_id: str, now: datetime) -> Transaction:
    """Let the customer enter the PIN now; the provider will confirm."""
    transaction = _open_prompt(state, transaction_id, may_be_late=True)
    # A new plan replaces the number's own: what the customer does always counts.
    transaction.plan = [confirmation(transaction.kind)]
    enter(state, transaction, Status.PROCESSING, None, now)
    state.schedule(transaction, now)
    return transaction


def cancel(state: ServiceState, transaction_id: str, now: datetime) -> Transaction:
    """Let the customer cancel the prompt now."""
    transaction = _open_prompt(state, transaction_id)
    transaction.plan = []
    enter(state, transaction, Status.CANCELLED, "1032", now)
    state.schedule(transaction, now)
    return transaction


def ignore(state: ServiceState, transaction_id: str, now: datetime) -> Transaction:
    """Let the customer leave the prompt alone, so that it expires."""
    transaction = _open_prompt(state, transaction_id)
    transaction.plan = [Step(EXPIRED_AFTER, Status.EXPIRED, "1037")]
    state.schedule(transaction, now)
    return transaction


def enter(state: ServiceState, transaction: Transaction, status: Status, code: str | None, now: datetime) -> None:
    """Enter a status, with its effects on money, on the health rule and on callbacks."""
    account_state = state.accounts[transaction.tenant_id]
    switches = account_state.account.switches
    ending = status
    if status is Status.CANCELLED:
        status = Status(switches.cancel_ends_as)
    elif status is Status.EXPIRED:
        status = Status(switches.expired_reads_as)
    account_state.counts[transaction.kind, transaction.status] -= 1
    account_state.counts[transaction.kind, status] += 1
    transaction.status, transaction.updated_at = status, now
    if code is not None:
        transaction.result_code, transaction.result_desc = code, RESULT_DESCRIPTIONS[code]
    # A payout gets its provider ids only when the provider takes it.
    if transaction.provider_request_id is None:
        transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    if status is Status.SUCCESS:
        transaction.receipt = "".join(secrets.choice(_RECEIPT_LETTERS) for _ in range(10))
    _move_money(state, transaction, status, now)
    if transaction.kind is Kind.STK and status in COMPLETED and switches.health_rule:
        account_state.health.add_result(now, succeeded=status is Status.SUCCESS)
    # Last, because the payload shows everything set above.
    if status in COMPLETED or (status is Status.REVERSED and switches.callback_on_reversed):
        _callbacks.queue(state, transaction, ending, now)
    state.mark_changed(transaction)


def provider_ids() -> tuple[str, str]:
    """Return a provider request id and a checkout id."""
    return f"mr-{uuid4().hex[:16]}", f"co-{uuid4().hex[:16]}"


def _move_money(state: ServiceState, transaction: Transaction, status: Status, now: datetime) -> None:
    account = state.accounts[transaction.tenant_id].account
    match transaction.kind, status:
        case Kind.STK, Status.SUCCESS:
            state.record_movement(MovementKind.stk, transaction, transaction.amount, now)
        case Kind.WALLET_TOPUP, Status.SUCCESS:
            account.service_balance += transaction.amount
            account.service_updated_at = now
            state.record_movement(MovementKind.top_up, transaction, transaction.amount, now)
        case _, Status.REVERSED:
            account.b2c_balance += transaction.amount
            state.record_movement(MovementKind.reversal, transaction, transaction.amount, now)
        case _, Status.FAILED | Status.CANCELLED | Status.EXPIRED if account.switches.fee_refunded_on_failure:
            account.service_balance += transaction.fee
            account.service_updated_at = now
            state.record_movement(MovementKind.fee_refund, transaction, transaction.fee, now)
        case _:
            pass


def _open_prompt(state: ServiceState, transaction_id: str, *, may_be_late: bool = False) -> Transaction:
    transaction = state.transactions.get(transaction_id)
    if transaction is None:
        raise Refusal("TRANSACTION_NOT_FOUND", "No such transaction")
    takes_pin = {Status.PENDING}
    if may_be_late and state.accounts[transaction.tenant_id].account.switches.late_pin:
        takes_pin |= {Status.CANCELLED, Status.EXPIRED, Status.FAILED}
    if transaction.kind is Kind.B2C or transaction.status not in takes_pin:
        raise Refusal("NOT_PENDING", "No PIN prompt is open for this transaction")
    return transaction
