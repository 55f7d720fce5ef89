"""The tasks of examples/worker.py, called in this process: what is tried again, and what is not."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from momopay import Client, InsufficientFundsError, RequestValidationError
from momopay.sandbox import Account, Fault, Sandbox

EXAMPLES = Path(__file__).parents[1] / "examples"
ORDER = ("SAL-1", "50.25", "0712345678")


@pytest.fixture
def worker(sandbox: Sandbox, account: Account, key: str, tmp_path: Path, monkeypatch: Any) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    worker: Any = __import__("worker")
    account.rate_limit = None
    options: dict[str, Any] = {"budget": None, "max_attempts": 1, "journal": f"sqlite:///{tmp_path / 'worker.db'}"}
    with Client(key, base_url=sandbox.base_url, **options) as worker.account.client:
        yield worker


def paid(sandbox: Sandbox) -> Counter[str]:
    return Counter(movement.reference for movement in sandbox.ledger if movement.kind == "payout")


def test_an_error_that_passes_is_tried_again(worker: Any, sandbox: Sandbox) -> None:
    worker.payout.apply(ORDER)
    sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit, times=2)
    assert worker.payout.apply(ORDER).state == "SUCCESS"
    assert [request.method for request in sandbox.requests] == ["GET", "POST", "GET", "GET", "GET"]  # first the tenant
    assert paid(sandbox) == {"SAL-1": 1}


def test_an_unknown_outcome_is_left_to_the_sweep(worker: Any, sandbox: Sandbox) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
    assert worker.payout.apply(ORDER).state == "SUCCESS"
    assert worker.account.client.journal.get("SAL-1").state == "UNKNOWN"
    sandbox.advance(60)
    worker.sweep.apply()
    entry = worker.account.client.journal.get("SAL-1")
    assert (entry.state, entry.status) == ("ACCEPTED", "SUCCESS")
    assert paid(sandbox) == {"SAL-1": 1}


def test_the_sweep_hands_on_each_end_once(worker: Any, sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    worker.payout.apply(ORDER)
    sandbox.advance(60)
    for _ in range(2):
        worker.sweep.apply()
    assert [message for message in caplog.messages if "ended" in message] == ["SAL-1 ended: SUCCESS"]


def test_a_refusal_fails_the_task_at_once(worker: Any, sandbox: Sandbox, account: Account) -> None:
    account.b2c_balance = type(account.b2c_balance)(0)
    refused = worker.payout.apply(ORDER)
    assert isinstance(refused.result, InsufficientFundsError)
    assert isinstance(worker.payout.apply(("SAL-2", "1", "0712345678")).result, RequestValidationError)
    assert [request.method for request in sandbox.requests].count("POST") == 1
