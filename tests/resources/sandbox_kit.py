"""One call of each kind, and what the sandbox counted of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from momopay import PollSchedule
from momopay.sandbox import Fault, Sandbox

AT_ONCE = PollSchedule(first=0.0, every=0.05, limit=5.0)
LOCAL_PHONE = "0712345678"
AMBIGUOUS = [
    (Fault.reset_after_commit, 1),
    (Fault.hang_after_commit, 1),
    (Fault.error_after_commit, 1),
    (Fault.truncated, 1),
    (Fault.error_before_commit, 0),
    (Fault.html_502, 0),
    (Fault.refuse, 0),
    (Fault.reset_before_read, 0),
]
"""Faults after which a payment's outcome is unknown, and how many payments the service makes in spite of each."""


def prompt(client: Any, **fields: Any) -> Any:
    return client.stk.initiate(**{"amount": 100, "phone": LOCAL_PHONE, "account_reference": "INV-42", **fields})


def pay(client: Any, **fields: Any) -> Any:
    return client.payouts.initiate(
        **{"amount": Decimal("250.50"), "phone": LOCAL_PHONE, "reference": "PAY-7", **fields}
    )


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=500, phone=LOCAL_PHONE)


def paid(sandbox: Sandbox, kind: str) -> int:
    return [str(movement.kind) for movement in sandbox.ledger].count(kind)


def pushed(sandbox: Sandbox, path: str) -> int:
    return [request.path for request in sandbox.requests].count(path)
