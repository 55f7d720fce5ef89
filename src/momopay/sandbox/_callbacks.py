"""Callbacks of transactions that ended: queued, recorded, retried. `_engine` has them POSTed."""

from datetime import datetime, timedelta
from uuid import uuid4

from momopay.sandbox._outcomes import Outcome, outcome_for
from momopay.sandbox._records import (
    HELD_AT_MOST,
    LATE_AFTER,
    CallbackRecord,
    Delivery,
    PostResult,
    Status,
    Transaction,
    next_attempt,
)
from momopay.sandbox._serializers import callback_payload
from momopay.sandbox._state import ServiceState

_EVENT_TYPES = {
    Status.SUCCESS: "transaction.success",
    Status.FAILED: "transaction.failed",
    # No event type is specified for a reversal; failed is what the payout has been.
    Status.REVERSED: "transaction.failed",
    Status.CANCELLED: "transaction.cancelled",
    Status.EXPIRED: "transaction.expired",
}


def queue(state: ServiceState, transaction: Transaction, ending: Status, now: datetime) -> None:
    """Queue the callback of an ending; `ending` may say more than the status that reads show."""
    if transaction.callback_url is None:
        return
    # Under the switches, a cancelled prompt may read as FAILED in its callback too, an expired one only elsewhere.
    status = transaction.status if ending is Status.CANCELLED else ending
    payload = callback_payload(transaction, event_type=_EVENT_TYPES[ending], status=status)
    mode = transaction.callback_mode
    if mode == "lost" or outcome_for(transaction) is Outcome.callback_lost:
        record = CallbackRecord(
            transaction.id,
            transaction.tenant_id,
            transaction.callback_url,
            payload,
            attempt=0,
            at=now,
            error="lost on purpose: never sent",
        )
        state.add_callback(record)
        return
    due = now + timedelta(seconds={"late": LATE_AFTER, "reordered": HELD_AT_MOST}.get(mode, 0.0))
    delivery = Delivery(
        id=str(uuid4()),
        tenant_id=transaction.tenant_id,
        transaction_id=transaction.id,
        url=transaction.callback_url,
        payload=payload,
        posts_left=state.accounts[transaction.tenant_id].account.switches.callback_posts,
        due=due,
        duplicates_left=1 if mode == "duplicate" else 0,
        held=mode == "reordered",
    )
    state.deliveries[delivery.id] = delivery
    _schedule(state, delivery, due)


def take_due(state: ServiceState, delivery_id: str, due: datetime) -> Delivery | None:
    """Return the delivery to POST now, or None when the scheduler's entry is out of date."""
    delivery = state.deliveries.get(delivery_id)
    if delivery is None or delivery.due != due:
        return None
    delivery.due = None
    return delivery


def send_again(state: ServiceState, record: CallbackRecord) -> Delivery:
    """Return a delivery of the same payload, to POST now: once, without retries."""
    delivery = Delivery(
        id=str(uuid4()),
        tenant_id=record.tenant_id,
        transaction_id=record.transaction_id,
        url=record.url,
        payload=dict(record.payload),
        posts_left=1,
        due=None,
    )
    state.deliveries[delivery.id] = delivery
    return delivery


def report(state: ServiceState, delivery: Delivery, result: PostResult, at: datetime, now: datetime) -> None:
    """Record the result of a POST made at `at`, and schedule the next attempt if there is one."""
    # A reset may have come while the POST was under way; then nobody expects its result any more.
    if state.deliveries.get(delivery.id) is not delivery:
        return
    state.add_callback(
        CallbackRecord(
            delivery.transaction_id,
            delivery.tenant_id,
            delivery.url,
            delivery.payload,
            delivery.attempt,
            at,
            result.status,
            result.answer,
            result.error,
        )
    )
    due = next_attempt(delivery, result, at)
    if due is None:
        del state.deliveries[delivery.id]
    else:
        _schedule(state, delivery, due)
    # Reordering needs another callback to come first; the 60 seconds are for an account that has none.
    for other in state.deliveries.values():
        if other.held and other is not delivery and other.tenant_id == delivery.tenant_id:
            other.held = False
            _schedule(state, other, now)


def _schedule(state: ServiceState, delivery: Delivery, due: datetime) -> None:
    delivery.due = due
    state.version += 1
    state.scheduler.add(due, "delivery", delivery.id)
