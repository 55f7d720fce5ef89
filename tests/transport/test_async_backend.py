"""Requests of the asynchronous client: cancelled tasks, timers, event loops, and transports over other libraries.

What both clients do alike is in test_sync_backend.py.
"""

import asyncio
import gc
import logging
import ssl
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import anyio
import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

import momopay
import wire
from core.kit import initiate_payout, read_balance, top_up
from drivers import KEY, Drive
from in_turn import in_turn
from momopay import AsyncClient
from momopay._transport import async_backend
from momopay._transport.async_backend import AsyncBackend
from wire import Server

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])


def client_of(server: Server, **options: Any) -> AsyncClient:
    options = {"budget": None, "timeout": 5.0, **options}
    return AsyncClient(KEY, base_url=server.base_url, **options)


async def arrives(server: Server, count: int = 1) -> None:
    """Wait until so many requests have arrived."""
    while len(server.requests) < count:  # noqa: ASYNC110  a thread of the server's says when
        await anyio.sleep(0.001)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and see that the cancellation comes out of it."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "momopay" and each.levelno >= logging.WARNING]


@LOOPS
def test_a_payment_cancelled_in_flight_is_sent_once_and_logged(caplog: pytest.LogCaptureFixture, loop: str) -> None:
    async def main(server: Server) -> None:
        async with client_of(server) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(initiate_payout, client)
                await arrives(server)
                group.cancel_scope.cancel()
            assert (await client.wallet.balance()).currency == "KES"  # the client is usable afterwards

    with wire.serve(wire.hangs(), wire.succeeds()) as server:
        anyio.run(main, server, backend=loop)
        assert ([request.method for request in server.requests], server.payments) == (["POST", "GET"], 1)
    (message,) = warnings_of(caplog)
    assert "outcome is unknown, reference 'INV-42'" in message
    assert "712345678" not in message


def test_a_cancelled_read_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server) -> None:
        async with client_of(server) as client:
            task = asyncio.ensure_future(client.wallet.balance())
            await arrives(server)
            await cancelled(task)

    with wire.serve(wire.hangs()) as server:
        asyncio.run(main(server))
    assert warnings_of(caplog) == []


def test_a_payment_cancelled_while_connecting_was_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def main(port: int) -> None:
        async with AsyncClient(KEY, base_url=f"http://127.0.0.1:{port}/v1", budget=None) as client:
            task = asyncio.ensure_future(initiate_payout(client))
            await asyncio.sleep(0.1)
            await cancelled(task)

    with wire.full_backlog() as port:
        asyncio.run(main(port))
    assert warnings_of(caplog) == []


def test_a_cancelled_retry_is_logged(caplog: pytest.LogCaptureFixture, backoff: Callable[[float], None]) -> None:
    backoff(30.0)

    async def main(server: Server) -> None:
        async with client_of(server) as client:
            task = asyncio.ensure_future(top_up(client))
            await arrives(server)
            await asyncio.sleep(0.05)  # for the task to reach its wait; the result is the same before it
            await cancelled(task)

    with wire.serve(wire.closes(commits=True), wire.succeeds()) as server:
        asyncio.run(main(server))
        assert len(server.requests) == 1
    assert (caplog.text.count("outcome is unknown, reference 'INV-42'"), "712345678" in caplog.text) == (1, False)


def test_when_all_connections_stay_busy_a_payment_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_backend, "MAX_CONNECTIONS", 1)

    async def main(server: Server) -> None:
        async with client_of(server, max_attempts=1) as client, anyio.create_task_group() as group:
            group.start_soon(client.wallet.balance)
            await arrives(server)
            unsent = r"not sent to 127.0.0.1:\d+: no connection"
            for call in (initiate_payout, read_balance):
                with pytest.raises(momopay.APIConnectionError, match=unsent) as caught:
                    await call(client.with_options(timeout=0.05))
                assert not caught.value.may_have_executed
            group.cancel_scope.cancel()

    with wire.serve(wire.hangs()) as server:
        asyncio.run(main(server))
        assert len(server.requests) == 1


def test_a_second_event_loop_is_refused_and_nothing_is_sent() -> None:
    async def begin(client: AsyncClient) -> AsyncIterator[Any]:
        return aiter(client.transactions.iter())

    async def go_on(pages: AsyncIterator[Any]) -> None:
        await anext(pages)

    with wire.serve(wire.succeeds()) as server:
        client = client_of(server)
        with asyncio.Runner() as first:
            first.run(read_balance(client))
            with asyncio.Runner() as second, pytest.raises(momopay.ConfigurationError, match="event loop") as raised:
                second.run(initiate_payout(client))
            pages = first.run(begin(client))
            with asyncio.Runner() as second, pytest.raises(momopay.ConfigurationError, match="event loop"):
                second.run(go_on(pages))
            first.run(read_balance(client))
            first.run(client.aclose())
        assert not raised.value.may_have_executed
        assert [request.method for request in server.requests] == ["GET", "GET"]


