from __future__ import annotations

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from integrations.telemetry import Telemetry, attempt, attributes_of, ended, feed, started
from momopay import OutcomeUnknownError, ServerError, TransactionStatus, TransactionType
from momopay._ratelimit.slot_log import Lane
from momopay.errors import APIConnectionError, ProtocolError
from momopay.events import BudgetWaited
from momopay.integrations import _otel_spans
from momopay.integrations._otel_spans import Spans

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
        started(at=1000.0),
        attempt(at=1001.0, seconds=0.25, status=503, error=ServerError, request_id="r-1"),
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
    assert [span.status.status_code for span in telemetry.spans] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
        StatusCode.UNSET,
    ]
    assert first.status.description is None


@pytest.mark.parametrize(
    ("fields", "error_type"),
    [
        ({"status": None, "error": APIConnectionError}, "APIConnectionError"),
        ({"status": 200, "error": ProtocolError}, "ProtocolError"),
        ({"status": 302, "error": ProtocolError}, "ProtocolError"),
        ({"status": 402, "error": ServerError}, "402"),
        # The service says that it does not know what was deleted before: that is a success.
        ({"status": 404, "error": None}, None),
    ],
)
def test_an_attempt_that_failed_is_an_error_of_a_type(
    telemetry: Telemetry, spans: Spans, fields: dict[str, object], error_type: str | None
) -> None:
    feed(spans.observe, started(), attempt(**fields), ended())
    assert attributes_of(telemetry.spans[0]).get("error.type") == error_type
    assert (telemetry.spans[0].status.status_code is StatusCode.ERROR) is (error_type is not None)


def test_an_operation_is_below_the_span_that_is_current_where_it_is_called(telemetry: Telemetry, spans: Spans) -> None:
    with telemetry.tracers.get_tracer("app").start_as_current_span("checkout") as checkout:
        spans.observe(started())
    feed(spans.observe, attempt(), ended())
    sent, operation = (span for span in telemetry.spans if span.name != "checkout")
    assert operation.parent is not None
    assert operation.parent.span_id == checkout.get_span_context().span_id
    assert {span.context.trace_id for span in (sent, operation) if span.context} == {
        checkout.get_span_context().trace_id
    }


def test_calls_that_mix_keep_their_own_attempts(telemetry: Telemetry, spans: Spans) -> None:
    feed(spans.observe, started(1), started(2), attempt(2), attempt(1), ended(1), ended(2))
    parents = [span.parent.span_id for span in telemetry.spans if span.parent]
    assert parents == [span.context.span_id for span in reversed(telemetry.spans[2:]) if span.context]


def test_the_end_of_an_operation_says_what_came_of_it(telemetry: Telemetry, spans: Spans) -> None:
    waits = [
        BudgetWaited(operation="payouts.pay_once", call_id=1, at=1001.0, lane=Lane.PAYMENT.value, seconds=seconds)
        for seconds in (1.5, 2.0)
    ]
    end = ended(
        error=OutcomeUnknownError,
        may_have_executed=True,
        reference="SAL-7",
        transaction_id="9b2f2f6e-0000-4000-8000-2547123456780",
        transaction_type=TransactionType.B2C,
        transaction_status=TransactionStatus.PENDING,
    )
    feed(spans.observe, started(), *waits, end)
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
    end = ended(reference=phone, transaction_id=phone, transaction_status=TransactionStatus(phone))
    feed(spans.observe, started(), attempt(request_id=phone), end)
    assert not [text for text in telemetry.texts() if phone in text]
    assert attributes_of(telemetry.spans[1])["momopay.reference"] == "2547*****678"


def test_operations_that_never_end_are_given_up_when_many_others_began(
    telemetry: Telemetry, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_otel_spans, "MAX_OPEN", 3)
    feed(spans.observe, *map(started, range(1, 6)))
    assert [attributes_of(span)["error.type"] for span in telemetry.spans] == ["abandoned"] * 2
    # What such an operation still does is not lost, and its end is not counted twice.
    feed(spans.observe, attempt(1), ended(1), ended(5))
    assert [span.name for span in telemetry.spans[2:]] == ["POST /b2c/payouts", "payouts.pay_once"]
