"""How a transaction moves from state to state, by plan or by hand, and what each move entails."""

import secrets
from datetime import datetime
from uuid import uuid4

from momopay.sandbox import _callbacks
from momopay.sandbox._outcomes import DESCRIPTIONS, EXPIRED_AFTER, Kind, Status, Step, confirmation
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import World
from momopay.sandbox._transactions import COMPLETED, MovementKind, Transaction

_RECEIPT_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


def step(world: World, transaction_id: str, due: datetime) -> None:
    """Take the next planned step, if the agenda's entry is still right."""
    transaction = world.transactions.get(transaction_id)
    if transaction is None or transaction.due != due:
        return
    planned = transaction.plan.pop(0)
    move(world, transaction, planned.status, planned.code, due)
    world.schedule(transaction, due)


def enter_pin(world: World, transaction_id: str, now: datetime) -> Transaction:
    """The customer enters the PIN now; the provider will confirm."""
    transaction = _waiting(world, transaction_id)
    transaction.plan = [confirmation(transaction.kind)]
    move(world, transaction, Status.PROCESSING, None, now)
    world.schedule(transaction, now)
    return transaction


def cancel(world: World, transaction_id: str, now: datetime) -> Transaction:
    """The customer cancels the prompt now."""
    transaction = _waiting(world, transaction_id)
    transaction.plan = []
    move(world, transaction, Status.CANCELLED, "1032", now)
    world.schedule(transaction, now)
    return transaction


def ignore(world: World, transaction_id: str, now: datetime) -> Transaction:
    """The customer leaves the prompt alone: it expires."""
    transaction = _waiting(world, transaction_id)
    transaction.plan = [Step(EXPIRED_AFTER, Status.EXPIRED, "1037")]
    world.schedule(transaction, now)
    return transaction


def move(world: World, transaction: Transaction, status: Status, code: str | None, now: datetime) -> None:
    """Enter a state, with its effects on money, on the health rule and on callbacks."""
    book = world.books[transaction.tenant_id]
    switches = book.account.switches
    ending = status
    if status is Status.CANCELLED:
        status = Status(switches.cancel_ends_as)
    elif status is Status.EXPIRED:
        status = Status(switches.expired_reads_as)
    book.counts[transaction.kind, transaction.status] -= 1
    book.counts[transaction.kind, status] += 1
    transaction.status, transaction.updated_at = status, now
    if code is not None:
        transaction.result_code, transaction.result_desc = code, DESCRIPTIONS[code]
    if transaction.provider_request_id is None:
        transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    if status is Status.SUCCESS:
        transaction.receipt = "".join(secrets.choice(_RECEIPT_LETTERS) for _ in range(10))
    _move_money(world, transaction, status, now)
    if transaction.kind is Kind.STK and status in COMPLETED and switches.health_rule:
        book.health.completed(now, succeeded=status is Status.SUCCESS)
    if status in COMPLETED or (status is Status.REVERSED and switches.callback_on_reversed):
        _callbacks.queue(world, transaction, ending, now)
    world.touch(transaction)


def provider_ids() -> tuple[str, str]:
    """A provider request id and a checkout id."""
    return f"mr-{uuid4().hex[:16]}", f"co-{uuid4().hex[:16]}"


def _move_money(world: World, transaction: Transaction, status: Status, now: datetime) -> None:
    account = world.books[transaction.tenant_id].account
    match transaction.kind, status:
        case Kind.STK, Status.SUCCESS:
            world.move_money(MovementKind.stk, transaction, transaction.amount, now)
        case Kind.WALLET_TOPUP, Status.SUCCESS:
            account.service_balance += transaction.amount
            account.service_updated_at = now
            world.move_money(MovementKind.top_up, transaction, transaction.amount, now)
        case _, Status.REVERSED:
            account.b2c_balance += transaction.amount
            world.move_money(MovementKind.reversal, transaction, transaction.amount, now)
        case _, Status.FAILED | Status.CANCELLED | Status.EXPIRED if account.switches.fee_refunded_on_failure:
            account.service_balance += transaction.fee
            account.service_updated_at = now
            world.move_money(MovementKind.fee_refund, transaction, transaction.fee, now)
        case _:
            pass


def _waiting(world: World, transaction_id: str) -> Transaction:
    transaction = world.transactions.get(transaction_id)
    if transaction is None:
        raise Refusal("TRANSACTION_NOT_FOUND", "No such transaction")
    if transaction.kind is Kind.B2C or transaction.status is not Status.PENDING:
        raise Refusal("NOT_PENDING", "No PIN prompt is open for this transaction")
    return transaction