@in_turn("transport", [None, httpx.AsyncHTTPTransport()])
def test_a_client_whose_loop_has_ended_closes_without_an_error(transport: httpx.AsyncHTTPTransport | None) -> None:
    async def enter(client: AsyncClient) -> None:
        async with client:
            with pytest.raises(momopay.ConfigurationError, match=r"another event loop.*Django.*use a Client there"):
                await client.wallet.balance()

    with wire.serve(wire.succeeds()) as server:
        client = client_of(server, transport=transport)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of the connection that its loop left open
            asyncio.run(read_balance(client))
            asyncio.run(enter(client))
            gc.collect()
        assert len(server.requests) == 1


def test_a_signal_wakes_one_wait() -> None:
    async def main() -> None:
        signal = AsyncBackend().signal()
        signal.set()
        with anyio.fail_after(wire.PATIENCE):
            await signal.wait(2 * wire.PATIENCE)
        with anyio.move_on_after(0.01) as second:
            await signal.wait(wire.PATIENCE)
        assert second.cancelled_caught

        async def wait_twice() -> None:
            for _ in range(2):
                await signal.wait(2 * wire.PATIENCE)

        with anyio.fail_after(wire.PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(wait_twice)
                await anyio.wait_all_tasks_blocked()
                signal.set()
                thread = threading.Thread(target=signal.set)  # it is for the second wait
                thread.start()
                thread.join()

    anyio.run(main)  # on asyncio, where the order is certain


@LOOPS
def test_a_thread_wakes_a_task(loop: str) -> None:
    async def main() -> None:
        signal = AsyncBackend().signal()
        threading.Thread(target=signal.set).start()
        with anyio.fail_after(wire.PATIENCE):
            await signal.wait(2 * wire.PATIENCE)

    anyio.run(main, backend=loop)


def test_a_thread_wakes_any_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is not the standard library's, such as uvloop's."""

    async def main() -> None:
        loop = create_autospec(asyncio.AbstractEventLoop, instance=True)
        loop.call_soon_threadsafe = asyncio.get_running_loop().call_soon_threadsafe
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "get_running_loop", lambda: loop)
            signal = AsyncBackend().signal()
        threading.Thread(target=signal.set).start()
        with anyio.fail_after(wire.PATIENCE):
            await signal.wait(2 * wire.PATIENCE)

    asyncio.run(main())


def test_work_in_threads_has_a_limit_of_its_own() -> None:
    async def main() -> None:
        shared = anyio.to_thread.current_default_thread_limiter()
        shared.total_tokens = 1
        backend = AsyncBackend()
        async with shared:  # as a caller that holds the last of anyio's shared threads
            with anyio.fail_after(wire.PATIENCE):
                assert await backend.in_thread(threading.get_ident) != threading.get_ident()

    anyio.run(main)


@pytest.mark.parametrize("client_kind", ["async"])
@pytest.mark.parametrize("step", [wire.closes(commits=True), wire.resets(commits=True), wire.hangs(), None])
@pytest.mark.usefixtures("no_backoff")
def test_a_payment_over_aiohttp_is_sent_once(drive: Drive, step: wire.Step | None) -> None:
    with wire.serve(*filter(None, [step]), listening=step is not None) as server:
        with pytest.raises(momopay.OutcomeUnknownError if step else momopay.APIConnectionError):
            drive(base_url=server.base_url, transport=AiohttpTransport(), timeout=0.3)(initiate_payout)
        assert len(server.requests) == (1 if step else 0)


class ReaderlessLoop(asyncio.SelectorEventLoop):
    """A loop that cannot wait for a socket, as Windows' usual one."""

    add_reader = asyncio.AbstractEventLoop.add_reader
    add_writer = asyncio.AbstractEventLoop.add_writer


def test_a_loop_that_cannot_wait_for_sockets_waits_in_threads_of_its_own(
    certificate: Path, trusting: ssl.SSLContext
) -> None:
    """anyio's one thread for all dies of a socket that is closed under it; tests/windows/proactor.py shows that."""

    async def main(server: Server) -> None:
        with wire.full_backlog() as port:
            options: dict[str, Any] = {"base_url": f"http://127.0.0.1:{port}/v1", "timeout": 0.1, "max_attempts": 1}
            async with AsyncClient(KEY, budget=None, **options) as silent:
                with pytest.raises(momopay.APIConnectionError, match=r"ConnectTimeout|within the timeout"):
                    await silent.wallet.balance()
                task = asyncio.create_task(silent.wallet.balance())
                await asyncio.sleep(0.01)
                await cancelled(task)
        async with client_of(server, verify=trusting) as client:
            await asyncio.gather(*(client.wallet.balance() for _ in range(3)))
            await initiate_payout(client)
        assert "AnyIO socket selector" not in {each.name for each in threading.enumerate()}

    with wire.serve(wire.succeeds(), certificate=certificate) as server:
        with asyncio.Runner(loop_factory=ReaderlessLoop) as runner:
            runner.run(main(server))
        assert (len(server.requests), server.payments) == (4, 1)
