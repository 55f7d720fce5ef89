"""Callbacks of transactions that ended: queued, recorded, retried. `_engine` has them POSTed."""

from datetime import datetime, timedelta

from momopay.sandbox._outcomes import Outcome, outcome_for
from momopay.sandbox._records import (
    HELD_AT_MOST,
    LATE_AFTER,
    CallbackRecord,
    Delivery,
    PostResult,
    Status,
    Transaction,
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
    mode, switches = transaction.callback_mode, state.accounts[transaction.tenant_id].account.switches
    delivery = Delivery(
        transaction.tenant_id, transaction.id, transaction.callback_url, payload, posts_left=switches.callback_posts
    )
    if mode == "lost" or outcome_for(transaction) is Outcome.callback_lost:
        state.add_callback(delivery.record(PostResult(error="lost on purpose: never sent"), now))
        return
    delivery.duplicates_left, delivery.held = int(mode == "duplicate"), mode == "reordered"
    state.deliveries[delivery.id] = delivery
    _schedule(state, delivery, now + timedelta(seconds={"late": LATE_AFTER, "reordered": HELD_AT_MOST}.get(mode, 0.0)))


def take_due(state: ServiceState, delivery_id: str, due: datetime) -> Delivery | None:
    """Return the delivery to POST now, or None when the scheduler's entry is out of date."""
    delivery = state.deliveries.get(delivery_id)
    if delivery is None or delivery.due != due:
        return None
    delivery.due = None
    return delivery


def send_again(state: ServiceState, record: CallbackRecord) -> Delivery:
    """Return a delivery of the same payload, to POST now: once, without retries."""
    delivery = Delivery(record.tenant_id, record.transaction_id, record.url, dict(record.payload), posts_left=1)
    state.deliveries[delivery.id] = delivery
    return delivery


def report(state: ServiceState, delivery: Delivery, result: PostResult, at: datetime, now: datetime) -> None:
    """Record the result of a POST made at `at`, and schedule the next attempt if there is one."""
    # A reset may have come while the POST was under way; then nobody expects its result any more.
    if state.deliveries.get(delivery.id) is not delivery:
        return
    state.add_callback(delivery.record(result, at))
    due = delivery.next_attempt(result, at)
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
