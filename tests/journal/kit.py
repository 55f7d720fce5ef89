"""What the tests of the journal are made of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from momopay import Callback, Journal, JournalEntry, JournalState, Transaction, parse_callback
from momopay.journal.journal import payments_of

PHONE = "254712345678"
TESTS = Path(__file__).parents[1]


def begin(journal: Journal, lease: Any, reference: str = "r", *, amount: int = 10, seconds: float = 600) -> Any:
    return payments_of(journal).begin(
        lease, reference=reference, amount=Decimal(amount), phone=PHONE, body_hash="hash", seconds=seconds
    )


def put(journal: Journal, reference: str, state: JournalState, **known: str) -> JournalEntry:
    """Bring a new reference into a state."""
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease, reference) is None
        payments_of(journal).record_outcome(lease, reference, state, **known)
    return found(journal, reference)


def found(journal: Journal, reference: str = "r") -> JournalEntry:
    entry = journal.get(reference)
    assert entry is not None
    return entry


def payout(reference: str = "r", **fields: Any) -> Transaction:
    return Transaction.model_validate(
        {
            "transactionId": "the-id",
            "type": "B2C",
            "status": "SUCCESS",
            "amount": 10,
            "phone": PHONE,
            "accountReference": reference,
            "createdAt": "2026-11-20T10:00:00Z",
            "updatedAt": "2026-11-20T10:00:00Z",
            **fields,
        }
    )


def callback_body(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Any:
    return {
        "event": "transaction.updated",
        "event_type": f"transaction.{status.lower()}",
        "transaction": {
            "id": identity,
            "type": "B2C",
            "status": status,
            "amount": 10,
            "phone_number": PHONE,
            "external_reference": reference,
            "created_at": "2026-11-20T10:00:00Z",
            "updated_at": "2026-11-20T10:00:00Z",
            **fields,
        },
    }


def callback(reference: str = "r", identity: str = "the-id", status: str = "SUCCESS", **fields: Any) -> Callback:
    return parse_callback(callback_body(reference, identity, status, **fields))


class Sender:
    """Another process that holds something in the journal."""

    def __init__(self, url: str, kind: str, reference: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "journal.sender", url, kind, reference],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("!")
        self.process.stdin.flush()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Let it end well."""
        self.process.communicate()


@contextmanager
def sender(url: str, kind: str = "payout", reference: str = "r") -> Generator[Sender]:
    """Start a process that holds a reference, or a callback, in the journal."""
    started = Sender(url, kind, reference)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill()
        for pipe in (started.process.stdin, started.process.stdout):
            assert pipe is not None
            pipe.close()
