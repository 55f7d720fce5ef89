from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integrations.telemetry import Telemetry, attempt, ended, feed
from momopay import (
    BudgetExhaustedError,
    InvalidCallbackError,
    OutcomeUnknownError,
    ServerError,
    TransactionHealthBlockedError,
    TransactionStatus,
    TransactionType,
)
from momopay.events import BudgetWaited, CallbackReceived, JournalChanged, RetryScheduled, WaitEnded
from momopay.integrations._otel_metrics import Metrics

PHONE = "254712345678"


@pytest.fixture
def metrics(telemetry: Telemetry) -> Metrics:
    return Metrics(telemetry.meters.get_meter("test"), None)


def waited(transaction_id: str, status: str, kind: TransactionType = TransactionType.STK) -> WaitEnded:
    return WaitEnded(
        operation="transactions.wait",
        call_id=1,
        at=1000.0,
        transaction_id=transaction_id,
        seconds=30.0,
        polls=2,
        transaction_type=kind,
        transaction_status=TransactionStatus(status),
    )


def changed(transaction_id: str | None, state: str, status: str | None = None, **fields: Any) -> JournalChanged:
    values: dict[str, Any] = {"kind": "COLLECTION", "reference": "INV-1", "old_state": "SENDING", **fields}
    return JournalChanged(
        operation="stk.collect_once",
        call_id=1,
        at=1000.0,
        new_state=state,
        transaction_id=transaction_id,
        transaction_status=None if status is None else TransactionStatus(status),
        **values,
    )


def called_back(outcome: Any, transaction_id: str, status: str, kind: str = "STK") -> CallbackReceived:
    return CallbackReceived(
        operation="callbacks.receive",
        call_id=1,
        at=1000.0,
        outcome=outcome,
        seconds=0.1,
        transaction_id=transaction_id,
        transaction_type=TransactionType(kind),
        transaction_status=TransactionStatus(status),
    )


