"""The state as the page and the control routes show it, as plain JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from momopay.sandbox._accounts import Account
from momopay.sandbox._clock import iso
from momopay.sandbox._deliveries import CallbackRecord
from momopay.sandbox._engine import Engine
from momopay.sandbox._faults import PlannedFault
from momopay.sandbox._outcome_plan import PlannedOutcome
from momopay.sandbox._outcomes import outcome_for
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._requests import ReceivedRequest
from momopay.sandbox._state import ServiceState
from momopay.sandbox._transactions import Movement, Transaction
from momopay.sandbox._values import json_number

Json = dict[str, Any]
# Of each account. The page shows no more, and every change sends it the whole snapshot again.
_NEWEST = 100
_REQUESTS_LOOKED_AT = 5_000
_BODY_SHOWN = 2_000


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
        "channel_id": transaction.channel_id,
        "shortcode": transaction.shortcode,
        "transaction_type": transaction.transaction_type,
        "callback_url": transaction.callback_url,
        "outcome": outcome_for(transaction),
        # Decided here and not on the page, which would need the rules for it.
        "prompt": transaction.is_prompt,
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


def planned_json(planned: PlannedFault | PlannedOutcome) -> Json:
    """Return a fault or an outcome that waits."""
    if isinstance(planned, PlannedOutcome):
        return asdict(planned)
    names = ("id", "method", "path", "fault", "times", "content_length", "status")
    return {name: getattr(planned, name) for name in names}


def snapshot(engine: Engine) -> Json:
    """Return the state as the page shows it: all accounts, their newest records, and every open prompt."""
    state = engine.state
    accounts = state.accounts.values()
    return {
        "now": iso(engine.clock.now()),
        "speed": engine.clock.speed,
        "accounts": [
            {**account_json(each.account), "phones": list(islice(reversed(each.phones), _NEWEST))} for each in accounts
        ],
        "transactions": [transaction_json(transaction) for transaction in _newest_transactions(state)],
        "callbacks": [callback_json(record) for record in _newest_callbacks(state)],
        "callbacks_total": len(state.callbacks),
        "requests": list(_newest_requests(engine)),
        "requests_total": engine.requests.total,
        "faults": [planned_json(planned) for planned in engine.faults.waiting],
        "outcomes": [planned_json(planned) for planned in state.outcomes.waiting],
    }


def version(engine: Engine) -> tuple[object, ...]:
    """Return a value that differs whenever a snapshot would."""
    faults = [(each.id, each.times) for each in engine.faults.waiting]
    outcomes = [(each.id, each.times) for each in engine.state.outcomes.waiting]
    return engine.state.version, engine.requests.version, faults, outcomes


def find_transactions(state: ServiceState, query: Mapping[str, str]) -> list[Json]:
    """Return the newest transactions that have the `phone`, the `tenant_id` and, somewhere, the text `q`."""
    wanted = {name: query[name] for name in ("phone", "tenant_id") if query.get(name)}
    text = query.get("q", "").casefold().strip()
    found: Iterator[Transaction] = (
        transaction
        for transaction in reversed(state.transactions.values())
        if all(getattr(transaction, name) == value for name, value in wanted.items()) and text in _searched(transaction)
    )
    return [transaction_json(transaction) for transaction in islice(found, _NEWEST)]


def transaction_detail(engine: Engine, transaction_id: str) -> Json:
    """Return a transaction with its callbacks, newest first, and its movements of money.

    Raises:
        Refusal: TRANSACTION_NOT_FOUND.
    """
    state = engine.state
    transaction = state.transactions.get(transaction_id)
    if transaction is None:
        raise Refusal("TRANSACTION_NOT_FOUND", "No such transaction")
    callbacks = state.accounts[transaction.tenant_id].callbacks
    waiting = [each for each in state.deliveries.values() if each.transaction_id == transaction_id and each.due]
    return {
        **transaction_json(transaction),
        "callbacks": [
            callback_json(record) for record in reversed(callbacks) if record.transaction_id == transaction_id
        ],
        "callback_due_at": min((iso(each.due) for each in waiting if each.due), default=None),
        "ledger": [movement_json(each) for each in state.ledger if each.transaction_id == transaction_id],
    }


def _searched(transaction: Transaction) -> str:
    shown = (transaction.id, transaction.phone, f"0{transaction.phone[3:]}", transaction.reference)
    more = (transaction.description, transaction.receipt or "", transaction.status, transaction.kind)
    return "\n".join((*shown, *more, str(transaction.amount))).casefold()


def _newest_transactions(state: ServiceState) -> list[Transaction]:
    """Return each account's newest, and every open prompt however old: somebody has to be able to tap it."""
    shown: dict[str, Transaction] = {}
    for account_state in state.accounts.values():
        shown |= account_state.prompts
        shown |= {transaction.id: transaction for transaction in account_state.history[-_NEWEST:]}
    return sorted(shown.values(), key=lambda transaction: (transaction.created_at, transaction.number), reverse=True)


def _newest_callbacks(state: ServiceState) -> list[CallbackRecord]:
    shown = [record for each in state.accounts.values() for record in each.callbacks[: -_NEWEST - 1 : -1]]
    return sorted(shown, key=lambda record: record.at, reverse=True)


def _newest_requests(engine: Engine) -> Iterator[Json]:
    shown = Counter[str | None]()
    for number, request in engine.requests.newest(_REQUESTS_LOOKED_AT):
        shown[request.tenant_id] += 1
        if shown[request.tenant_id] <= _NEWEST:
            whole = request_json(request)
            yield {**whole, "body": whole["body"][:_BODY_SHOWN], "number": number}
