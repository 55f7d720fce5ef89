"""What a schedule accepts, which statuses are ends, and which failures may pass."""

from typing import Any

import pytest

import momopay
from momopay import APIError, ConfigurationError, InvalidApiKeyError, PollSchedule, Transaction, settled, terminal
from momopay._polling.schedule import is_transient
from virtual import transaction


@pytest.mark.parametrize(
    "times",
    [
        *({"first": wrong} for wrong in (-1.0, "soon")),
        *({"every": wrong} for wrong in (0.0, -1.0, float("nan"))),
        *({"limit": wrong} for wrong in (0.0, float("inf"), 1e9 + 1)),
    ],
)
def test_a_senseless_schedule_is_refused(times: dict[str, Any]) -> None:
    PollSchedule(first=0, every=1, limit=1e9)  # a wait may begin at once, and last for years
    with pytest.raises(ConfigurationError, match="finite seconds"):
        PollSchedule(**times)


@pytest.mark.parametrize(
    ("status", "kind", "is_terminal", "is_settled"),
    [
        *(("PENDING", "STK", False, False), ("PROCESSING", "B2C", False, False), ("HELD", "STK", False, False)),
        *(("SUCCESS", "STK", True, True), ("SUCCESS", "B2C", True, True), ("FAILED", "STK", True, True)),
        *(("FAILED", "B2C", True, False), ("REVERSED", "B2C", True, True), ("CANCELLED", "STK", True, True)),
        *(("CANCELLED", "B2C", True, True), ("EXPIRED", "WALLET_TOPUP", True, True)),
    ],
)
def test_which_statuses_are_ends(status: str, kind: str, *, is_terminal: bool, is_settled: bool) -> None:
    seen = Transaction.model_validate(transaction("a", status, type=kind))
    assert terminal(seen) is is_terminal
    assert settled(seen) is is_settled


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((momopay.APIConnectionError("no answer"), True), (momopay.ProtocolError("a proxy's page"), True)),
        (momopay.BudgetExhaustedError("no slot", retry_after=1.0), True),
        (momopay.ServerError("no", code=None, status_code=500), True),
        *((APIError("no", code="BUSY", status_code=429), True), (APIError("no", code="BUSY", status_code=500), True)),
        (APIError("no", code="LOCKED", status_code=499), False),
        *((InvalidApiKeyError("no", code="INVALID_API_KEY", status_code=401), False), (KeyboardInterrupt(), False)),
    ],
)
def test_which_failures_a_wait_outlives(error: BaseException, *, expected: bool) -> None:
    assert is_transient(error) is expected
