"""How transactions move from status to status, by plan or by hand, and the callbacks of those that end.

Every change of a status goes through `enter`, which updates the account's money, the health rule and the callbacks with
it. `_engine` POSTs the callbacks.
"""

import secrets
from datetime import datetime, timedelta
from uuid import uuid4

from momopay.sandbox._outcomes import EXPIRED_AFTER, RESULT_DESCRIPTIONS, Outcome, confirmation, outcome_for
from momopay.sandbox._records import (
    COMPLETED,
    HELD_AT_MOST,
    LATE_AFTER,
    Delivery,
    Kind,
    MovementKind,
    PostResult,
    Status,
    Step,
    Transaction,
)
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._serializers import callback_payload
from momopay.sandbox._state import ServiceState

_RECEIPT_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without I, O, 0 and 1, which people misread


def take_step(state: ServiceState, transaction: Transaction, due: datetime) -> None:
    step = transaction.plan.pop(0)
    enter(state, transaction, step.status, step.code, due)
    state.schedule(transaction, due)


def enter_pin(state: ServiceState, transaction_id: str, now: datetime) -> None:
    """Let the customer enter the PIN now. The provider confirms it later."""
    transaction = _open_prompt(state, transaction_id, may_be_late=True)
    # The new plan replaces that of the phone number: what the customer does always counts.
    transaction.plan = [confirmation(transaction.kind)]
    enter(state, transaction, Status.PROCESSING, None, now)
    state.schedule(transaction, now)


def cancel(state: ServiceState, transaction_id: str, now: datetime) -> None:
    """Let the customer cancel the prompt now."""
    transaction = _open_prompt(state, transaction_id)
    transaction.plan = []
    enter(state, transaction, Status.CANCELLED, "1032", now)
    state.schedule(transaction, now)


def ignore(state: ServiceState, transaction_id: str, now: datetime) -> None:
    """Let the customer leave the prompt alone, so that it expires."""
    transaction = _open_prompt(state, transaction_id)
    transaction.plan = [Step(EXPIRED_AFTER, Status.EXPIRED, "1037")]
    state.schedule(transaction, now)


def enter(state: ServiceState, transaction: Transaction, status: Status, code: str | None, now: datetime) -> None:
    """Set a status, with its effects on money, on the health rule and on callbacks."""
    account_state = state.accounts[transaction.tenant_id]
    switches = account_state.account.switches
    ending = status
    if status is Status.CANCELLED:
        status = Status(switches.cancel_ends_as)
    elif status is Status.EXPIRED:
        status = Status(switches.expired_reads_as)
    transaction.status, transaction.updated_at = status, now
    if code is not None:
        transaction.result_code, transaction.result_desc = code, RESULT_DESCRIPTIONS[code]
    # A payout gets its provider ids only once the provider accepts it.
    if transaction.provider_request_id is None:
        transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    if status is Status.SUCCESS:
        transaction.receipt = "".join(secrets.choice(_RECEIPT_LETTERS) for _ in range(10))
    _move_money(state, transaction, status, now)
    if transaction.kind is Kind.STK and status in COMPLETED and switches.health_rule:
        account_state.health.add_result(now, succeeded=status is Status.SUCCESS)
    # Last, because the payload shows everything that is set above.
    on_request = {Status.REVERSED: switches.callback_on_reversed, Status.PROCESSING: switches.callback_on_processing}
    if status in COMPLETED or on_request.get(status):
        _queue(state, transaction, ending, now)
    state.version += 1


def provider_ids() -> tuple[str, str]:
    return f"mr-{uuid4().hex[:16]}", f"co-{uuid4().hex[:16]}"


def _move_money(state: ServiceState, transaction: Transaction, status: Status, now: datetime) -> None:
    refunds = state.accounts[transaction.tenant_id].account.switches.fee_refunded_on_failure
    match transaction.kind, status:
        case Kind.STK, Status.SUCCESS:
            state.move(MovementKind.stk, transaction, transaction.amount, now)
        case Kind.WALLET_TOPUP | Kind.WALLET_TOPUP_B2C, Status.SUCCESS:
            state.move(MovementKind.top_up, transaction, transaction.amount, now)
        case _, Status.REVERSED:
            state.move(MovementKind.reversal, transaction, transaction.amount, now)
        case _, Status.FAILED | Status.CANCELLED | Status.EXPIRED if refunds:
            state.move(MovementKind.fee_refund, transaction, transaction.fee, now)
        case _:
            pass


def _open_prompt(state: ServiceState, transaction_id: str, *, may_be_late: bool = False) -> Transaction:
    transaction = state.find(transaction_id)
    takes_pin = {Status.PENDING}
    if may_be_late and state.accounts[transaction.tenant_id].account.switches.late_pin:
        takes_pin |= {Status.CANCELLED, Status.EXPIRED, Status.FAILED}
    if transaction.kind is Kind.B2C or transaction.unshown or transaction.status not in takes_pin:
        raise Refusal("NOT_PENDING")
    return transaction


def _queue(state: ServiceState, transaction: Transaction, ending: Status, now: datetime) -> None:
    """Queue the callback of an ending, which may be more precise than the status that reads show."""
    if transaction.callback_url is None:
        return
    # The switches may make a cancelled prompt FAILED in its callback too, but an expired one only in reads.
    status = transaction.status if ending is Status.CANCELLED else ending
    # No event type is specified for a reversal. The payout was FAILED before.
    others = {Status.REVERSED: "transaction.failed", Status.PROCESSING: "transaction.updated"}
    event_type = others.get(ending, f"transaction.{ending.lower()}")
    mode, switches = transaction.callback_mode, state.accounts[transaction.tenant_id].account.switches
    payload = callback_payload(transaction, event_type, status, switches)
    delivery = Delivery(
        transaction.tenant_id, transaction.id, transaction.callback_url, payload, posts_left=switches.callback_posts
    )
    if mode == "lost" or outcome_for(transaction) is Outcome.callback_lost:
        state.add_callback(delivery.record(PostResult(error="lost on purpose: never sent"), now))
        return
    delivery.duplicates_left, delivery.held = int(mode == "duplicate"), mode == "reordered"
    state.deliveries[delivery.id] = delivery
    _schedule(state, delivery, now + timedelta(seconds={"late": LATE_AFTER, "reordered": HELD_AT_MOST}.get(mode, 0.0)))


def report(state: ServiceState, delivery: Delivery, result: PostResult, at: datetime, now: datetime) -> None:
    """Record the result of a POST made at `at`, and schedule the next attempt if there is one."""
    # After a reset during the POST, nobody expects its result any more.
    if state.deliveries.get(delivery.id) is not delivery:
        return
    state.add_callback(delivery.record(result, at))
    due = delivery.next_attempt(result, at)
    if due is None:
        del state.deliveries[delivery.id]
    else:
        _schedule(state, delivery, due)
    # A held callback follows the account's next one; HELD_AT_MOST is for an account that has no other.
    for other in state.deliveries.values():
        if other.held and other is not delivery and other.tenant_id == delivery.tenant_id:
            other.held = False
            _schedule(state, other, now)


def _schedule(state: ServiceState, delivery: Delivery, due: datetime) -> None:
    delivery.due = due
    state.version += 1
    state.put_on_agenda(delivery)
