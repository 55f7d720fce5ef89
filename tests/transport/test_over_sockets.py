"""The retry table at real sockets, over both clients: requests that arrived and payments that were made are counted.

tests/core/test_call.py holds the whole table in memory; here is what only a socket can show.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import momopay
import wire
from core.kit import GET, PAYOUT, STK, TOP_UP, Column, initiate_payout, read_balance
from drivers import Drive, Driver, unique_key
from wire import Server, Step

pytestmark = pytest.mark.usefixtures("no_backoff")


def columns(*some: Column) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("column", some, ids=lambda column: str(column.name))


def steps(**named: Step) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("step", list(named.values()), ids=list(named))


def failure(driver: Driver, call: Callable[[Any], Any]) -> Any:
    with pytest.raises(momopay.MomoPayError) as raised:
        driver(call)
    return raised.value


@pytest.fixture
def reach(drive: Drive) -> Drive:
    """Make a client of the test's kind for a server, with a key of its own."""

    def make(server: Server, **options: Any) -> Driver:
        return drive(**{"base_url": server.base_url, "api_key": unique_key(), "timeout": 5.0, **options})

    return make


@columns(GET, PAYOUT)
def test_a_refused_connection_is_retried(reach: Drive, column: Column, monkeypatch: pytest.MonkeyPatch) -> None:
    with wire.serve(wire.succeeds(), listening=False) as server:
        driver = reach(server)
        assert_not_sent(driver, column)
        assert server.connections == 0
        waits: list[float] = []

        def listen_at_the_third_wait(_low: float, high: float) -> float:
            waits.append(high)
            if len(waits) == 3:
                server.listen()
            return 0.0

        monkeypatch.setattr(random, "uniform", listen_at_the_third_wait)
        driver(column.call)
        assert (len(server.requests), server.payments) == (1, 1 if column.pays else 0)


def assert_not_sent(driver: Driver, column: Column) -> None:
    error = failure(driver, column.call)
    assert type(error) is momopay.APIConnectionError
    assert not error.may_have_executed


@columns(TOP_UP, STK)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_timeout_while_connecting_is_retried_and_not_sent(drive: Drive, column: Column, scheme: str) -> None:
    """With TLS, the connection is made, and its handshake is never answered."""
    with wire.full_backlog() as full, wire.silent() as listener:
        port = full if scheme == "http" else listener.getsockname()[1]
        url = f"{scheme}://127.0.0.1:{port}/v1"
        started = time.monotonic()
        assert_not_sent(drive(base_url=url, api_key=unique_key(), timeout=0.05, max_attempts=2), column)
        assert time.monotonic() - started > 0.09
        assert_not_sent(drive(base_url=url, api_key=unique_key(), timeout=30.0, deadline=0.1), column)


@columns(GET, PAYOUT)
def test_a_failed_tls_handshake_is_repeated_and_not_sent(reach: Drive, column: Column) -> None:
    with wire.serve(wire.succeeds()) as server:
        assert_not_sent(reach(server, base_url=f"https://127.0.0.1:{server.port}/v1"), column)
        assert (server.connections, server.requests) == (4, [])


@columns(GET, PAYOUT)
@steps(
    reset_before_reading=wire.resets_before_reading(),
    reset_before_commit=wire.resets(),
    reset_after_commit=wire.resets(commits=True),
    close_before_commit=wire.closes(),
    close_after_commit=wire.closes(commits=True),
    half_an_answer=wire.half_answer(),
    half_a_body=wire.truncated(),
    half_a_body_reset=wire.truncated(end=wire.Exchange.reset),
)
def test_a_connection_that_breaks_before_the_answer(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        error = failure(reach(server), column.call)

        assert type(error) is column.no_reply
        assert error.may_have_executed is column.may_have_executed
        assert len(server.requests) == column.requests(4)
        assert server.payments == (1 if column.pays and step.commits else 0)


@columns(TOP_UP, PAYOUT)
@steps(headers=wire.drips_headers(), body=wire.drips_body(), interim_answers=wire.interim_for_ever())
def test_the_timeout_bounds_an_attempt_and_the_deadline_a_call(reach: Drive, column: Column, step: Step) -> None:
    with wire.serve(step) as server:
        error = failure(reach(server, timeout=0.1, deadline=0.15, max_attempts=10), column.call)

        assert type(error) is column.no_reply
        assert error.may_have_executed is column.may_have_executed
        assert len(server.requests) <= (2 if column.retries else 1)


@pytest.mark.parametrize("delay", [0.0, 0.004])
def test_a_server_that_closes_idle_connections_never_makes_a_payment_ambiguous(reach: Drive, delay: float) -> None:
    with wire.serve(wire.closes_after(wire.succeeds(), delay)) as server:
        driver = reach(server)
        for turn in range(8):
            driver(read_balance)
            time.sleep(delay * turn / 4)
            driver(initiate_payout)
        assert (len([request for request in server.requests if request.method == "POST"]), server.payments) == (8, 8)
