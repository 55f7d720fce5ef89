import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from integrations.telemetry import Telemetry, attempt, ended, feed, made
from journal.kit import put
from momopay import (
    BudgetExhaustedError,
    InvalidCallbackError,
    Journal,
    JournalState,
    OutcomeUnknownError,
    ServerError,
    TransactionHealthBlockedError,
    TransactionStatus,
    TransactionType,
)
from momopay.events import BudgetWaited, CallbackReceived, Event, JournalChanged, RetryScheduled, SweepEnded, WaitEnded
from momopay.integrations.opentelemetry import JournalGauges, Metrics

PHONE = "254712345678"


@pytest.fixture
def metrics(telemetry: Telemetry) -> Metrics:
    return Metrics(telemetry.meters.get_meter("test"), None)


def waited(transaction_id: str, status: str, kind: TransactionType = TransactionType.STK) -> Event:
    stated = {"transaction_type": kind, "transaction_status": TransactionStatus(status)}
    return made(WaitEnded, transaction_id=transaction_id, **stated)


def changed(transaction_id: str | None, state: str, status: str | None = None, **fields: Any) -> Event:
    stated = {"new_state": state, "transaction_status": None if status is None else TransactionStatus(status)}
    return made(JournalChanged, transaction_id=transaction_id, **{"old_state": "SENDING", **stated, **fields})


def called_back(outcome: str, transaction_id: str, status: str, kind: str = "STK") -> Event:
    stated = {"transaction_type": TransactionType(kind), "transaction_status": TransactionStatus(status)}
    return made(
        CallbackReceived, operation="callbacks.receive", outcome=outcome, transaction_id=transaction_id, **stated
    )


