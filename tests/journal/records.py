"""What the service says of a payment: its records and its callbacks."""

from __future__ import annotations

from typing import Any

from journal.constants import ENDED_AT, PHONE
from momopay import Callback, Transaction, TransactionStatus, parse_callback
from momopay.journal.evidence import Evidence


def report(transaction_id: str, status: str | None = None, **fields: Any) -> Evidence:
    """Return what the service's record says of a transaction."""
    known = None if status is None else TransactionStatus(status)
    if known is not None and known.is_terminal:
        fields = {"ended_at": ENDED_AT, **fields}
    return Evidence(transaction_id, known, **fields)


def payout(reference: str | None = "r", **fields: Any) -> Transaction:
    """Make the service's record of a payout."""
    said = {"transactionId": "the-id", "type": "B2C", "status": "SUCCESS", "amount": 10, "phone": PHONE}
    times = dict.fromkeys(("createdAt", "updatedAt"), "2026-11-20T10:00:00Z")
    return Transaction.model_validate({**said, "accountReference": reference, **times, **fields})


def callback_body(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Any:
    """Make the body of a payout's callback."""
    said = {"id": identity, "type": "B2C", "status": status, "amount": 10, "phone_number": PHONE}
    times = dict.fromkeys(("created_at", "updated_at"), "2026-11-20T10:00:00Z")
    transaction = {**said, "external_reference": reference, **times, **fields}
    return {"event": "transaction.updated", "event_type": f"transaction.{status.lower()}", "transaction": transaction}


def callback(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Callback:
    """Make a payout's callback."""
    return parse_callback(callback_body(reference, identity, status, **fields))
