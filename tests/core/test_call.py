"""The repeat table at real sockets, over both clients: requests that arrived and payments executed are counted."""

from __future__ import annotations

import inspect
import json
import random
import socket
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

import pytest

import momopay
import wire
from drivers import Driver, unique_key
from momopay._core.key_state import StkPause
from wire import Server, Step

Drive = Callable[..., Driver]
Call = Callable[[Any], Any]
pytestmark = pytest.mark.usefixtures("no_backoff")

LATE = 2.0
"""Seconds that a busy machine may take longer; the promised 250 ms are held in tests/hostile."""
MEBIBYTE = wire.MEBIBYTE
PHONE = "254712345678"


@dataclass(frozen=True)
class Column:
    """A column of the table: how one kind of call fails in the end, and whether an unclear failure repeats it."""

    name: str
    call: Call
    repeats: bool
    unanswered: type[momopay.MomoPayError] = momopay.OutcomeUnknownError
    broken_server: type[momopay.MomoPayError] = momopay.OutcomeUnknownError
    nonsense: type[momopay.MomoPayError] = momopay.OutcomeUnknownError
    may_have_executed: bool = True
    pays: bool = True

    def requests(self, attempts: int) -> int:
        return attempts if self.repeats else 1


def initiate_stk(client: Any) -> Any:
    return client.stk.initiate(
        amount=100,
        phone="0712 345 678",
        account_reference="INV-42",
        transaction_desc="Order 42",
        callback_url="https://shop.example/momo",
    )


def initiate_payout(client: Any) -> Any:
    return client.payouts.initiate(amount=Decimal("100.50"), phone="+254712345678", reference="INV-42")


def read_balance(client: Any) -> Any:
    return client.wallet.balance()


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=100, phone="0712345678", account_reference="INV-42")


def create_channel(client: Any) -> Any:
    return client.channels.create(name="Shop", type="PAYBILL", shortcode="600100", account_number="42")


def update_channel(client: Any) -> Any:
    return client.channels.update("2d9a4a0e", name="Kiosk")


def delete_channel(client: Any) -> Any:
    return client.channels.delete("2d9a4a0e")


SAFE: Mapping[str, Any] = {
    "repeats": True,
    "unanswered": momopay.APIConnectionError,
    "broken_server": momopay.ServerError,
    "nonsense": momopay.ProtocolError,
    "pays": False,
}
TOP_UP = Column("top-up", top_up, repeats=True)
STK = Column("stk", initiate_stk, repeats=False)
PAYOUT = Column("payout", initiate_payout, repeats=False)
CREATE = Column("create", create_channel, repeats=False)
UPDATE = Column("update", update_channel, **SAFE)
GET = replace(UPDATE, name="get", call=read_balance, may_have_executed=False)
DELETE = Column("delete", delete_channel, **SAFE)
COLUMNS = (GET, TOP_UP, STK, PAYOUT, CREATE, UPDATE, DELETE)
NOT_DELETE = tuple(column for column in COLUMNS if column is not DELETE)
MONEY = (TOP_UP, STK, PAYOUT)


def columns(*some: Column) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("column", some or COLUMNS, ids=lambda column: str(column.name))


def steps(**named: Step) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("step", list(named.values()), ids=list(named))


def pause_of(error: Any) -> float:
    assert error.retry_after is not None
    return float(error.retry_after)


def failure(driver: Driver, call: Call) -> Any:
    with pytest.raises(momopay.MomoPayError) as raised:
        driver(call)
    return raised.value


@pytest.fixture
def reach(drive: Drive) -> Drive:
    """Make a client of the test's colour for a server, with a key of its own."""

    def make(server: Server, **options: Any) -> Driver:
        return drive(**{"base_url": server.base_url, "api_key": unique_key(), "timeout": 5.0, **options})

    return make


def assert_one_key(server: Server) -> None:
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(keys) == 1


# The normal answer, to know that the rest fails for its own reason.


