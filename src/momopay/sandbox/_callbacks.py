"""Callbacks of transactions that ended: queued, reported on, retried. Somebody else does the POSTing."""

from datetime import datetime, timedelta
from uuid import uuid4

from momopay.sandbox._deliveries import (
    HELD_AT_MOST,
    LATE_AFTER,
    CallbackRecord,
    Delivery,
    Posted,
    next_attempt,
)
from momopay.sandbox._outcomes import Outcome, Status, outcome_of
from momopay.sandbox._serializers import callback_payload
from momopay.sandbox._state import World
from momopay.sandbox._transactions import Transaction

_EVENT_TYPES = {
    Status.SUCCESS: "transaction.success",
    Status.FAILED: "transaction.failed",
    Status.REVERSED: "transaction.failed",
    Status.CANCELLED: "transaction.cancelled",
    Status.EXPIRED: "transaction.expired",
}


def queue(world: World, transaction: Transaction, ending: Status, now: datetime) -> None:
    """Queue the callback of an ending; `ending` may say more than the status that reads show."""
    if transaction.callback_url is None:
        return
    status = transaction.status if ending is Status.CANCELLED else ending
    payload = callback_payload(transaction, event_type=_EVENT_TYPES[ending], status=status)
    mode = transaction.callback_mode
    if mode == "lost" or outcome_of(transaction.phone) is Outcome.callback_lost:
        record = CallbackRecord(
            transaction.id,
            transaction.tenant_id,
            transaction.callback_url,
            payload,
            attempt=0,
            at=now,
            error="lost on purpose: never sent",
        )
        world.callbacks.append(record)
        return
    due = now + timedelta(seconds={"late": LATE_AFTER, "reordered": HELD_AT_MOST}.get(mode, 0.0))
    delivery = Delivery(
        id=str(uuid4()),
        tenant_id=transaction.tenant_id,
        transaction_id=transaction.id,
        url=transaction.callback_url,
        payload=payload,
        posts_left=world.books[transaction.tenant_id].account.switches.callback_posts,
        due=due,
        duplicates_left=1 if mode == "duplicate" else 0,
        held=mode == "reordered",
    )
    world.deliveries[delivery.id] = delivery
    _schedule(world, delivery, due)


def take(world: World, delivery_id: str, due: datetime) -> Delivery | None:
    """The delivery to POST now, or None when the agenda's entry is out of date."""
    delivery = world.deliveries.get(delivery_id)
    if delivery is None or delivery.due != due:
        return None
    delivery.due = None
    return delivery


def report(world: World, delivery: Delivery, posted: Posted, at: datetime, now: datetime) -> None:
    """Record what came of a POST made at `at`, and plan the next attempt if there is one."""
    record = CallbackRecord(
        delivery.transaction_id,
        delivery.tenant_id,
        delivery.url,
        delivery.payload,
        delivery.attempt,
        at,
        posted.status,
        posted.answer,
        posted.error,
    )
    if world.deliveries.get(delivery.id) is not delivery:  # a reset came in between
        return
    world.callbacks.append(record)
    world.version += 1
    due = next_attempt(delivery, posted, at)
    if due is None:
        del world.deliveries[delivery.id]
    else:
        _schedule(world, delivery, due)
    for other in world.deliveries.values():
        if other.held and other is not delivery and other.tenant_id == delivery.tenant_id:
            other.held = False
            _schedule(world, other, now)


def _schedule(world: World, delivery: Delivery, due: datetime) -> None:
    delivery.due = due
    world.version += 1
    world.agenda.add(due, "delivery", delivery.id)