def test_operations_attempts_and_waits_are_histograms_in_seconds(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(
        metrics.observe,
        attempt(status=503, error=ServerError, seconds=0.25),
        RetryScheduled(
            operation="wallet.balance",
            call_id=1,
            at=1000.0,
            method="GET",
            route="/wallets/service/balance",
            attempt=1,
            seconds=0.5,
            error=ServerError,
        ),
        BudgetWaited(operation="payouts.pay_once", call_id=1, at=1000.0, lane="payment", seconds=3.0),
        BudgetWaited(
            operation="payouts.pay_once",
            call_id=1,
            at=1000.0,
            lane="payment",
            seconds=81.0,
            error=BudgetExhaustedError,
        ),
        ended(seconds=2.5),
        ended(seconds=90.0, error=OutcomeUnknownError),
    )
    assert telemetry.values("momopay.operation.duration") == {
        ("payouts.pay_once",): 2.5,
        ("payouts.pay_once", "OutcomeUnknownError"): 90.0,
    }
    sent = ("POST", "/b2c/payouts", "api.example", 443, 503, "503")
    assert telemetry.values("http.client.request.duration") == {sent: 0.25}
    assert telemetry.values("momopay.retries") == {("wallet.balance", "ServerError"): 1}
    assert telemetry.values("momopay.budget.wait") == {("payment",): 3.0, ("payment", "BudgetExhaustedError"): 81.0}


def test_an_end_counts_once_whoever_reports_it(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(
        metrics.observe,
        changed("t-1", "ACCEPTED"),
        called_back("accepted", "t-1", "CANCELLED"),
        waited("t-1", "FAILED"),
        changed("t-1", "ACCEPTED", "FAILED", old_state="ACCEPTED"),
        called_back("duplicate", "t-1", "CANCELLED"),
        waited("t-2", "SUCCESS"),
        waited("t-2", "SUCCESS"),
        waited("t-3", "PENDING"),
    )
    assert telemetry.values("momopay.payments.ended") == {("STK", "CANCELLED"): 1, ("STK", "SUCCESS"): 1}
    assert telemetry.values("momopay.stk.success_rate") == {(): 0.5}
    assert telemetry.values("momopay.stk.completed") == {(): 2}
    assert telemetry.values("momopay.journal.changes") == {("COLLECTION", "ACCEPTED"): 1}


def test_a_reversal_is_an_end_of_its_own(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(metrics.observe, *(waited("t-1", status, TransactionType.B2C) for status in ("FAILED", "REVERSED", "FAILED")))
    assert telemetry.values("momopay.payments.ended") == {("B2C", "FAILED"): 1, ("B2C", "REVERSED"): 1}
    assert telemetry.values("momopay.stk.completed") == {(): 0}


@pytest.mark.parametrize("outcome", ["duplicate", "busy", "invalid", "forged", "mismatch", "failed"])
def test_what_a_refused_callback_states_counts_for_nothing(
    telemetry: Telemetry, metrics: Metrics, outcome: str
) -> None:
    metrics.observe(called_back(outcome, "t-1", "SUCCESS"))
    counts = telemetry.values("momopay.callbacks")
    assert {counted: count for counted, count in counts.items() if count} == {("callbacks.receive", outcome): 1}
    assert len(counts) == 14  # the others are there, too: an alert sees the first increase
    assert telemetry.values("momopay.payments.ended") == {}
    assert telemetry.values("momopay.stk.success_rate") == {}


def test_the_transaction_of_an_unclear_response_counts_for_nothing(telemetry: Telemetry, metrics: Metrics) -> None:
    metrics.observe(changed("t-1", "UNKNOWN", "SUCCESS"))
    assert telemetry.values("momopay.stk.completed") == {(): 0}


def test_after_the_service_blocked_prompts_the_rate_begins_anew(telemetry: Telemetry, metrics: Metrics) -> None:
    prompt = {"route": "/payments/stk"}
    feed(metrics.observe, *(waited(f"t-{number}", "FAILED") for number in range(3)))
    metrics.observe(attempt(**prompt))
    assert telemetry.values("momopay.stk.success_rate") == {(): 0.0}
    metrics.observe(attempt(**prompt, status=429, error=TransactionHealthBlockedError))
    metrics.observe(attempt(**prompt, status=429, error=ServerError))
    assert telemetry.values("momopay.stk.completed") == {(): 3}
    metrics.observe(attempt(**prompt))
    assert telemetry.values("momopay.stk.completed") == {(): 0}


def test_no_attribute_has_an_id_a_reference_or_a_text_of_the_service(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(
        metrics.observe,
        changed("t-unique", "ACCEPTED", "SUCCESS", reference="INV-unique"),
        called_back("accepted", "t-other", "SUCCESS", kind="a new type-unique"),
        called_back("accepted", "t-third", "a new status-unique"),
        attempt(request_id="r-unique"),
        ended(reference="INV-unique", transaction_id="t-unique", request_id="r-unique"),
        CallbackReceived(
            operation="callbacks.receive",
            call_id=1,
            at=1000.0,
            outcome="invalid",
            seconds=0.1,
            error=InvalidCallbackError,
            reference="INV-unique",
        ),
    )
    assert telemetry.values("momopay.payments.ended") == {("STK", "SUCCESS"): 1, ("other", "SUCCESS"): 1}
    assert not [text for text in telemetry.texts() if "unique" in text]


def test_ends_are_remembered_in_a_bounded_number(
    telemetry: Telemetry, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay.integrations._otel_metrics.MEMORY", 10)
    feed(metrics.observe, *(waited(f"t-{number}", "SUCCESS") for number in range(50)))
    assert len(metrics._counted) == 10
    assert telemetry.values("momopay.payments.ended") == {("STK", "SUCCESS"): 50}


def test_a_cancelled_operation_has_the_class_as_its_error(telemetry: Telemetry, metrics: Metrics) -> None:
    metrics.observe(ended(seconds=1.0, error=asyncio.CancelledError))
    assert telemetry.values("momopay.operation.duration") == {("payouts.pay_once", "CancelledError"): 1.0}
