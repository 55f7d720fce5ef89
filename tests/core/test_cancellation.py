"""What is stopped from outside, at real sockets: cancelled tasks, Ctrl-C, other event loops, closed clients."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio

import momopay
import wire
from drivers import Driver, unique_key
from wire import Server

Drive = Callable[..., Driver]
Call = Callable[[Any], Any]
pytestmark = pytest.mark.usefixtures("no_backoff")


def initiate_stk(client: Any) -> Any:
    return client.stk.initiate(amount=100, phone="0712345678", account_reference="INV-42")


def initiate_payout(client: Any) -> Any:
    return client.payouts.initiate(amount=100, phone="0712345678", reference="INV-42")


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=100, phone="0712345678", account_reference="INV-42")


PAYMENTS = pytest.mark.parametrize("call", [initiate_stk, initiate_payout, top_up])


def async_client(server: Server, **options: Any) -> momopay.AsyncClient:
    options = {"budget": None, "timeout": 5.0, **options}
    return momopay.AsyncClient(unique_key(), base_url=server.base_url, **options)


@pytest.fixture(autouse=True)
def all_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="momopay")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "momopay" and record.levelno >= logging.WARNING
    ]


def assert_told_once(caplog: pytest.LogCaptureFixture, reference: str = "INV-42") -> None:
    (message,) = warnings_of(caplog)
    assert reference in message
    assert "outcome is unknown" in message
    assert_phone_is_masked(caplog)


def assert_phone_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    for record in caplog.records:
        assert "712345678" not in record.getMessage()


async def cancelled_when(task: asyncio.Task[Any], ready: Callable[[], bool]) -> None:
    """Cancel a task as soon as something holds, and see that the cancellation comes out of it."""
    while not ready():  # noqa: ASYNC110  a thread of the server's says when
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


def more_requests(server: Server, than: int) -> bool:
    return len(server.requests) > than


# A cancelled task.


@PAYMENTS
def test_a_payment_cancelled_in_flight_is_sent_once_and_told(caplog: pytest.LogCaptureFixture, call: Call) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            task = asyncio.ensure_future(call(client))
            await cancelled_when(task, lambda: bool(server.requests))

    with wire.serve(wire.hangs()) as server:
        asyncio.run(pay(server))
        time.sleep(0.1)

        assert (len(server.requests), server.payments) == (1, 1)
    assert_told_once(caplog)


def test_a_payment_cancelled_within_its_answer_is_sent_once_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            task = asyncio.ensure_future(initiate_payout(client))
            started = time.monotonic()
            await cancelled_when(task, lambda: bool(server.requests) and time.monotonic() > started + 0.1)

    with wire.serve(wire.truncated(end=wire.Exchange.hang)) as server:
        asyncio.run(pay(server))

        assert (len(server.requests), server.payments) == (1, 1)
    assert_told_once(caplog)


def test_a_cancelled_payment_ends_at_once() -> None:
    async def pay(server: Server) -> float:
        async with async_client(server) as client:
            task = asyncio.ensure_future(initiate_stk(client))
            while not server.requests:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.005)
            cancelled = time.monotonic()
            await cancelled_when(task, lambda: True)
            return time.monotonic() - cancelled

    with wire.serve(wire.hangs()) as server:
        assert asyncio.run(pay(server)) < 0.25


def test_a_timeout_of_the_callers_own_stays_a_timeout(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(initiate_stk(client), 0.2)

    with wire.serve(wire.hangs()) as server:
        asyncio.run(pay(server))

        assert len(server.requests) == 1
    assert_told_once(caplog)


def test_a_phone_in_a_reference_is_masked_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            payout = client.payouts.initiate(amount=100, phone="0712345678", reference="254712345678")
            await cancelled_when(asyncio.ensure_future(payout), lambda: bool(server.requests))

    with wire.serve(wire.hangs()) as server:
        asyncio.run(pay(server))

    assert len(warnings_of(caplog)) == 1
    assert_phone_is_masked(caplog)


def test_a_cancelled_read_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def read(server: Server) -> None:
        async with async_client(server) as client:
            task = asyncio.ensure_future(client.wallet.balance())
            await cancelled_when(task, lambda: bool(server.requests))

    with wire.serve(wire.hangs()) as server:
        asyncio.run(read(server))

        assert len(server.requests) == 1
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_call_cancelled_in_the_tls_handshake_leaves_no_connection_open(loop: str) -> None:
    async def begin(listener: socket.socket) -> None:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        async with (
            momopay.AsyncClient(unique_key(), base_url=url, budget=None) as client,
            anyio.create_task_group() as group,
        ):
            call = anyio.CancelScope()
            group.start_soon(under, call, client.wallet.balance)
            accepted, _address = await anyio.to_thread.run_sync(listener.accept)
            with accepted:
                hello = await anyio.to_thread.run_sync(accepted.recv, 65_536)
                assert hello.startswith(b"\x16\x03")
                call.cancel()
                accepted.settimeout(5)
                assert await anyio.to_thread.run_sync(accepted.recv, 1) == b""

    async def under(scope: anyio.CancelScope, work: Callable[[], Awaitable[Any]]) -> None:
        with scope:
            await work()

    with wire.silent() as listener:
        anyio.run(begin, listener, backend=loop)


@PAYMENTS
def test_a_task_cancelled_before_its_first_step_sends_nothing(caplog: pytest.LogCaptureFixture, call: Call) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            await cancelled_when(asyncio.ensure_future(call(client)), lambda: True)

    with wire.serve(wire.succeeds()) as server:
        asyncio.run(pay(server))

        assert (server.connections, server.requests) == (0, [])
    assert warnings_of(caplog) == []


@PAYMENTS
def test_a_payment_cancelled_while_connecting_was_not_sent(caplog: pytest.LogCaptureFixture, call: Call) -> None:
    async def pay(port: int) -> None:
        url = f"http://127.0.0.1:{port}/v1"
        async with momopay.AsyncClient(unique_key(), base_url=url, budget=None) as client:
            started = time.monotonic()
            await cancelled_when(asyncio.ensure_future(call(client)), lambda: time.monotonic() > started + 0.1)

    with wire.full_backlog() as port:
        asyncio.run(pay(port))

    assert not [message for message in warnings_of(caplog) if "unknown" in message]


def test_a_payment_cancelled_while_it_waits_for_the_budget_was_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server, budget=momopay.RateBudget(requests=1, window=0.6)) as client:
            await client.wallet.balance()
            started = time.monotonic()
            task = asyncio.ensure_future(initiate_stk(client))
            await cancelled_when(task, lambda: time.monotonic() > started + 0.1)
            assert [request.method for request in server.requests] == ["GET"]
            await initiate_payout(client)
            assert [request.path for request in server.requests[1:]] == ["/v1/b2c/payouts"]

    with wire.serve(wire.succeeds()) as server:
        asyncio.run(pay(server))

        assert server.payments == 1
    assert not [message for message in warnings_of(caplog) if "unknown" in message]


def test_a_top_up_cancelled_between_two_attempts_is_told(
    caplog: pytest.LogCaptureFixture, backoff: Callable[[float], None]
) -> None:
    backoff(5.0)

    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            started = time.monotonic()
            task = asyncio.ensure_future(top_up(client))
            await cancelled_when(task, lambda: bool(server.requests) and time.monotonic() > started + 0.2)

    with wire.serve(wire.closes(commits=True), wire.succeeds()) as server:
        asyncio.run(pay(server))

        assert len(server.requests) == 1
    told = [message for message in warnings_of(caplog) if "outcome is unknown" in message]
    assert len(told) == 1
    assert "INV-42" in told[0]


def test_a_client_is_usable_after_cancellations() -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            for _ in range(3):
                seen = len(server.requests)
                task = asyncio.ensure_future(initiate_stk(client))
                await cancelled_when(task, functools.partial(more_requests, server, seen))
            assert (await client.wallet.balance()).currency == "KES"
            prompt = await initiate_stk(client)
            assert prompt.transaction_id == wire.TRANSACTION_ID

    with wire.serve(wire.hangs(), wire.hangs(), wire.hangs(), wire.succeeds()) as server:
        asyncio.run(pay(server))

        assert (len(server.requests), server.payments) == (5, 4)


def test_one_cancelled_task_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            stuck = asyncio.ensure_future(initiate_stk(client))
            while not server.requests:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.005)
            others = [asyncio.ensure_future(initiate_payout(client)) for _ in range(5)]
            await cancelled_when(stuck, lambda: True)
            payouts = await asyncio.gather(*others)
            assert [payout.transaction_id for payout in payouts] == [wire.TRANSACTION_ID] * 5

    with wire.serve(wire.hangs(), wire.succeeds()) as server:
        asyncio.run(pay(server))

        assert (len(server.requests), server.payments) == (6, 6)
    assert_told_once(caplog)


# Ctrl-C.


@pytest.fixture(autouse=True)
def listens_to_interrupts() -> Iterator[None]:
    # A shell starts its background jobs deaf to SIGINT, and Python then leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


@PAYMENTS
def test_an_interrupt_in_flight_propagates_and_is_told(caplog: pytest.LogCaptureFixture, call: Call) -> None:
    with wire.serve(wire.first(interrupt, wire.hangs()), wire.succeeds()) as server:
        with momopay.Client(unique_key(), base_url=server.base_url, budget=None, timeout=5.0) as client:
            with pytest.raises(KeyboardInterrupt):
                call(client)
            assert (len(server.requests), server.payments) == (1, 1)

            assert client.wallet.balance().currency == "KES"
        assert [request.method for request in server.requests] == ["POST", "GET"]
    assert_told_once(caplog)


def test_an_interrupt_of_an_event_loop_cancels_the_payment(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            await initiate_payout(client)

    with wire.serve(wire.first(interrupt, wire.hangs())) as server:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(pay(server))

        assert len(server.requests) == 1
    assert_told_once(caplog)


# Another event loop, a closed client.


@PAYMENTS
def test_a_second_event_loop_is_refused_and_nothing_sent(call: Call) -> None:
    async def use(client: momopay.AsyncClient, what: Callable[[momopay.AsyncClient], Awaitable[Any]]) -> Any:
        return await what(client)

    with wire.serve(wire.succeeds()) as server:
        client = async_client(server)
        with asyncio.Runner() as first:
            first.run(use(client, lambda client: client.wallet.balance()))
            with asyncio.Runner() as second, pytest.raises(momopay.MomoPayError, match="event loop") as raised:
                second.run(use(client, call))
            first.run(use(client, lambda client: client.wallet.balance()))
            first.run(client.aclose())

        assert not raised.value.may_have_executed
        assert [request.method for request in server.requests] == ["GET", "GET"]


@PAYMENTS
def test_a_closed_client_is_refused_and_nothing_sent(drive: Drive, call: Call) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, api_key=unique_key())
        driver(lambda client: client.wallet.balance())
        driver(lambda client: client.aclose() if driver.colour == "async" else client.close())
        with pytest.raises(momopay.MomoPayError) as raised:
            driver(call)

        assert not raised.value.may_have_executed
        assert [request.method for request in server.requests] == ["GET"]


def test_a_client_closed_before_its_first_call_is_refused(drive: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, api_key=unique_key())
        driver(lambda client: client.aclose() if driver.colour == "async" else client.close())
        with pytest.raises(momopay.MomoPayError):
            driver(initiate_stk)

        assert server.connections == 0


# trio.


def test_a_payment_works_under_trio() -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            prompt = await initiate_stk(client)
            assert prompt.transaction_id == wire.TRANSACTION_ID
            assert (await client.wallet.balance()).currency == "KES"

    with wire.serve(wire.succeeds()) as server:
        trio.run(pay, server)

        assert (len(server.requests), server.payments) == (2, 1)


def test_a_timeout_under_trio_is_an_unknown_outcome() -> None:
    async def pay(server: Server) -> None:
        async with async_client(server, timeout=0.2) as client:
            with pytest.raises(momopay.OutcomeUnknownError):
                await initiate_stk(client)

    with wire.serve(wire.hangs()) as server:
        trio.run(pay, server)

        assert len(server.requests) == 1


def test_a_payment_cancelled_under_trio_is_sent_once_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def pay(server: Server) -> None:
        async with async_client(server) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(initiate_payout, client)
                while not server.requests:  # noqa: ASYNC110  as above
                    await trio.sleep(0.005)
                nursery.cancel_scope.cancel()
            assert nursery.cancel_scope.cancelled_caught
            assert (await client.wallet.balance()).currency == "KES"

    with wire.serve(wire.hangs(), wire.succeeds()) as server:
        trio.run(pay, server)

        assert [request.method for request in server.requests] == ["POST", "GET"]
        assert server.payments == 1
    assert_told_once(caplog)