@columns()
def test_a_normal_answer_takes_one_request(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as server:
        reach(server)(column.call)

        assert len(server.requests) == 1
        assert server.payments == (1 if column.pays else 0)


# Refused locally.


REFUSED_HERE: list[Call] = [
    lambda client: client.transactions.list(limit=0),
    lambda client: client.wallet.top_up(amount=0, phone=PHONE),
    lambda client: client.stk.initiate(amount=Decimal("0.99"), phone=PHONE),
    lambda client: client.payouts.initiate(amount=9, phone=PHONE, reference="INV-42"),
    lambda client: client.channels.create(name="Shop", type="PAYBILL", shortcode="600100"),
    lambda client: client.channels.update("", name="Kiosk"),
    lambda client: client.channels.delete(""),
]


@pytest.mark.parametrize("call", REFUSED_HERE, ids=[column.name for column in COLUMNS])
def test_what_is_refused_locally_reaches_no_socket(reach: Drive, call: Call) -> None:
    with wire.serve(wire.succeeds()) as server:
        error = failure(reach(server), call)

        assert isinstance(error, momopay.RequestValidationError)
        assert not error.may_have_executed
        assert (server.connections, server.requests) == (0, [])


# Surely not sent.


def listen_at_wait(monkeypatch: pytest.MonkeyPatch, server: Server, number: int) -> None:
    """Take connections from the client's n-th wait on."""
    waits: list[float] = []

    def no_wait(_low: float, high: float) -> float:
        waits.append(high)
        if len(waits) == number:
            server.listen()
        return 0.0

    monkeypatch.setattr(random, "uniform", no_wait)


@columns()
def test_a_connection_refused_three_times_succeeds_at_the_fourth(
    reach: Drive, column: Column, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wire.serve(wire.succeeds(), listening=False) as server:
        listen_at_wait(monkeypatch, server, 3)
        reach(server)(column.call)

        assert len(server.requests) == 1
        assert server.payments == (1 if column.pays else 0)


@columns()
def test_a_connection_refused_four_times_is_surely_not_sent(
    reach: Drive, column: Column, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wire.serve(wire.succeeds(), listening=False) as server:
        listen_at_wait(monkeypatch, server, 4)
        error = failure(reach(server), column.call)

        assert type(error) is momopay.APIConnectionError
        assert not error.may_have_executed
        assert server.connections == 0


@columns(TOP_UP, STK)
def test_a_connect_timeout_is_repeated_and_surely_not_sent(drive: Drive, column: Column) -> None:
    with wire.full_backlog() as port:
        driver = drive(base_url=f"http://127.0.0.1:{port}/v1", api_key=unique_key(), timeout=0.15, max_attempts=2)
        started = time.monotonic()
        error = failure(driver, column.call)
        elapsed = time.monotonic() - started

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed
    assert 0.25 < elapsed < 0.3 + LATE


@columns(TOP_UP, STK)
def test_a_deadline_that_passes_while_connecting_means_surely_not_sent(drive: Drive, column: Column) -> None:
    with wire.full_backlog() as port:
        driver = drive(base_url=f"http://127.0.0.1:{port}/v1", api_key=unique_key(), timeout=30.0, deadline=0.3)
        started = time.monotonic()
        error = failure(driver, column.call)
        elapsed = time.monotonic() - started

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed
    assert elapsed < 0.3 + LATE


@columns(GET, STK)
def test_a_name_that_resolves_nowhere_is_surely_not_sent(drive: Drive, column: Column) -> None:
    error = failure(drive(base_url="https://momopay.invalid/v1", api_key=unique_key()), column.call)

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed


@columns()
def test_a_failed_tls_handshake_is_repeated_and_surely_not_sent(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as server:
        error = failure(reach(server, base_url=f"https://127.0.0.1:{server.port}/v1"), column.call)

        assert type(error) is momopay.APIConnectionError
        assert not error.may_have_executed
        assert (server.connections, server.requests) == (4, [])


@columns(TOP_UP, STK)
def test_a_timer_that_fires_within_the_tls_handshake_means_surely_not_sent(drive: Drive, column: Column) -> None:
    with wire.silent() as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        driver = drive(base_url=url, api_key=unique_key(), timeout=0.15, max_attempts=2)
        started = time.monotonic()
        error = failure(driver, column.call)
        elapsed = time.monotonic() - started

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed
    assert 0.25 < elapsed < 0.3 + LATE


# Sent, and no valid reply.


def assert_unanswered(error: Any, column: Column, server: Server, attempts: int, *, commits: bool) -> None:
    assert type(error) is column.unanswered
    assert error.may_have_executed is column.may_have_executed
    assert len(server.requests) == column.requests(attempts)
    assert server.payments == (1 if column.pays and commits else 0)
    if column is TOP_UP:
        assert_one_key(server)


@columns()
@steps(
    reset_before_reading=wire.resets_before_reading(),
    reset_before_commit=wire.resets(),
    reset_after_commit=wire.resets(commits=True),
    close_before_commit=wire.closes(),
    close_after_commit=wire.closes(commits=True),
    half_an_answer=wire.half_answer(),
)
def test_a_connection_that_breaks_before_the_answer(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        error = failure(reach(server), column.call)

        assert_unanswered(error, column, server, 4, commits=step.commits)


@columns(*NOT_DELETE)
@steps(
    closed=wire.truncated(),
    reset=wire.truncated(end=wire.Exchange.reset),
)
def test_a_body_shorter_than_its_content_length(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        error = failure(reach(server), column.call)

        assert_unanswered(error, column, server, 4, commits=True)


@columns()
def test_an_answer_that_never_comes(reach: Drive, column: Column) -> None:
    with wire.serve(wire.hangs()) as server:
        error = failure(reach(server, timeout=0.15, max_attempts=2), column.call)

        assert_unanswered(error, column, server, 2, commits=True)


@columns(TOP_UP, PAYOUT)
@steps(headers=wire.drips_headers(), body=wire.drips_body())
def test_an_answer_that_takes_too_long(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        error = failure(reach(server, timeout=0.15, max_attempts=2), column.call)

        assert_unanswered(error, column, server, 2, commits=True)


@columns()
@steps(
    reset=wire.resets(commits=True),
    closed=wire.closes(commits=True),
    error=wire.refuses(500, "INTERNAL"),
    timeout=wire.answers(408),
)
def test_an_unclear_failure_is_repeated_only_where_that_is_safe(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.Step(step.play, commits=True), wire.succeeds()) as server:
        driver = reach(server)
        if column.repeats:
            driver(column.call)
            assert len(server.requests) == 2
        else:
            assert type(failure(driver, column.call)) is momopay.OutcomeUnknownError
            assert len(server.requests) == 1
        assert server.payments == (1 if column.pays else 0)


# 5xx, 408, 3xx, and answers that are not SPEC.md's.


@columns()
@steps(
    internal_error=wire.refuses(500, "INTERNAL"),
    bare_500=wire.answers(500),
    html_502=wire.html(502),
    unavailable=wire.refuses(503, "UNAVAILABLE", headers={"Retry-After": "0"}),
    html_504=wire.html(504),
    bare_408=wire.answers(408),
    enveloped_408=wire.refuses(408, "REQUEST_TIMEOUT"),
    success_with_500=wire.answers(500, wire.envelope({"transactionId": "t"})),
)
def test_a_server_error(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.Step(step.play, commits=True)) as server:
        error = failure(reach(server), column.call)

        assert type(error) is column.broken_server
        assert error.may_have_executed is column.may_have_executed
        assert len(server.requests) == column.requests(4)
        assert server.payments == (1 if column.pays else 0)
        if column is TOP_UP:
            assert_one_key(server)


@columns(STK, PAYOUT, TOP_UP, CREATE)
def test_a_refusal_by_a_5xx_is_not_definite_whatever_its_code(reach: Drive, column: Column) -> None:
    with wire.serve(wire.refuses(500, "INVALID_PHONE")) as server:
        error = failure(reach(server), column.call)

        assert type(error) is momopay.OutcomeUnknownError
        assert len(server.requests) == column.requests(4)


NONSENSE: Mapping[str, Step] = {
    "redirect": wire.redirects(),
    "moved": wire.answers(301, headers={"Location": "/v1/elsewhere"}),
    "redirect_with_envelope": wire.answers(302, wire.error_envelope("MOVED")),
    "not_modified": wire.answers(304),
    "bare_429": wire.answers(429, headers={"Retry-After": "0"}),
    "html_429": wire.html(429),
    "html_404": wire.html(404),
    "html_403": wire.html(403),
    "bare_400": wire.answers(400),
    "empty_error_envelope": wire.answers(400, b'{"success": false}'),
    "success_with_400": wire.answers(400, wire.envelope({})),
}
UNREADABLE: Mapping[str, Step] = {
    "html_200": wire.html(200),
    "empty_200": wire.answers(200),
    "no_content": wire.answers(204),
    "broken_json": wire.answers(200, b'{"success": true, "data": {'),
    "not_an_object": wire.answers(200, b"[]"),
    "null": wire.answers(200, b"null"),
    "empty_object": wire.answers(200, b"{}"),
    "no_data": wire.answers(200, b'{"success": true}'),
    "data_is_null": wire.answers(200, wire.envelope(None)),
    "data_is_a_list": wire.answers(200, wire.envelope([])),
    "data_is_empty": wire.answers(200, wire.envelope({})),
    "success_is_text": wire.answers(200, b'{"success": "true", "data": {}}'),
    "refusal_without_error": wire.answers(200, b'{"success": false}'),
    "not_utf8": wire.answers(200, b'\xff\xfe{"success": true}'),
    "endless_number": wire.answers(200, b'{"success": true, "data": ' + b"9" * 5000 + b"}"),
    "deeply_nested_list": wire.answers(200, b'{"success": true, "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deeply_nested_object": wire.answers(200, b'{"data":' * 100_000 + b"1" + b"}" * 100_000),
    "cut_off_without_length": wire.truncated(with_length=False),
}


def assert_nonsense(error: Any, column: Column, server: Server) -> None:
    assert type(error) is column.nonsense
    assert error.may_have_executed is column.may_have_executed
    assert len(server.requests) == 1
    assert server.payments == (1 if column.pays else 0)


@columns()
@steps(**NONSENSE)
def test_an_answer_that_is_not_the_services(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.Step(step.play, commits=True)) as server:
        error = failure(reach(server), column.call)

        assert_nonsense(error, column, server)


@columns(*NOT_DELETE)
@steps(**UNREADABLE)
def test_a_success_that_does_not_parse(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.Step(step.play, commits=True)) as server:
        error = failure(reach(server), column.call)

        assert_nonsense(error, column, server)


@pytest.mark.parametrize("status", [200, 400, 409])
@columns(GET, STK)
def test_a_deeply_nested_answer_is_nonsense_at_any_status(reach: Drive, column: Column, status: int) -> None:
    nested = b'{"success": false, "error": {"code": "A", "details": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    with wire.serve(wire.answers(status, nested, commits=True)) as server:
        error = failure(reach(server), column.call)

        assert_nonsense(error, column, server)


@columns()
def test_a_redirect_is_never_followed(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as elsewhere, wire.serve(wire.succeeds()) as server:
        server.script = (wire.redirects(f"{elsewhere.base_url}/payments/stk"),)
        error = failure(reach(server), column.call)

        assert type(error) is column.nonsense
        assert len(server.requests) == 1
        assert (elsewhere.connections, elsewhere.payments) == (0, 0)


# Any 2xx to DELETE is success, and so is 404 after an unclear one.


@steps(
    no_content=wire.answers(204),
    empty=wire.answers(200),
    accepted=wire.answers(202, b"later"),
    html=wire.html(200),
    null=wire.answers(200, wire.envelope(None)),
    refusal_in_a_success=wire.answers(200, b'{"success": false}'),
    nested=wire.answers(200, b"[" * 100_000),
    cut_off=wire.truncated(with_length=False),
)
def test_any_success_status_deletes(reach: Drive, step: Step) -> None:
    with wire.serve(step) as server:
        assert reach(server)(delete_channel) is None
        assert len(server.requests) == 1


@steps(shorter=wire.truncated(), dripped=wire.drips_body(), oversized=wire.padded(9 * MEBIBYTE))
def test_a_success_status_deletes_whatever_becomes_of_the_body(reach: Drive, step: Step) -> None:
    with wire.serve(step, wire.refuses(404, "CHANNEL_NOT_FOUND")) as server:
        assert reach(server, timeout=0.4)(delete_channel) is None
        assert len(server.requests) <= 2


@steps(
    reset=wire.resets(),
    closed=wire.closes(),
    hung=wire.hangs(),
    error=wire.refuses(500, "INTERNAL"),
    timeout=wire.answers(408),
)
def test_not_found_after_an_unclear_delete_is_success(reach: Drive, step: Step) -> None:
    with wire.serve(step, wire.refuses(404, "CHANNEL_NOT_FOUND")) as server:
        assert reach(server, timeout=0.3)(delete_channel) is None
        assert len(server.requests) == 2


@pytest.mark.parametrize("code", ["TRANSACTION_NOT_FOUND", "SOMETHING_NEW"])
def test_not_found_after_an_unclear_delete_is_success_by_any_code(reach: Drive, code: str) -> None:
    with wire.serve(wire.resets(), wire.refuses(404, code)) as server:
        assert reach(server)(delete_channel) is None
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "script",
    [
        [wire.refuses(404, "CHANNEL_NOT_FOUND")],
        [wire.refuses(429, "RATE_LIMIT_EXCEEDED", {"resetInSeconds": 0}), wire.refuses(404, "CHANNEL_NOT_FOUND")],
    ],
    ids=["at_once", "after_a_definite_refusal"],
)
def test_not_found_without_an_unclear_delete_is_an_error(reach: Drive, script: list[Step]) -> None:
    with wire.serve(*script) as server:
        error = failure(reach(server), delete_channel)

        assert type(error) is momopay.ChannelNotFoundError
        assert not error.may_have_executed
        assert len(server.requests) == len(script)


def test_not_found_after_an_unclear_update_is_an_error(reach: Drive) -> None:
    with wire.serve(wire.resets(), wire.refuses(404, "CHANNEL_NOT_FOUND")) as server:
        error = failure(reach(server), update_channel)

        assert type(error) is momopay.ChannelNotFoundError
        assert len(server.requests) == 2


# Definite refusals.


@columns()
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "INVALID_PHONE", momopay.InvalidPhoneError),
        (400, "NO_PAYMENT_CHANNELS", momopay.NoPaymentChannelsError),
        (400, "NO_DEFAULT_CHANNEL", momopay.NoDefaultChannelError),
        (400, "CHANNEL_NOT_FOUND", momopay.ChannelNotFoundError),
        (401, "INVALID_API_KEY", momopay.InvalidApiKeyError),
        (402, "INSUFFICIENT_SERVICE_BALANCE", momopay.InsufficientServiceBalanceError),
        (403, "KYC_NOT_VERIFIED", momopay.KycNotVerifiedError),
        (409, "INSUFFICIENT_FUNDS", momopay.InsufficientFundsError),
        (409, "CHANNEL_IN_USE", momopay.ChannelInUseError),
        (404, "TRANSACTION_NOT_FOUND", momopay.TransactionNotFoundError),
        (422, "VALIDATION_FAILED", momopay.APIError),
        (409, "SOMETHING_NEW", momopay.APIError),
        (429, "SOMETHING_NEW", momopay.APIError),
    ],
)
def test_an_enveloped_refusal_is_definite(
    reach: Drive, column: Column, status: int, code: str, kind: type[momopay.APIError]
) -> None:
    with wire.serve(wire.refuses(status, code)) as server:
        error = failure(reach(server), column.call)

        assert type(error) is kind
        assert (error.code, error.status_code, error.request_id) == (code, status, "9f1c")
        assert not error.may_have_executed
        assert (len(server.requests), server.payments) == (1, 0)


@columns(*NOT_DELETE)
def test_a_refusal_with_status_200_is_definite(reach: Drive, column: Column) -> None:
    with wire.serve(wire.refuses(200, "INSUFFICIENT_FUNDS"), wire.refuses(200, "SOMETHING_NEW")) as server:
        driver = reach(server)
        known, unknown = failure(driver, column.call), failure(driver, column.call)

        assert (type(known), type(unknown)) == (momopay.InsufficientFundsError, momopay.APIError)
        assert not known.may_have_executed
        assert not unknown.may_have_executed
        assert len(server.requests) == 2


# 429 RATE_LIMIT_EXCEEDED.


def limited(reset: Any = None, retry_after: str | None = None) -> Step:
    details = {"limit": 60, "remaining": 0} | ({} if reset is None else {"resetInSeconds": reset})
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return wire.refuses(429, "RATE_LIMIT_EXCEEDED", details, headers)


@columns()
def test_a_rate_limit_is_repeated_when_it_is_over(reach: Drive, column: Column) -> None:
    with wire.serve(limited(reset=0), wire.succeeds()) as server:
        reach(server)(column.call)

        assert len(server.requests) == 2
        assert server.payments == (1 if column.pays else 0)
        if column is TOP_UP:
            assert_one_key(server)


@columns()
def test_a_rate_limit_without_end_takes_four_requests(reach: Drive, column: Column) -> None:
    with wire.serve(limited(reset=0)) as server:
        error = failure(reach(server), column.call)

        assert type(error) is momopay.RateLimitExceededError
        assert not error.may_have_executed
        assert (len(server.requests), server.payments) == (4, 0)


@columns()
def test_a_rate_limit_past_the_deadline_is_raised_at_once(reach: Drive, column: Column) -> None:
    with wire.serve(limited(reset=30)) as server:
        driver = reach(server, deadline=5.0)
        started = time.monotonic()
        error = failure(driver, column.call)

        assert time.monotonic() - started < LATE
        assert type(error) is momopay.RateLimitExceededError
        assert (error.limit, error.remaining, error.reset_in_seconds) == (60, 0, 30)
        assert 29.5 < pause_of(error) <= 30
        assert not error.may_have_executed
        assert len(server.requests) == 1


@pytest.mark.parametrize(("reset", "retry_after"), [(30, "0"), (0, "30"), (30, "soon"), ("soon", "30"), (20, "30")])
def test_the_longer_of_two_pauses_counts(reach: Drive, reset: Any, retry_after: str) -> None:
    with wire.serve(limited(reset, retry_after)) as server:
        error = failure(reach(server, deadline=5.0), initiate_stk)

        assert type(error) is momopay.RateLimitExceededError
        assert 29.5 < pause_of(error) <= 30
        assert len(server.requests) == 1


def test_a_rate_limit_is_never_repeated_earlier_than_asked(reach: Drive) -> None:
    with wire.serve(limited(reset=1, retry_after="0"), wire.succeeds()) as server:
        reach(server, deadline=10.0)(initiate_stk)

        earlier, later = server.requests
        assert 1.0 <= later.at - earlier.at < 1.0 + LATE


def test_a_rate_limit_until_an_http_date_is_waited_for(reach: Drive) -> None:
    asked = (datetime.now(UTC) + timedelta(seconds=1.3)).replace(microsecond=0)
    with wire.serve(limited(None, format_datetime(asked, usegmt=True)), wire.succeeds()) as server:
        reach(server, deadline=10.0)(initiate_stk)

        assert len(server.requests) == 2
        assert datetime.now(UTC) >= asked


@pytest.mark.parametrize(
    ("reset", "retry_after"),
    [
        (None, None),
        (None, "soon"),
        (None, ""),
        (None, "-30"),
        (None, "+30"),
        (None, "3_0"),
        (None, "30.5"),
        (None, "1e3"),
        (None, "nan"),
        (None, "inf"),
        (None, "0x1e"),
        (None, "\u00b2"),
        (None, "Thu, 99 Foo 2026 00:00:00 GMT"),
        (None, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (None, "Mon, 01 Jan 0001 00:00:00 +1400"),
        (-30, None),
        ("30", None),
        (True, None),
        ([30], None),
        ({}, "junk"),
    ],
)
def test_a_senseless_pause_is_ignored(reach: Drive, reset: Any, retry_after: str | None) -> None:
    with wire.serve(limited(reset, retry_after), wire.succeeds()) as server:
        driver = reach(server, deadline=5.0)
        started = time.monotonic()
        driver(initiate_stk)

        assert time.monotonic() - started < LATE
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reset", "retry_after"),
    [
        (10**30, None),
        (None, "9" * 30),
        (None, "9" * 400),
        (None, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (30, "-5"),
        (30, "junk"),
    ],
)
def test_a_pause_of_any_length_is_a_typed_error(reach: Drive, reset: Any, retry_after: str | None) -> None:
    with wire.serve(limited(reset, retry_after)) as server:
        error = failure(reach(server, deadline=5.0), initiate_payout)

        assert type(error) is momopay.RateLimitExceededError
        assert error.retry_after is not None
        assert error.retry_after > 5
        assert len(server.requests) == 1


def test_a_rate_limit_stops_everyone_on_the_budget(reach: Drive) -> None:
    budget, key = momopay.RateBudget(), unique_key()
    with wire.serve(limited(reset=30), wire.succeeds()) as server:
        one = reach(server, budget=budget, api_key=key, deadline=1.0)
        other = reach(server, budget=budget, api_key=key, deadline=1.0)
        failure(one, read_balance)
        for column in COLUMNS:
            error = failure(other, column.call)
            assert type(error) is momopay.BudgetExhaustedError
            assert 28.5 < pause_of(error) <= 30
            assert not error.may_have_executed

        assert len(server.requests) == 1


def test_a_rate_limit_stops_the_budget_that_clients_share_by_default(colour: str) -> None:
    key = unique_key()
    with wire.serve(limited(reset=30), wire.succeeds()) as server:
        drivers = [shared_budget_driver(colour, server, key) for _ in range(2)]
        failure(drivers[0], read_balance)
        error = failure(drivers[1], initiate_stk)
        for driver in drivers:
            driver.close()

        assert type(error) is momopay.BudgetExhaustedError
        assert len(server.requests) == 1


def shared_budget_driver(colour: str, server: Server, key: str) -> Driver:
    kind = momopay.AsyncClient if colour == "async" else momopay.Client
    default = inspect.signature(kind.__init__).parameters["budget"].default
    return Driver(colour, base_url=server.base_url, api_key=key, deadline=1.0, budget=default)


# 429 STK_TEMP_BANNED and TRANSACTION_HEALTH_BLOCKED.


BANS = pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("STK_TEMP_BANNED", momopay.StkTempBannedError),
        ("TRANSACTION_HEALTH_BLOCKED", momopay.TransactionHealthBlockedError),
    ],
)


@BANS
@columns()
def test_a_ban_is_raised_at_once(reach: Drive, column: Column, code: str, kind: type[momopay.ThrottledError]) -> None:
    with wire.serve(wire.refuses(429, code, {"retryAfterSeconds": 1})) as server:
        error = failure(reach(server), column.call)

        assert type(error) is kind
        assert 0.8 < pause_of(error) <= 1
        assert not error.may_have_executed
        assert (len(server.requests), server.payments) == (1, 0)


@BANS
def test_a_ban_refuses_further_stk_locally_until_it_ends(
    reach: Drive, code: str, kind: type[momopay.ThrottledError]
) -> None:
    key = unique_key()
    with wire.serve(wire.refuses(429, code, {"retryAfterSeconds": 0.5}), wire.succeeds()) as server:
        driver, other = reach(server, api_key=key), reach(server, api_key=key)
        failure(driver, initiate_stk)
        asked_at = server.requests[0].at
        for each in (driver, other):
            error = failure(each, initiate_stk)
            assert type(error) is kind
            assert error.code == code
            assert 0 < pause_of(error) <= 0.5
            assert not error.may_have_executed
        assert len(server.requests) == 1

        for call in (initiate_payout, read_balance):
            driver(call)
        assert len(server.requests) == 3

        reach(server)(initiate_stk)  # another key is another account
        assert len(server.requests) == 4

        time.sleep(max(0.0, asked_at + 0.6 - time.monotonic()))
        other(initiate_stk)
        assert len(server.requests) == 5


def test_of_two_pauses_the_longer_holds() -> None:
    pause = StkPause()
    pause.begin(0.0, momopay.StkTempBannedError("banned", retry_after=3600.0, code="STK_TEMP_BANNED", status_code=429))
    pause.begin(
        1.0,
        momopay.TransactionHealthBlockedError(
            "blocked", retry_after=1.0, code="TRANSACTION_HEALTH_BLOCKED", status_code=429
        ),
    )
    held = pause.refusal(3599.0)
    assert isinstance(held, momopay.StkTempBannedError)
    assert held.retry_after == 1.0
    assert pause.refusal(3600.0) is None


def test_a_block_carries_what_was_judged_also_when_it_is_refused_locally(reach: Drive) -> None:
    until = (datetime.now(UTC) + timedelta(seconds=1800)).isoformat()
    details = {
        "retryAfterSeconds": 1800,
        "blockedUntil": until,
        "successRate": 0.21,
        "sampleSize": 100,
        "minSuccessRate": 0.3,
    }
    with wire.serve(wire.refuses(429, "TRANSACTION_HEALTH_BLOCKED", details)) as server:
        driver = reach(server)
        for error in (failure(driver, initiate_stk), failure(driver, initiate_stk)):
            assert error.blocked_until == datetime.fromisoformat(until)
            assert (error.success_rate, error.sample_size, error.min_success_rate) == (0.21, 100, 0.3)
            assert 1798 < pause_of(error) <= 1800
        assert len(server.requests) == 1


def test_the_seconds_of_a_block_count_whatever_the_clocks_say(reach: Drive) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    details = {"retryAfterSeconds": 1800, "blockedUntil": until}
    with wire.serve(wire.refuses(429, "TRANSACTION_HEALTH_BLOCKED", details)) as server:
        assert 1798 < pause_of(failure(reach(server), initiate_stk)) <= 1800


def test_a_block_that_only_names_its_end_is_kept_until_then(reach: Drive) -> None:
    until = datetime.now(UTC) + timedelta(seconds=0.4)
    details = {"blockedUntil": until.isoformat()}
    with wire.serve(wire.refuses(429, "TRANSACTION_HEALTH_BLOCKED", details), wire.succeeds()) as server:
        driver = reach(server)
        for _ in range(2):
            failure(driver, initiate_stk)
        assert len(server.requests) == 1

        time.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds() + 0.1))
        driver(initiate_stk)
        assert len(server.requests) == 2


# What an unknown outcome carries.


def assert_carries(error: Any, column: Column, before: datetime) -> None:
    assert type(error) is momopay.OutcomeUnknownError
    assert error.reference == "INV-42"
    assert error.amount == (Decimal("100.50") if column is PAYOUT else 100)
    assert isinstance(error.amount, Decimal)
    assert error.phone == PHONE
    assert before <= error.sent_at <= datetime.now(UTC)
    assert PHONE not in f"{error} {error!r}"


@columns(*MONEY)
@steps(reset=wire.resets(commits=True), error=wire.refuses(500, "INTERNAL"), html=wire.html(200))
def test_an_unknown_outcome_carries_what_to_reconcile_with(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        before = datetime.now(UTC)
        error = failure(reach(server), column.call)

        assert_carries(error, column, before)
        assert error.transaction_id is None
        sent = server.requests[0].headers.get("idempotency-key")
        assert error.idempotency_key == sent
        assert (sent is not None) == (column is TOP_UP)


@columns(*MONEY)
@steps(
    shorter_than_its_length=wire.truncated(),
    cut_off_without_length=wire.truncated(with_length=False),
    reset_in_the_middle=wire.truncated(end=wire.Exchange.reset),
    stuck_in_the_middle=wire.truncated(end=wire.Exchange.hang),
    whole_with_500=wire.answers(500, wire.envelope({"transactionId": wire.TRANSACTION_ID})),
    whole_but_unreadable=wire.answers(200, wire.envelope({"transactionId": wire.TRANSACTION_ID})),
)
def test_a_transaction_id_seen_in_a_broken_answer_is_kept(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        before = datetime.now(UTC)
        error = failure(reach(server, timeout=0.2, max_attempts=1), column.call)

        assert_carries(error, column, before)
        assert error.transaction_id == wire.TRANSACTION_ID


@steps(reset=wire.resets(), error=wire.refuses(500, "INTERNAL"), limited=limited(reset=3600))
def test_a_transaction_id_seen_by_an_earlier_attempt_is_kept(reach: Drive, step: Step) -> None:
    with wire.serve(wire.truncated(), step) as server:
        error = failure(reach(server), top_up)

        assert len(server.requests) > 1
        assert type(error) is momopay.OutcomeUnknownError
        assert error.transaction_id == wire.TRANSACTION_ID


def test_sent_at_is_the_first_of_several_attempts(reach: Drive, backoff: Callable[[float], None]) -> None:
    backoff(0.5)
    with wire.serve(wire.resets()) as server:
        before = datetime.now(UTC)
        error = failure(reach(server, max_attempts=3), top_up)

        assert len(server.requests) == 3
        assert error.sent_at - before < timedelta(seconds=0.5)


def test_a_new_channel_of_unknown_fate_says_when_it_was_sent(reach: Drive) -> None:
    with wire.serve(wire.resets()) as server:
        before = datetime.now(UTC)
        error = failure(reach(server), create_channel)

        assert before <= error.sent_at <= datetime.now(UTC)
        assert (error.amount, error.phone, error.idempotency_key) == (None, None, None)


# The idempotency key of a top-up.


def test_each_top_up_has_a_key_of_its_own(reach: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = reach(server)
        for _ in range(2):
            driver(top_up)

        assert len({request.headers["idempotency-key"] for request in server.requests}) == 2
        assert server.payments == 2


def test_a_given_idempotency_key_is_the_one_that_is_sent(reach: Drive) -> None:
    with wire.serve(wire.closes(commits=True), wire.refuses(503, "UNAVAILABLE"), wire.succeeds()) as server:
        reach(server)(lambda client: client.wallet.top_up(amount=5, phone=PHONE, idempotency_key="mine-1"))

        assert [request.headers["idempotency-key"] for request in server.requests] == ["mine-1"] * 3
        assert len({request.body for request in server.requests}) == 1
        assert server.payments == 1


@pytest.mark.parametrize("key", ["a\r\nX-Injected: 1", "a\nb", "a\x00b", "", "\u20ac"])
def test_a_key_that_no_header_can_carry_is_refused_locally(reach: Drive, key: str) -> None:
    with wire.serve(wire.succeeds()) as server:
        error = failure(reach(server), lambda client: client.wallet.top_up(amount=5, phone=PHONE, idempotency_key=key))

        assert isinstance(error, momopay.RequestValidationError)
        assert server.connections == 0


def test_only_a_top_up_sends_an_idempotency_key(reach: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = reach(server)
        for column in COLUMNS:
            driver(column.call)

        keyed = [request.path for request in server.requests if "idempotency-key" in request.headers]
        assert keyed == ["/v1/wallets/service/topups"]


# An unclear failure is not forgotten when a later attempt fails clearly.


@columns(TOP_UP, UPDATE, DELETE)
def test_an_unclear_failure_followed_by_a_refused_connection_stays_unclear(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as server:
        server.script = (wire.first(server.stop_listening, wire.closes(commits=True)),)
        error = failure(reach(server), column.call)

        assert error.may_have_executed
        assert len(server.requests) == 1
        if column is TOP_UP:
            assert error.idempotency_key == server.requests[0].headers["idempotency-key"]
        assert type(error) is column.unanswered


@columns(TOP_UP, UPDATE)
@steps(
    revoked=wire.refuses(401, "INVALID_API_KEY"),
    limited=limited(reset=3600),
    limited_on=limited(reset=0),
    refused=wire.refuses(400, "INVALID_PHONE"),
)
def test_an_unclear_failure_followed_by_a_refusal_may_have_executed(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.closes(commits=True), step) as server:
        error = failure(reach(server), column.call)

        assert error.may_have_executed
        assert len(server.requests) >= 2


@columns(TOP_UP, UPDATE, DELETE)
def test_an_unclear_failure_followed_by_an_exhausted_budget_may_have_executed(reach: Drive, column: Column) -> None:
    with wire.serve(wire.closes(commits=True)) as server:
        budget = momopay.RateBudget(requests=1, window=61.0)
        error = failure(reach(server, budget=budget, deadline=2.0), column.call)

        assert error.may_have_executed
        assert len(server.requests) == 1
        if column is TOP_UP:
            assert type(error) is momopay.OutcomeUnknownError


@columns(STK, PAYOUT, CREATE)
def test_a_definite_refusal_followed_by_an_unclear_failure_is_unclear(reach: Drive, column: Column) -> None:
    with wire.serve(limited(reset=0), wire.closes(commits=True), wire.succeeds()) as server:
        error = failure(reach(server), column.call)

        assert type(error) is momopay.OutcomeUnknownError
        assert (len(server.requests), server.payments) == (2, 1)


# Time.


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_attempts_never_exceed_what_was_asked(reach: Drive, max_attempts: int) -> None:
    with wire.serve(wire.answers(503)) as server:
        failure(reach(server, max_attempts=max_attempts), read_balance)

        assert len(server.requests) == max_attempts


@columns(TOP_UP, PAYOUT)
@steps(hang=wire.hangs(), body=wire.drips_body())
def test_the_deadline_ends_a_call(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        driver = reach(server, timeout=0.2, deadline=0.3, max_attempts=10)
        started = time.monotonic()
        error = failure(driver, column.call)
        ended = time.monotonic()

        assert ended - started < 0.3 + LATE
        assert type(error) is column.unanswered
        assert error.may_have_executed is column.may_have_executed
        assert all(request.at < started + 0.3 + LATE for request in server.requests)


def test_no_repeat_is_waited_for_past_the_deadline(reach: Drive, backoff: Callable[[float], None]) -> None:
    backoff(0.3)
    with wire.serve(wire.refuses(500, "INTERNAL")) as server:
        driver = reach(server, deadline=0.5, max_attempts=10)
        started = time.monotonic()
        error = failure(driver, read_balance)

        assert time.monotonic() - started < 0.5 + LATE
        assert type(error) is momopay.ServerError
        assert len(server.requests) == 2


def test_backoff_is_full_jitter_from_half_a_second_to_eight(reach: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []

    def no_wait(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.0

    monkeypatch.setattr(random, "uniform", no_wait)
    with wire.serve(wire.refuses(500, "INTERNAL")) as server:
        failure(reach(server, max_attempts=8), read_balance)

    assert asked[:7] == [(0, 0.5), (0, 1), (0, 2), (0, 4), (0, 8), (0, 8), (0, 8)]


@steps(
    headers=wire.drips_headers(),
    body=wire.drips_body(),
    chunks=wire.drips_body(chunked=True),
    stuck_body=wire.truncated(end=wire.Exchange.hang),
    interim_answers=wire.interim_for_ever(),
)
def test_the_timeout_bounds_an_attempt_as_a_whole(reach: Drive, step: Step) -> None:
    with wire.serve(step) as server:
        driver = reach(server, timeout=0.2, max_attempts=1)
        started = time.monotonic()
        error = failure(driver, initiate_stk)

        assert 0.2 <= time.monotonic() - started < 0.2 + LATE
        assert type(error) is momopay.OutcomeUnknownError
        assert len(server.requests) == 1


def test_a_pause_in_the_answer_within_the_timeout_is_waited_for(reach: Drive) -> None:
    with wire.serve(wire.first(lambda: time.sleep(0.2), wire.succeeds())) as server:
        reach(server, timeout=2.0)(initiate_stk)

        assert (len(server.requests), server.payments) == (1, 1)


# Size.


@columns(GET, STK)
@steps(
    with_length=wire.streams(64, framing={"Content-Length": str(65 * MEBIBYTE)}),
    chunked=wire.streams(64, framing={"Transfer-Encoding": "chunked"}),
    until_closed=wire.streams(64, framing={"Connection": "close"}),
    compressed=wire.gzip_bomb(),
)
def test_an_oversized_body_is_refused_in_bounded_memory(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.gzip_bomb(), step) as server:
        driver = reach(server)
        failure(driver, column.call)  # builds the bomb, outside the measurement
        tracemalloc.start()
        try:
            error = failure(driver, column.call)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert type(error) is column.nonsense
        assert error.may_have_executed is column.may_have_executed
        assert peak < 40 * MEBIBYTE
        assert len(server.requests) == 2


def test_a_body_of_just_eight_mebibytes_is_read(reach: Drive) -> None:
    with wire.serve(wire.padded(8 * MEBIBYTE)) as server:
        reach(server)(read_balance)

        assert len(server.requests) == 1


def test_one_byte_more_is_refused(reach: Drive) -> None:
    with wire.serve(wire.padded(8 * MEBIBYTE + 1)) as server:
        error = failure(reach(server), read_balance)

        assert type(error) is momopay.ProtocolError
        assert len(server.requests) == 1


# Connections.


def test_reads_share_a_connection(reach: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = reach(server)
        for _ in range(3):
            driver(read_balance)

        assert (len(server.requests), server.connections) == (3, 1)


def test_a_payment_does_not_go_out_on_a_connection_that_idled(reach: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = reach(server)
        driver(read_balance)
        time.sleep(1.1)
        driver(initiate_stk)

        assert (len(server.requests), server.connections) == (2, 2)


@columns(STK, PAYOUT, CREATE)
@pytest.mark.parametrize("delay", [0.0, 0.001, 0.004])
def test_a_server_that_closes_idle_connections_never_makes_a_payment_unclear(
    reach: Drive, column: Column, delay: float
) -> None:
    with wire.serve(wire.closes_after(wire.succeeds(), delay)) as server:
        driver = reach(server)
        for turn in range(8):
            driver(read_balance)
            time.sleep(delay * turn / 4)
            driver(column.call)

        paid = [request for request in server.requests if request.method == "POST"]
        assert (len(paid), server.payments) == (8, 8)


def test_the_body_of_a_payment_is_exact(reach: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        reach(server)(initiate_payout)

        (request,) = server.requests
        assert (request.method, request.path) == ("POST", "/v1/b2c/payouts")
        assert json.loads(request.body, parse_float=Decimal)["amount"] == Decimal("100.50")


@pytest.mark.parametrize(
    "channel_id", ["../../b2c/payouts", "a/b", "a?b=c", "a#b", "a b", "..", ".", "%2e%2e", "caf\u00e9"]
)
def test_an_id_stays_one_segment_of_the_path(reach: Drive, channel_id: str) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = reach(server)
        try:
            driver(lambda client: client.channels.delete(channel_id))
        except momopay.RequestValidationError:
            assert server.connections == 0
        else:
            path = server.requests[0].path
            assert path.startswith("/v1/payment-wallet/channels/")
            segment = path.removeprefix("/v1/payment-wallet/channels/")
            assert unquote(segment) == channel_id
            assert not set("/?# ") & set(segment)
            assert segment not in {".", ".."}


def test_the_scripted_server_refuses_connections_when_it_should() -> None:
    with wire.serve(wire.succeeds(), listening=False) as server, socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", server.port)) != 0
