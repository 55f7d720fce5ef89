"""Answers that do not fit their request: what some faults put in the place of a true one, after the commit."""

import json
from typing import Any
from uuid import uuid4

from momopay.sandbox._faults import Fault
from momopay.sandbox._state import ServiceState
from momopay.sandbox._transactions import Transaction
from momopay.sandbox._values import json_number

Record = dict[str, Any]
_SOMEBODY_ELSE = "254799999999"


def name_another(fault: Fault, body: bytes, state: ServiceState) -> bytes:
    """Return a success with one field of its transaction changed; a body that shows no transaction stays as it is."""
    envelope = json.loads(body)
    record: Record = envelope.get("data") or {}
    transaction = state.transactions.get(str(record.get("transactionId", record.get("transaction_id"))))
    if transaction is None:
        return body
    change: Record
    match fault:
        case Fault.other_transaction:
            change = dict.fromkeys(("transactionId", "transaction_id"), _another_id(transaction, state))
        case Fault.other_amount:
            change = {"amount": json_number(transaction.amount + 67)}
        case Fault.other_phone:
            change = dict.fromkeys(("phone", "phone_number"), _SOMEBODY_ELSE)
        case _:
            names = ("reference", "accountReference", "external_reference")
            change = dict.fromkeys(names, f"{transaction.reference}-2")
    envelope["data"] = {name: change.get(name, shown) for name, shown in record.items()}
    return json.dumps(envelope, separators=(",", ":")).encode()


def _another_id(transaction: Transaction, state: ServiceState) -> str:
    # A real one where there is one: an id that nobody has would be noticed at the first read of it.
    history = state.accounts[transaction.tenant_id].history
    return next((each.id for each in reversed(history) if each is not transaction), str(uuid4()))
