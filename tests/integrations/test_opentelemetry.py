"""Whole scenarios under the observer, on both clients: spans and metrics in memory, searched for what is secret."""

from __future__ import annotations

import base64
import inspect
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette

from drivers import unique_key
from integrations.kit import BODY, CALLBACK, QUERY, SIGNER, Handler
from integrations.telemetry import Telemetry, attributes_of
from momopay import AsyncClient, Client, Journal, OutcomeUnknownError, PollSchedule, parse_callback
from momopay.events import AttemptEnded, CallEnded, CallStarted, Event
from momopay.integrations.fastapi import callback_endpoint
from momopay.integrations.opentelemetry import observer
from momopay.sandbox import Fault, Sandbox

PHONE, CANCELS = "254712345678", "254712349932"
SOON = PollSchedule(first=0.01, every=0.05, limit=60)
LOCAL = {"0712345678", "712345678", "0712349932", "712349932"}


class Watched:
    """An observer of OpenTelemetry that also keeps the events."""

    def __init__(self, telemetry: Telemetry, journal: Journal | None = None) -> None:
        self._observe = observer(telemetry.tracers, telemetry.meters, journal=journal)
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._observe(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


async def done(result: Any) -> Any:
    """Return the result of an operation of either client."""
    return await result if inspect.isawaitable(result) else result


async def listed(iterator: Any) -> list[Any]:
    if iterator._session.backend.is_async:
        return [each async for each in iterator]
    return list(iterator)


async def pay_in_every_way(client: Any, journal: Journal, sandbox: Sandbox) -> None:
    """Use each kind of operation, with phones wherever a caller might put one."""
    prompt = await done(client.stk.initiate(amount=5, phone=PHONE, account_reference=PHONE))
    cancelled = await done(client.stk.collect_once(journal=journal, reference="INV-1", amount=10, phone=CANCELS))
    paid = await done(client.payouts.pay_once(journal=journal, reference=f"SAL {PHONE}", amount=10, phone=PHONE))
    sandbox.advance(600)
    await listed(client.transactions.wait_all([prompt, cancelled], schedule=SOON))
    await done(client.transactions.wait(paid, schedule=SOON))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    with pytest.raises(OutcomeUnknownError):
        await done(client.payouts.pay_once(journal=journal, reference="SAL-2", amount=10, phone=PHONE))
    with pytest.raises(ValueError, match="phone"):
        await done(client.stk.initiate(amount=5, phone="12", account_reference="x"))
    sandbox.fail_next("GET", "/wallets/service/balance", Fault.html_502)
    await done(client.wallet.balance())
    now = datetime.now(UTC)
    await done(client.transactions.find(reference=PHONE, phone=PHONE, since=now - timedelta(days=1)))
    await done(client.transactions.list(q=PHONE))
    await listed(client.transactions.iter(q=PHONE, page_size=1))
    found = await done(client.transactions.get(prompt))
    told = {"id": found.transaction_id, "status": "SUCCESS", "type": "STK", "amount": 5, "phone_number": PHONE}
    body = {"event": "transaction.updated", "event_type": "transaction.success", "transaction": told}
    await done(client.transactions.confirm(parse_callback(json.dumps(body).encode())))
    outcomes = client.payouts.pay_all([{"reference": "SAL-3", "amount": 10, "phone": PHONE}], journal=journal)
    assert [outcome.error for outcome in await listed(outcomes)] == [None]
    await done(client.transactions.sweep(journal=journal))


def run(kind: str, key: str, sandbox: Sandbox, use: Callable[[Any], Any], **options: Any) -> None:
    """Run a coroutine function with a client of this kind."""

    async def blocking() -> None:
        with Client(key, base_url=sandbox.base_url, **options) as client:
            await use(client)

    async def asynchronous() -> None:
        async with AsyncClient(key, base_url=sandbox.base_url, **options) as client:
            await use(client)

    if kind == "blocking":
        anyio.run(blocking)
    else:
        anyio.run(asynchronous, backend=kind)


KINDS = pytest.mark.parametrize("kind", ["blocking", "asyncio", "trio"])


@KINDS
@pytest.mark.usefixtures("no_backoff")
def test_neither_spans_nor_metrics_show_a_key_a_phone_or_a_query(
    telemetry: Telemetry, sandbox: Sandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    key = unique_key()
    with Journal(f"sqlite:///{tmp_path / 'payments.db'}") as journal:
        watched = Watched(telemetry, journal)
        use = partial(pay_in_every_way, journal=journal, sandbox=sandbox)
        with caplog.at_level(logging.ERROR, "momopay"):
            run(kind, key, sandbox, use, on_event=watched)
        texts = list(telemetry.texts())
        counts = {name: telemetry.values(name) for name in ("momopay.stk.success_rate", "momopay.journal.unresolved")}
    assert "on_event failed" not in caplog.text
    secrets = {key, base64.b64encode(f"{key}:".encode()).decode(), PHONE, CANCELS, *LOCAL, "q=", "url.full"}
    assert {secret for secret in secrets for text in texts if secret in text} == set()
    assert len(texts) > 50
    # One of two prompts was paid, whoever reported it: two waits, a callback and a sweep.
    assert counts["momopay.stk.success_rate"] == {(): 0.5}
    assert counts["momopay.journal.unresolved"] == {(): 1}
    check_tree(telemetry.spans, watched)


def check_tree(spans: tuple[ReadableSpan, ...], watched: Watched) -> None:
    """Check that each call has one span, and each attempt one below it."""
    operations = {span.context.span_id: span for span in spans if span.kind is SpanKind.INTERNAL and span.context}
    attempts = [span for span in spans if span.kind is SpanKind.CLIENT]
    assert len(operations) == len(watched.of(CallStarted)) == len(watched.of(CallEnded))
    assert len(attempts) == len(watched.of(AttemptEnded))
    for span in attempts:
        assert span.parent is not None
        operation = operations[span.parent.span_id]
        assert operation.start_time is not None
        assert span.start_time is not None
        assert span.end_time is not None
        assert operation.start_time - 5_000_000 <= span.start_time <= span.end_time
    assert sum(attributes_of(each)["momopay.attempts"] for each in operations.values()) == len(attempts)


@KINDS
@pytest.mark.usefixtures("no_backoff")
def test_a_call_that_is_retried_is_one_operation_of_two_attempts(
    telemetry: Telemetry, sandbox: Sandbox, kind: str
) -> None:
    async def read(client: Any) -> None:
        sandbox.fail_next("GET", "/wallets/service/balance", Fault.error_before_commit)
        await done(client.wallet.balance())

    run(kind, unique_key(), sandbox, read, on_event=observer(telemetry.tracers, telemetry.meters))
    failed, resent, operation = telemetry.spans
    assert [span.name for span in telemetry.spans] == ["GET /wallets/service/balance"] * 2 + ["wallet.balance"]
    host, port = "127.0.0.1", int(sandbox.base_url.rpartition(":")[2].partition("/")[0])
    common = {
        "http.request.method": "GET",
        "url.template": "/wallets/service/balance",
        "server.address": host,
        "server.port": port,
    }
    assert common.items() <= attributes_of(failed).items()
    assert common.items() <= attributes_of(resent).items()
    assert attributes_of(failed)["error.type"] == str(attributes_of(failed)["http.response.status_code"]) == "500"
    assert attributes_of(resent)["http.request.resend_count"] == 1
    assert [span.status.status_code.name for span in telemetry.spans] == ["ERROR", "UNSET", "UNSET"]
    assert telemetry.values("momopay.retries") == {("wallet.balance", "ServerError"): 1}
    assert {span.parent and span.parent.span_id for span in (failed, resent)} == {
        operation.context and operation.context.span_id
    }


def test_an_operation_that_raises_has_the_error_and_whether_money_may_have_moved(
    telemetry: Telemetry, sandbox: Sandbox
) -> None:
    with Client(
        unique_key(), base_url=sandbox.base_url, on_event=observer(telemetry.tracers, telemetry.meters)
    ) as client:
        sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
        with pytest.raises(OutcomeUnknownError):
            client.payouts.initiate(amount=10, phone=PHONE, reference="SAL-1")
        with pytest.raises(ValueError, match="phone"):
            client.payouts.initiate(amount=10, phone="12", reference="SAL-2")
    sent, unclear, refused = telemetry.spans
    assert sent.status.status_code is unclear.status.status_code is refused.status.status_code is StatusCode.ERROR
    assert attributes_of(unclear)["momopay.may_have_executed"] is True
    assert attributes_of(refused)["momopay.may_have_executed"] is False
    assert [attributes_of(span)["error.type"] for span in (sent, unclear, refused)] == [
        "500",
        "OutcomeUnknownError",
        "RequestValidationError",
    ]


def test_calls_of_many_threads_are_below_the_spans_of_their_callers(telemetry: Telemetry, sandbox: Sandbox) -> None:
    tracer = telemetry.tracers.get_tracer("app")
    watched = Watched(telemetry)

    with Client(unique_key(), base_url=sandbox.base_url, on_event=watched) as client:

        def serve(number: int) -> None:
            with tracer.start_as_current_span(f"request-{number}"):
                client.wallet.balance()
                client.channels.list()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(serve, range(16)))
    check_callers(telemetry, 16)
    check_tree(tuple(span for span in telemetry.spans if not span.name.startswith("request")), watched)


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_calls_of_many_tasks_are_below_the_spans_of_their_callers(
    telemetry: Telemetry, sandbox: Sandbox, kind: str
) -> None:
    tracer = telemetry.tracers.get_tracer("app")

    async def serve_all(client: Any) -> None:
        async def serve(number: int) -> None:
            with tracer.start_as_current_span(f"request-{number}"):
                await client.wallet.balance()
                await client.channels.list()

        async with anyio.create_task_group() as group:
            for number in range(16):
                group.start_soon(serve, number)

    run(kind, unique_key(), sandbox, serve_all, on_event=observer(telemetry.tracers, telemetry.meters))
    check_callers(telemetry, 16)


def check_callers(telemetry: Telemetry, count: int) -> None:
    """Check that each caller's span has its own two operations, and nothing else, below it."""
    callers = [span for span in telemetry.spans if span.name.startswith("request")]
    assert len(callers) == count
    for caller in callers:
        assert caller.context is not None
        below = [span.name for span in telemetry.spans if span.parent and span.parent.span_id == caller.context.span_id]
        assert sorted(below) == ["channels.list", "wallet.balance"]


def test_the_callers_span_stays_the_current_one_between_the_steps_of_an_iterable(
    telemetry: Telemetry, sandbox: Sandbox
) -> None:
    watched = Watched(telemetry)
    with Client(unique_key(), base_url=sandbox.base_url, on_event=watched) as client:
        for number in range(3):
            client.stk.initiate(amount=5, phone=PHONE, account_reference=f"INV-{number}")
        with telemetry.tracers.get_tracer("app").start_as_current_span("report") as report:
            for _ in client.transactions.iter(page_size=1):
                assert trace.get_current_span() is report
                break
    # What a dropped iterator did has ended, too.
    assert len(watched.of(CallStarted)) == len(watched.of(CallEnded))
    assert len(telemetry.spans) == 1 + len(watched.of(CallEnded)) + len(watched.of(AttemptEnded))


def test_callbacks_of_a_view_are_counted_by_what_became_of_them(telemetry: Telemetry, tmp_path: Path) -> None:
    async def receive(journal: Journal) -> list[int]:
        on_event = observer(telemetry.tracers, telemetry.meters)
        app = Starlette()
        app.add_route(
            "/momo", callback_endpoint(Handler().handle, signer=SIGNER, journal=journal, on_event=on_event), ["POST"]
        )
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://shop.example") as service:
            requests = [(QUERY, BODY), (QUERY, BODY), (QUERY, b"garbage"), ("token=forged", BODY)]
            return [(await service.post(f"/momo?{query}", content=body)).status_code for query, body in requests]

    with Journal(f"sqlite:///{tmp_path / 'payments.db'}") as journal:
        assert anyio.run(receive, journal) == [200, 200, 400, 403]
    counted = {attributes: count for attributes, count in telemetry.values("momopay.callbacks").items() if count}
    assert counted == {("callbacks.receive", each): 1 for each in ("accepted", "duplicate", "invalid", "forged")}
    assert telemetry.values("momopay.payments.ended") == {("B2C", "SUCCESS"): 1}
    secrets = {PHONE, *LOCAL, QUERY, "SAL-1", CALLBACK.transaction_id}
    assert {secret for secret in secrets for text in telemetry.texts() if secret in text} == set()


def test_without_an_sdk_it_does_nothing(sandbox: Sandbox) -> None:
    with Client(unique_key(), base_url=sandbox.base_url, on_event=observer()) as client:
        assert client.wallet.balance().currency == "KES"
