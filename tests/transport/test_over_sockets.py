"""The retry table at real sockets, over both clients: requests that arrived and payments that were made are counted.

tests/core/test_call.py holds the whole table in memory; here is what only a socket can show.
"""

from __future__ import annotations

import json
import random
import socket
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest

import momopay
import wire
from drivers import Driver, unique_key
from wire import Server, Step

Drive = Callable[..., Driver]
Call = Callable[[Any], Any]
pytestmark = pytest.mark.usefixtures("no_backoff")

MEBIBYTE = wire.MEBIBYTE
PHONE = "254712345678"


@dataclass(frozen=True)
class Column:
    """A column of the table: how one kind of call fails in the end, and whether an ambiguous failure repeats it."""

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
    """Make a client of the test's kind for a server, with a key of its own."""

    def make(server: Server, **options: Any) -> Driver:
        return drive(**{"base_url": server.base_url, "api_key": unique_key(), "timeout": 5.0, **options})

    return make


def assert_one_key(server: Server) -> None:
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(keys) == 1


# The normal answer, to know that the rest fails for its own reason.


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


# Not sent.


def listen_at_wait(monkeypatch: pytest.MonkeyPatch, server: Server, number: int) -> None:
    """Take connections from the client's n-th wait on."""
    waits: list[float] = []

    def no_wait(_low: float, high: float) -> float:
        waits.append(high)
        if len(waits) == number:
            server.listen()
        return 0.0

    monkeypatch.setattr(random, "uniform", no_wait)