def test_operations_attempts_and_waits_are_histograms_in_seconds(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(
        metrics.observe,
        attempt(status=503, error=ServerError, seconds=0.25),
        made(RetryScheduled, operation="wallet.balance", error=ServerError),
        made(BudgetWaited, seconds=3.0),
        made(BudgetWaited, seconds=81.0, error=BudgetExhaustedError),
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
        changed("t-5", "UNKNOWN", "SUCCESS"),  # the transaction of an unclear response counts for nothing
        *(waited("t-4", status, TransactionType.B2C) for status in ("FAILED", "REVERSED", "FAILED")),
    )
    ends = {("STK", "CANCELLED"): 1, ("STK", "SUCCESS"): 1, ("B2C", "FAILED"): 1, ("B2C", "REVERSED"): 1}
    assert telemetry.values("momopay.payments.ended") == ends, "a reversal is an end of its own"
    assert telemetry.values("momopay.stk.success_rate") == {(): 0.5}
    assert telemetry.values("momopay.stk.completed") == {(): 2}
    assert telemetry.values("momopay.journal.changes") == {("COLLECTION", "ACCEPTED"): 1, ("COLLECTION", "UNKNOWN"): 1}


def test_what_a_refused_callback_states_does_not_count(telemetry: Telemetry, metrics: Metrics) -> None:
    refused = ("duplicate", "busy", "invalid", "forged", "mismatch", "failed")
    feed(metrics.observe, *(called_back(outcome, "t-1", "SUCCESS") for outcome in refused))
    counts = telemetry.values("momopay.callbacks")
    counted = {of: count for of, count in counts.items() if count}
    assert counted == {("callbacks.receive", outcome): 1 for outcome in refused}
    assert len(counts) == 14  # the others are there, too: an alert sees the first increase
    assert telemetry.values("momopay.payments.ended") == {}
    assert telemetry.values("momopay.stk.success_rate") == {}


def test_after_the_service_blocked_prompts_the_rate_begins_anew(telemetry: Telemetry, metrics: Metrics) -> None:
    prompt = {"route": "/payments/stk"}
    feed(metrics.observe, *(waited(f"t-{number}", "FAILED") for number in range(3)))
    metrics.observe(attempt(**prompt))
    metrics.observe(attempt(**prompt, status=429, error=TransactionHealthBlockedError))
    metrics.observe(attempt(**prompt, status=429, error=ServerError))
    assert rate(telemetry) == (0.0, 3)
    metrics.observe(attempt(**prompt))
    assert rate(telemetry) == (None, 0)
    feed(metrics.observe, waited("t-0", "FAILED"), waited("new", "SUCCESS"), attempt(**prompt))
    assert rate(telemetry) == (1.0, 1), "t-0 was counted before the block"


def test_no_attribute_has_an_id_a_reference_or_a_text_of_the_service(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(
        metrics.observe,
        changed("t-unique", "ACCEPTED", "SUCCESS", reference="INV-unique"),
        called_back("accepted", "t-other", "SUCCESS", kind="a new type-unique"),
        called_back("accepted", "t-third", "a new status-unique"),
        attempt(request_id="r-unique"),
        ended(reference="INV-unique", transaction_id="t-unique", request_id="r-unique"),
        made(CallbackReceived, outcome="invalid", error=InvalidCallbackError, reference="INV-unique"),
    )
    assert telemetry.values("momopay.payments.ended") == {("STK", "SUCCESS"): 1, ("other", "SUCCESS"): 1}
    assert not [text for text in telemetry.texts() if "unique" in text]


def test_ends_are_remembered_in_a_bounded_number(
    telemetry: Telemetry, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay.integrations.opentelemetry._REMEMBERED", 10)
    feed(metrics.observe, *(waited(f"t-{number}", "SUCCESS") for number in range(50)))
    assert len(metrics._counted) == 10
    assert telemetry.values("momopay.payments.ended") == {("STK", "SUCCESS"): 50}


OPEN, UNRESOLVED = "momopay.journal.open", "momopay.journal.unresolved"


def swept(opened: int, unknown: int) -> Any:
    return made(SweepEnded, settled=0, open=opened, unknown=unknown, handled=0, failed=0)


def test_without_a_journal_the_counts_are_those_of_the_latest_sweep(telemetry: Telemetry) -> None:
    gauges = JournalGauges(telemetry.meters.get_meter("test"), None)
    assert not telemetry.values(OPEN) | telemetry.values(UNRESOLVED)
    gauges.remember(swept(7, 2))
    gauges.remember(swept(5, 1))
    assert (telemetry.values(OPEN), telemetry.values(UNRESOLVED)) == ({(): 5}, {(): 1})
    assert not telemetry.values(f"{OPEN}.age")


def test_each_collection_asks_a_journal(telemetry: Telemetry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momopay.integrations.opentelemetry._FRESH", 0.0)
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        gauges = JournalGauges(telemetry.meters.get_meter("test"), journal)
        assert (telemetry.values(OPEN), telemetry.values(UNRESOLVED)) == ({(): 0}, {(): 0})
        assert telemetry.values(f"{OPEN}.age") == telemetry.values(f"{UNRESOLVED}.age") == {(): 0}
        before = datetime.now(UTC)
        for number in range(3):
            put(journal, f"open-{number}", JournalState.ACCEPTED)
        put(journal, "unresolved", JournalState.UNKNOWN)
        put(journal, "refused", JournalState.REFUSED)
        gauges.remember(swept(100, 100))  # of another journal, perhaps, or older
        assert (telemetry.values(OPEN), telemetry.values(UNRESOLVED)) == ({(): 3}, {(): 1})
        longest = (datetime.now(UTC) - before).total_seconds()
        assert 0 < telemetry.values(f"{OPEN}.age")[()] <= longest + 1
        assert 0 < telemetry.values(f"{UNRESOLVED}.age")[()] <= longest + 1


def test_one_collection_asks_once(telemetry: Telemetry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momopay.integrations.opentelemetry._FRESH", 3600.0)
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        JournalGauges(telemetry.meters.get_meter("test"), journal)
        assert telemetry.values(OPEN) == {(): 0}
        put(journal, "open", JournalState.ACCEPTED)
        assert telemetry.values(OPEN) == {(): 0}


@pytest.mark.parametrize("database", ["missing", "closed"])
def test_gauges_of_a_journal_that_fails_end_and_the_others_go_on(
    telemetry: Telemetry, tmp_path: Path, caplog: pytest.LogCaptureFixture, database: str
) -> None:
    meter = telemetry.meters.get_meter("test")
    meter.create_counter("something.else").add(1)
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}", create=database != "missing") as journal:
        if database == "closed":
            assert journal.open() == []
            journal.close()
        JournalGauges(meter, journal)
        with caplog.at_level(logging.WARNING, "momopay"):
            assert {name for name, _ in telemetry.points()} == {"something.else"}
    assert caplog.text.count("the journal's gauges are missing") == 1


def rate(telemetry: Telemetry) -> tuple[float | None, float]:
    """Return the success rate, and of how many prompts it is."""
    found = telemetry.values("momopay.stk.success_rate")
    return found.get(()), telemetry.values("momopay.stk.completed")[()]


def test_the_rate_is_of_the_latest_hundred(telemetry: Telemetry, metrics: Metrics) -> None:
    assert rate(telemetry) == (None, 0)
    feed(metrics.observe, *(waited(f"failed-{number}", "FAILED") for number in range(50)))
    assert rate(telemetry) == (0.0, 50)
    feed(metrics.observe, *(waited(f"paid-{number}", "SUCCESS") for number in range(80)))
    assert rate(telemetry) == (0.8, 100)
    feed(metrics.observe, *(waited(f"failed-{number}", "FAILED") for number in range(50)))
    assert rate(telemetry) == (0.8, 100), "they were counted before"


def test_a_late_pin_makes_a_failure_a_success_and_nothing_makes_a_success_a_failure(
    telemetry: Telemetry, metrics: Metrics
) -> None:
    ends = (("a", "FAILED"), ("b", "SUCCESS"), ("a", "SUCCESS"), ("b", "FAILED"))
    feed(metrics.observe, *(waited(*end) for end in ends))
    assert rate(telemetry) == (1.0, 2)
