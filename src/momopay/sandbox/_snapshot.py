"""The state as the page and the control routes show it, as plain JSON."""

from dataclasses import asdict
from itertools import islice
from typing import Any

from momopay.sandbox._accounts import Account
from momopay.sandbox._clock import iso
from momopay.sandbox._deliveries import CallbackRecord
from momopay.sandbox._engine import Engine
from momopay.sandbox._outcomes import outcome_of
from momopay.sandbox._requests import ReceivedRequest
from momopay.sandbox._transactions import Kind, Movement, Status, Transaction
from momopay.sandbox._values import json_number

Json = dict[str, Any]
# The page shows no more, and every change sends it the whole snapshot again.
_NEWEST = 100


def account_json(account: Account) -> Json:
    """Return an account with everything that may be changed."""
    data = account.model_dump(mode="json")
    # pydantic writes a Decimal as text, the service as a number.
    for name in ("b2c_balance", "service_balance", "fee"):
        data[name] = json_number(getattr(account, name))
    return data


def transaction_json(transaction: Transaction) -> Json:
    """Return a transaction as the page shows it, with what the customer's prompt says."""
    return {
        "id": transaction.id,
        "tenant_id": transaction.tenant_id,
        "type": transaction.kind,
        "status": transaction.status,
        "amount": json_number(transaction.amount),
        "fee": json_number(transaction.fee),
        "phone": transaction.phone,
        "reference": transaction.reference,
        "description": transaction.description,
        "shortcode": transaction.shortcode,
        "transaction_type": transaction.transaction_type,
        "outcome": outcome_of(transaction.phone),
        # Decided here and not on the page, which would need the rules for it.
        "prompt": transaction.kind is not Kind.B2C and transaction.status is Status.PENDING,
        "result_code": transaction.result_code,
        "result_desc": transaction.result_desc,
        "receipt": transaction.receipt,
        "created_at": iso(transaction.created_at),
        "updated_at": iso(transaction.updated_at),
        "next_step_at": iso(transaction.due) if transaction.due else None,
    }


def callback_json(record: CallbackRecord) -> Json:
    """Return one callback delivery."""
    return {**asdict(record), "at": iso(record.at), "acknowledged": record.acknowledged}


def movement_json(movement: Movement) -> Json:
    """Return one movement of money."""
    return {**asdict(movement), "amount": json_number(movement.amount), "at": iso(movement.at)}


def request_json(request: ReceivedRequest) -> Json:
    """Return one request, its body as text."""
    return {**asdict(request), "body": request.body.decode("utf-8", "replace"), "at": iso(request.at)}


def snapshot(engine: Engine) -> Json:
    """Return the state as the page shows it: all accounts, and the newest transactions and deliveries."""
    state = engine.state
    return {
        "now": iso(engine.clock.now()),
        "speed": engine.clock.speed,
        "accounts": [account_json(account_state.account) for account_state in state.accounts.values()],
        "transactions": [
            transaction_json(transaction) for transaction in islice(reversed(state.transactions.values()), _NEWEST)
        ],
        "callbacks": [callback_json(record) for record in state.callbacks[: -_NEWEST - 1 : -1]],
        "callbacks_total": len(state.callbacks),
    }