@columns(GET, PAYOUT)
def test_a_connection_refused_three_times_succeeds_at_the_fourth(
    reach: Drive, column: Column, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wire.serve(wire.succeeds(), listening=False) as server:
        listen_at_wait(monkeypatch, server, 3)
        reach(server)(column.call)

        assert len(server.requests) == 1
        assert server.payments == (1 if column.pays else 0)


@columns(GET, PAYOUT)
def test_a_connection_refused_four_times_is_not_sent(
    reach: Drive, column: Column, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wire.serve(wire.succeeds(), listening=False) as server:
        listen_at_wait(monkeypatch, server, 4)
        error = failure(reach(server), column.call)

        assert type(error) is momopay.APIConnectionError
        assert not error.may_have_executed
        assert server.connections == 0


@columns(TOP_UP, STK)
def test_a_connect_timeout_is_repeated_and_not_sent(drive: Drive, column: Column) -> None:
    with wire.full_backlog() as port:
        driver = drive(base_url=f"http://127.0.0.1:{port}/v1", api_key=unique_key(), timeout=0.15, max_attempts=2)
        started = time.monotonic()
        error = failure(driver, column.call)
        elapsed = time.monotonic() - started

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed
    assert elapsed > 0.25


@columns(TOP_UP, STK)
def test_a_deadline_that_passes_while_connecting_means_not_sent(drive: Drive, column: Column) -> None:
    with wire.full_backlog() as port:
        driver = drive(base_url=f"http://127.0.0.1:{port}/v1", api_key=unique_key(), timeout=30.0, deadline=0.3)
        error = failure(driver, column.call)

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed


@columns(GET, STK)
def test_a_name_that_resolves_nowhere_is_not_sent(drive: Drive, column: Column) -> None:
    error = failure(drive(base_url="https://momopay.invalid/v1", api_key=unique_key()), column.call)

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed


@columns(GET, PAYOUT)
def test_a_failed_tls_handshake_is_repeated_and_not_sent(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as server:
        error = failure(reach(server, base_url=f"https://127.0.0.1:{server.port}/v1"), column.call)

        assert type(error) is momopay.APIConnectionError
        assert not error.may_have_executed
        assert (server.connections, server.requests) == (4, [])


@columns(TOP_UP, STK)
def test_a_timer_that_fires_within_the_tls_handshake_means_not_sent(drive: Drive, column: Column) -> None:
    with wire.silent() as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        driver = drive(base_url=url, api_key=unique_key(), timeout=0.15, max_attempts=2)
        started = time.monotonic()
        error = failure(driver, column.call)
        elapsed = time.monotonic() - started

    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed
    assert elapsed > 0.25


# Sent, and no valid reply.


def assert_unanswered(error: Any, column: Column, server: Server, attempts: int, *, commits: bool) -> None:
    assert type(error) is column.unanswered
    assert error.may_have_executed is column.may_have_executed
    assert len(server.requests) == column.requests(attempts)
    assert server.payments == (1 if column.pays and commits else 0)
    if column is TOP_UP:
        assert_one_key(server)


@columns(GET, PAYOUT)
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


@columns(GET, PAYOUT)
@steps(
    closed=wire.truncated(),
    reset=wire.truncated(end=wire.Exchange.reset),
)
def test_a_body_shorter_than_its_content_length(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        error = failure(reach(server), column.call)

        assert_unanswered(error, column, server, 4, commits=True)


@columns(GET, PAYOUT)
def test_an_answer_that_never_comes(reach: Drive, column: Column) -> None:
    with wire.serve(wire.hangs()) as server:
        error = failure(reach(server, timeout=0.25, max_attempts=2), column.call)

        assert_unanswered(error, column, server, 2, commits=True)


@columns(TOP_UP, PAYOUT)
@steps(headers=wire.drips_headers(), body=wire.drips_body())
def test_an_answer_that_takes_too_long(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        error = failure(reach(server, timeout=0.25, max_attempts=2), column.call)

        assert_unanswered(error, column, server, 2, commits=True)


# 5xx, 408, 3xx, and answers that are not specified.


@columns(GET, PAYOUT)
@steps(html_502=wire.html(502), unavailable=wire.refuses(503, "UNAVAILABLE"), bare_408=wire.answers(408))
def test_a_server_error(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.Step(step.play, commits=True)) as server:
        error = failure(reach(server), column.call)

        assert type(error) is column.broken_server
        assert error.may_have_executed is column.may_have_executed
        assert len(server.requests) == column.requests(4)
        assert server.payments == (1 if column.pays else 0)
        if column is TOP_UP:
            assert_one_key(server)


NONSENSE: Mapping[str, Step] = {
    "redirect": wire.redirects(),
    "bare_429": wire.answers(429, headers={"Retry-After": "0"}),
    "html_404": wire.html(404),
}
UNREADABLE: Mapping[str, Step] = {
    "html_200": wire.html(200),
    "no_content": wire.answers(204),
    "cut_off_without_length": wire.truncated(with_length=False),
}


def assert_nonsense(error: Any, column: Column, server: Server) -> None:
    assert type(error) is column.nonsense
    assert error.may_have_executed is column.may_have_executed
    assert len(server.requests) == 1
    assert server.payments == (1 if column.pays else 0)


@columns(GET, PAYOUT)
@steps(**NONSENSE)
def test_an_answer_that_is_not_the_services(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.Step(step.play, commits=True)) as server:
        error = failure(reach(server), column.call)

        assert_nonsense(error, column, server)


@columns(GET, PAYOUT)
@steps(**UNREADABLE)
def test_a_success_that_does_not_parse(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(wire.Step(step.play, commits=True)) as server:
        error = failure(reach(server), column.call)

        assert_nonsense(error, column, server)


@columns(GET, PAYOUT)
def test_a_redirect_is_never_followed(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as elsewhere, wire.serve(wire.succeeds()) as server:
        server.script = (wire.redirects(f"{elsewhere.base_url}/payments/stk"),)
        error = failure(reach(server), column.call)

        assert type(error) is column.nonsense
        assert len(server.requests) == 1
        assert (elsewhere.connections, elsewhere.payments) == (0, 0)


# Any 2xx to DELETE is success, and so is 404 after an ambiguous one.


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
def test_not_found_after_an_ambiguous_delete_is_success(reach: Drive, step: Step) -> None:
    with wire.serve(step, wire.refuses(404, "CHANNEL_NOT_FOUND")) as server:
        assert reach(server, timeout=0.6)(delete_channel) is None
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


@columns(PAYOUT)
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
        error = failure(reach(server, timeout=0.5, max_attempts=1), column.call)

        assert_carries(error, column, before)
        assert error.transaction_id == wire.TRANSACTION_ID


# An ambiguous failure is not forgotten when a later attempt fails clearly.


@columns(TOP_UP, UPDATE, DELETE)
def test_an_unclear_failure_followed_by_a_refused_connection_stays_ambiguous(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as server:
        server.script = (wire.first(server.stop_listening, wire.closes(commits=True)),)
        error = failure(reach(server), column.call)

        assert error.may_have_executed
        assert len(server.requests) == 1
        if column is TOP_UP:
            assert error.idempotency_key == server.requests[0].headers["idempotency-key"]
        assert type(error) is column.unanswered


# Time.


@columns(TOP_UP, PAYOUT)
@steps(hang=wire.hangs(), body=wire.drips_body())
def test_the_deadline_ends_a_call(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        driver = reach(server, timeout=0.2, deadline=0.3, max_attempts=10)
        error = failure(driver, column.call)

        assert type(error) is column.unanswered
        assert error.may_have_executed is column.may_have_executed
        assert len(server.requests) <= (2 if column.repeats else 1)


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

        assert time.monotonic() - started >= 0.2
        assert type(error) is momopay.OutcomeUnknownError
        assert len(server.requests) == 1


def test_a_pause_in_the_answer_within_the_timeout_is_waited_for(reach: Drive) -> None:
    with wire.serve(wire.first(lambda: time.sleep(0.2), wire.succeeds())) as server:
        reach(server)(initiate_stk)

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


def test_one_byte_more_is_refused(reach: Drive) -> None:
    with wire.serve(wire.padded(8 * MEBIBYTE + 1)) as server:
        error = failure(reach(server), read_balance)

        assert type(error) is momopay.ProtocolError
        assert len(server.requests) == 1


# Connections.


@columns(PAYOUT)
@pytest.mark.parametrize("delay", [0.0, 0.001, 0.004])
def test_a_server_that_closes_idle_connections_never_makes_a_payment_ambiguous(
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
