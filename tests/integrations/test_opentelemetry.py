"""Whole scenarios under the observer, on both clients: spans and metrics in memory, searched for what is secret."""

import base64
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import momopay
from drivers import Drive, Driver, unique_key
from events_kit import Watcher
from integrations.telemetry import Telemetry, attempt, attributes_of, ended, feed, made
from momopay.errors import APIConnectionError, ProtocolError
from momopay.events import (
    AttemptEnded,
    BudgetWaited,
    CallbackReceived,
    CallEnded,
    CallStarted,
    Event,
    JournalChanged,
    SweepEnded,
)
from momopay.integrations.opentelemetry import Metrics, Spans, observer
from momopay.sandbox import Fault, Sandbox

PHONE, CANCELS = "254712345678", "254712349932"
SOON = momopay.PollSchedule(first=0.01, every=0.05, limit=60)
LOCAL = {"0712345678", "712345678", "0712349932", "712349932"}


class Watched(Watcher):
    """An observer of OpenTelemetry that also keeps the events."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__()
        self._observe = observer(telemetry.tracers, telemetry.meters)

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        self._observe(event)


def pay_in_every_way(sdk: Driver, journal: momopay.Journal, sandbox: Sandbox) -> None:
    """Use each kind of operation, with phones wherever a caller might put one."""
    paying: dict[str, Any] = {"amount": 10, "phone": PHONE}
    prompt = sdk(lambda client: client.stk.initiate(amount=5, phone=PHONE, account_reference=PHONE))
    order = {"journal": journal, "reference": "INV-1", "amount": 10, "phone": CANCELS}
    cancelled = sdk(lambda client: client.stk.collect_once(**order))
    paid = sdk(lambda client: client.payouts.pay_once(journal=journal, reference=f"SAL {PHONE}", **paying))
    sandbox.advance(600)
    sdk.collect(lambda client: client.transactions.wait_all([prompt, cancelled], schedule=SOON))
    sdk(lambda client: client.transactions.wait(paid, schedule=SOON))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    with pytest.raises(momopay.OutcomeUnknownError):
        sdk(lambda client: client.payouts.pay_once(journal=journal, reference="SAL-2", **paying))
    with pytest.raises(ValueError, match="phone"):
        sdk(lambda client: client.stk.initiate(amount=5, phone="12", account_reference="x"))
    sandbox.fail_next("GET", "/wallets/service/balance", Fault.html_502)
    sdk(lambda client: client.wallet.balance())
    yesterday = datetime.now(UTC) - timedelta(days=1)
    sdk(lambda client: client.transactions.find(reference=PHONE, phone=PHONE, since=yesterday))
    sdk(lambda client: client.transactions.list(q=PHONE))
    sdk.collect(lambda client: client.transactions.iter(q=PHONE, page_size=1))
    found = sdk(lambda client: client.transactions.get(prompt))
    stated = {"id": found.transaction_id, "status": "SUCCESS", "type": "STK", "amount": 5, "phone_number": PHONE}
    body = {"event": "transaction.updated", "event_type": "transaction.success", "transaction": stated}
    sdk(lambda client: client.transactions.confirm(momopay.parse_callback(body)))
    payroll = [{"reference": "SAL-3", **paying}]
    outcomes = sdk.collect(lambda client: client.payouts.pay_all(payroll, journal=journal))
    assert [outcome.error for outcome in outcomes] == [None]
    sdk(lambda client: client.transactions.sweep(journal=journal))


@pytest.mark.usefixtures("no_backoff")
def test_neither_spans_nor_metrics_show_a_key_a_phone_or_a_query(
    telemetry: Telemetry, sandbox: Sandbox, drive: Drive, key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with momopay.Journal(f"sqlite:///{tmp_path / 'payments.db'}") as journal:
        watched = Watched(telemetry)
        with caplog.at_level(logging.ERROR, "momopay"):
            pay_in_every_way(drive(api_key=key, base_url=sandbox.base_url, on_event=watched), journal, sandbox)
        texts = list(telemetry.texts())
        counts = {name: telemetry.values(name) for name in ("momopay.stk.success_rate", "momopay.journal.unresolved")}
    assert "on_event failed" not in caplog.text
    secrets = {key, base64.b64encode(f"{key}:".encode()).decode(), PHONE, CANCELS, *LOCAL, "q=", "url.full"}
    assert {secret for secret in secrets for text in texts if secret in text} == set()
    assert len(texts) > 50
    # One of two prompts was paid, whoever reported it: two waits, a callback and a sweep.
    assert (counts["momopay.stk.success_rate"], counts["momopay.journal.unresolved"]) == ({(): 0.5}, {(): 1})
    assert len(watched.of(CallStarted)) == len(watched.of(CallEnded))
    assert len(telemetry.spans) == len(watched.of(CallEnded)) + len(watched.of(AttemptEnded))


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_calls_of_many_tasks_are_below_their_callers_spans(telemetry: Telemetry, sandbox: Sandbox, kind: str) -> None:
    tracer = telemetry.tracers.get_tracer("app")

    async def main() -> None:
        watch = observer(telemetry.tracers, telemetry.meters)
        async with momopay.AsyncClient(unique_key(), base_url=sandbox.base_url, on_event=watch) as client:

            async def serve(number: int) -> None:
                with tracer.start_as_current_span(f"request-{number}"):
                    await client.wallet.balance()
                    await client.channels.list()

            async with anyio.create_task_group() as group:
                for number in range(16):
                    group.start_soon(serve, number)

    anyio.run(main, backend=kind)
    callers = [span for span in telemetry.spans if span.name.startswith("request")]
    assert len(callers) == 16
    for caller in callers:
        assert caller.context is not None
        below = [span.name for span in telemetry.spans if span.parent and span.parent.span_id == caller.context.span_id]
        assert sorted(below) == ["channels.list", "wallet.balance"]


def test_the_callers_span_stays_current_between_steps_of_an_iterable(telemetry: Telemetry, sandbox: Sandbox) -> None:
    watched = Watched(telemetry)
    with momopay.Client(unique_key(), base_url=sandbox.base_url, on_event=watched) as client:
        for number in range(3):
            client.stk.initiate(amount=5, phone=PHONE, account_reference=f"INV-{number}")
        with telemetry.tracers.get_tracer("app").start_as_current_span("report") as report:
            for _ in client.transactions.iter(page_size=1):
                assert trace.get_current_span() is report
                break
    # What a dropped iterator did has ended, too.
    assert len(watched.of(CallStarted)) == len(watched.of(CallEnded))
    assert len(telemetry.spans) == 1 + len(watched.of(CallEnded)) + len(watched.of(AttemptEnded))


def test_without_an_sdk_it_does_nothing(sandbox: Sandbox) -> None:
    with momopay.Client(unique_key(), base_url=sandbox.base_url, on_event=observer()) as client:
        assert client.wallet.balance().currency == "KES"


COMMON = {
    "http.request.method": "POST",
    "url.template": "/b2c/payouts",
    "server.address": "api.example",
    "server.port": 443,
}


@pytest.fixture
def spans(telemetry: Telemetry) -> Spans:
    return Spans(telemetry.tracers.get_tracer("test"))


def test_an_operation_has_a_span_and_each_attempt_one_below_it(telemetry: Telemetry, spans: Spans) -> None:
    feed(
        spans.observe,
        made(CallStarted),
        attempt(at=1001.0, seconds=0.25, status=503, error=momopay.ServerError, request_id="r-1"),
        attempt(at=1002.0, attempt=2, request_id="r-2"),
        ended(at=1002.5, attempts=2),
    )
    first, second, operation = telemetry.spans
    assert [span.name for span in telemetry.spans] == ["POST /b2c/payouts"] * 2 + ["payouts.pay_once"]
    assert [span.kind for span in telemetry.spans] == [SpanKind.CLIENT, SpanKind.CLIENT, SpanKind.INTERNAL]
    assert operation.parent is None
    assert operation.context is not None
    assert {span.parent and span.parent.span_id for span in (first, second)} == {operation.context.span_id}
    assert (first.start_time, first.end_time) == (1_000_750_000_000, 1_001_000_000_000)
    assert (operation.start_time, operation.end_time) == (1_000_000_000_000, 1_002_500_000_000)
    failed = {"http.response.status_code": 503, "error.type": "503", "momopay.request_id": "r-1"}
    assert attributes_of(first) == COMMON | failed
    resent = {"http.response.status_code": 200, "http.request.resend_count": 1, "momopay.request_id": "r-2"}
    assert attributes_of(second) == COMMON | resent
    assert attributes_of(operation) == {"momopay.operation": "payouts.pay_once", "momopay.attempts": 2}
    statuses = [span.status.status_code for span in telemetry.spans]
    assert (statuses, first.status.description) == ([StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET], None)


@pytest.mark.parametrize(
    ("fields", "error_type"),
    [
        ({"status": None, "error": APIConnectionError}, "APIConnectionError"),
        ({"status": 200, "error": ProtocolError}, "ProtocolError"),
        *(
            ({"status": 302, "error": ProtocolError}, "ProtocolError"),
            ({"status": 402, "error": momopay.ServerError}, "402"),
        ),
        # The service says that it does not know what was deleted before: that is a success.
        ({"status": 404, "error": None}, None),
    ],
)
def test_a_failed_attempt_is_an_error(
    telemetry: Telemetry, spans: Spans, fields: dict[str, object], error_type: str | None
) -> None:
    feed(spans.observe, made(CallStarted), attempt(**fields), ended())
    assert attributes_of(telemetry.spans[0]).get("error.type") == error_type
    assert (telemetry.spans[0].status.status_code is StatusCode.ERROR) is (error_type is not None)


def test_the_end_of_an_operation_says_what_came_of_it(telemetry: Telemetry, spans: Spans) -> None:
    waits = [made(BudgetWaited, seconds=seconds) for seconds in (1.5, 2.0)]
    end = ended(
        error=momopay.OutcomeUnknownError,
        may_have_executed=True,
        reference="SAL-7",
        transaction_id="9b2f2f6e-0000-4000-8000-2547123456780",
        transaction_type=momopay.TransactionType.B2C,
        transaction_status=momopay.TransactionStatus.PENDING,
    )
    feed(spans.observe, made(CallStarted), *waits, end)
    assert telemetry.spans[0].status.status_code is StatusCode.ERROR
    assert attributes_of(telemetry.spans[0]) == {
        "momopay.operation": "payouts.pay_once",
        "momopay.attempts": 0,
        "momopay.budget.wait": 3.5,
        "momopay.reference": "SAL-7",
        "momopay.transaction.id": "9b2f2f6e-0000-4000-8000-2547123456780",
        "momopay.transaction.type": "B2C",
        "momopay.transaction.status": "PENDING",
        "error.type": "OutcomeUnknownError",
        "momopay.may_have_executed": True,
    }


def test_a_phone_in_any_text_is_masked_even_if_an_event_has_it(telemetry: Telemetry, spans: Spans) -> None:
    phone = "254712345678"
    end = ended(reference=phone, transaction_id=phone, transaction_status=momopay.TransactionStatus(phone))
    feed(spans.observe, made(CallStarted), attempt(request_id=phone), end)
    assert not [text for text in telemetry.texts() if phone in text]
    assert attributes_of(telemetry.spans[1])["momopay.reference"] == "2547*****678"


@pytest.fixture
def metrics(telemetry: Telemetry) -> Metrics:
    return Metrics(telemetry.meters.get_meter("test"))


def waited(transaction_id: str, status: str, kind: momopay.TransactionType = momopay.TransactionType.STK) -> Event:
    stated = {"transaction_type": kind, "transaction_status": momopay.TransactionStatus(status)}
    return made(momopay.events.WaitEnded, transaction_id=transaction_id, **stated)


def changed(transaction_id: str | None, state: str, status: str | None = None, **fields: Any) -> Event:
    stated = {"new_state": state, "transaction_status": None if status is None else momopay.TransactionStatus(status)}
    return made(JournalChanged, transaction_id=transaction_id, **{"old_state": "SENDING", **stated, **fields})


def called_back(outcome: str, transaction_id: str, status: str, kind: str = "STK") -> Event:
    stated = {
        "transaction_type": momopay.TransactionType(kind),
        "transaction_status": momopay.TransactionStatus(status),
    }
    return made(
        CallbackReceived, operation="callbacks.receive", outcome=outcome, transaction_id=transaction_id, **stated
    )


def test_operations_attempts_and_waits_are_histograms_in_seconds(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(
        metrics.observe,
        attempt(status=503, error=momopay.ServerError, seconds=0.25),
        made(BudgetWaited, seconds=3.0),
        made(BudgetWaited, seconds=81.0, error=momopay.BudgetExhaustedError),
        ended(seconds=2.5),
        ended(seconds=90.0, error=momopay.OutcomeUnknownError),
    )
    assert telemetry.values("momopay.operation.duration") == {
        ("payouts.pay_once",): 2.5,
        ("payouts.pay_once", "OutcomeUnknownError"): 90.0,
    }
    sent = ("POST", "/b2c/payouts", "api.example", 443, 503, "503")
    assert telemetry.values("http.client.request.duration") == {sent: 0.25}
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
        *(waited("t-4", status, momopay.TransactionType.B2C) for status in ("FAILED", "REVERSED", "FAILED")),
    )
    ends = {("STK", "CANCELLED"): 1, ("STK", "SUCCESS"): 1, ("B2C", "FAILED"): 1, ("B2C", "REVERSED"): 1}
    assert telemetry.values("momopay.payments.ended") == ends, "a reversal is an end of its own"
    assert telemetry.values("momopay.stk.success_rate") == {(): 0.5}
    assert telemetry.values("momopay.stk.completed") == {(): 2}


def test_what_a_refused_callback_states_does_not_count(telemetry: Telemetry, metrics: Metrics) -> None:
    refused = ("duplicate", "busy", "invalid", "forged", "mismatch", "failed")
    feed(metrics.observe, *(called_back(outcome, "t-1", "SUCCESS") for outcome in refused))
    counts = telemetry.values("momopay.callbacks")
    counted = {of: count for of, count in counts.items() if count}
    assert counted == {("callbacks.receive", outcome): 1 for outcome in refused}
    assert len(counts) == 14  # the others are there, too: an alert sees the first increase
    assert (telemetry.values("momopay.payments.ended"), telemetry.values("momopay.stk.success_rate")) == ({}, {})


def test_no_attribute_has_an_id_a_reference_or_a_text_of_the_service(telemetry: Telemetry, metrics: Metrics) -> None:
    feed(
        metrics.observe,
        changed("t-unique", "ACCEPTED", "SUCCESS", reference="INV-unique"),
        called_back("accepted", "t-other", "SUCCESS", kind="a new type-unique"),
        called_back("accepted", "t-third", "a new status-unique"),
        attempt(request_id="r-unique"),
        ended(reference="INV-unique", transaction_id="t-unique", request_id="r-unique"),
        made(CallbackReceived, outcome="invalid", error=momopay.InvalidCallbackError, reference="INV-unique"),
    )
    assert telemetry.values("momopay.payments.ended") == {("STK", "SUCCESS"): 1, ("other", "SUCCESS"): 1}
    assert not [text for text in telemetry.texts() if "unique" in text]


def test_the_memory_of_ends_is_bounded(telemetry: Telemetry, metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momopay.integrations.opentelemetry._REMEMBERED", 10)
    feed(metrics.observe, *(waited(f"t-{number}", "SUCCESS") for number in range(50)))
    assert (len(metrics._counted), telemetry.values("momopay.payments.ended")) == (10, {("STK", "SUCCESS"): 50})


def test_the_journals_gauges_are_those_of_the_latest_sweep(telemetry: Telemetry, metrics: Metrics) -> None:
    def gauges() -> list[dict[tuple[Any, ...], float]]:
        return [telemetry.values(f"momopay.journal.{name}") for name in ("open", "unresolved")]

    assert gauges() == [{}, {}]
    counts = {"settled": 0, "handled": 0, "failed": 0}
    feed(metrics.observe, *(made(SweepEnded, open=each, unknown=each - 4, **counts) for each in (7, 5)))
    assert gauges() == [{(): 5}, {(): 1}]


def rate(telemetry: Telemetry) -> tuple[float | None, float]:
    """Return the success rate, and of how many prompts it is."""
    return telemetry.values("momopay.stk.success_rate").get(()), telemetry.values("momopay.stk.completed")[()]


def test_the_rate_is_of_the_latest_hundred(telemetry: Telemetry, metrics: Metrics) -> None:
    assert rate(telemetry) == (None, 0)
    feed(metrics.observe, *(waited(f"failed-{number}", "FAILED") for number in range(50)))
    assert rate(telemetry) == (0.0, 50)
    feed(metrics.observe, *(waited(f"paid-{number}", "SUCCESS") for number in range(80)))
    assert rate(telemetry) == (0.8, 100)
    feed(metrics.observe, *(waited(f"failed-{number}", "FAILED") for number in range(50)))
    assert rate(telemetry) == (0.8, 100), "they were counted before"


def test_a_failure_may_become_a_success_and_never_the_reverse(telemetry: Telemetry, metrics: Metrics) -> None:
    ends = (("a", "FAILED"), ("b", "SUCCESS"), ("a", "SUCCESS"), ("b", "FAILED"))
    feed(metrics.observe, *(waited(*end) for end in ends))
    assert rate(telemetry) == (1.0, 2)
