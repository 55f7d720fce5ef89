"""Faults on a socket, and requests without one."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any

import anyio
import httpx
import pytest
import trio

from journal.database_kit import in_threads
from momopay import APIConnectionError, AsyncClient, OutcomeUnknownError, TransactionStatus
from momopay.sandbox import Fault, Sandbox, _fault_middleware
from patience import beside, until
from sandbox.kit import KEY, Receiver, payouts

BASE = "http://127.0.0.1/v1"
SALARY: dict[str, Any] = {"amount": 100, "phone": "0712345678", "reference": "SAL-1"}
Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox()) as sandbox:
        yield sandbox


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    return trio.run if request.param == "trio" else lambda work: asyncio.run(work())


def client_of(sandbox: Sandbox, **options: Any) -> AsyncClient:
    return AsyncClient(KEY, base_url=BASE, budget=None, transport=httpx.ASGITransport(sandbox.app), **options)


def test_a_payment_from_its_request_to_its_callback(sandbox: Sandbox, receiver: Receiver, run: Run) -> None:
    before = threading.enumerate()

    async def pay() -> None:
        async with client_of(sandbox) as client:
            sent = await client.payouts.initiate(**SALARY, callback_url=receiver.url)
            await anyio.to_thread.run_sync(sandbox.advance, 3600)
            assert (await client.transactions.get(sent)).status == TransactionStatus.SUCCESS

    run(pay)
    assert ([each["transaction"]["status"] for each in receiver.bodies], payouts(sandbox)) == (["SUCCESS"], 1)
    sandbox.close()
    assert "momopay-sandbox" not in {thread.name for thread in threading.enumerate() if thread not in before}


def test_several_event_loops_use_one_sandbox_at_once(sandbox: Sandbox) -> None:
    async def pay(name: str) -> None:
        async with client_of(sandbox) as client:
            await client.payouts.initiate(amount=100, phone="0712345678", reference=name)

    names = iter("abcdefgh")
    in_threads(8, lambda: asyncio.run(pay(next(names))))
    assert payouts(sandbox) == 8
    # The server has the same state; and the pages are there without it.
    with sandbox, httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False, verify=False) as http:
        assert http.get("/transactions").json()["data"]["overview"]["total"] == 8

        async def read() -> None:
            transport = httpx.ASGITransport(sandbox.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as page:
                assert (await page.get("/")).headers["content-type"].startswith("text/html")
                assert (await page.post("/sandbox/advance", json={"seconds": 10})).json()["success"] is True

        asyncio.run(read())


@pytest.mark.parametrize(
    ("fault", "committed"),
    [(Fault.refuse, 0), (Fault.reset_before_read, 0), (Fault.reset_after_commit, 1), (Fault.truncated, 1)],
)
def test_a_fault_that_breaks_the_connection_raises(sandbox: Sandbox, fault: Fault, committed: int, run: Run) -> None:
    async def pay() -> None:
        async with client_of(sandbox) as client:
            sandbox.fail_next("POST", "/b2c/payouts", fault)
            with pytest.raises(OutcomeUnknownError):
                await client.payouts.initiate(**SALARY)

    run(pay)
    assert payouts(sandbox) == committed


def test_a_request_that_hangs_ends_with_its_caller(sandbox: Sandbox, run: Run) -> None:
    async def read() -> None:
        async with client_of(sandbox, timeout=0.05, max_attempts=1) as client:
            sandbox.fail_next("GET", "/transactions", Fault.hang_after_commit)
            with pytest.raises(APIConnectionError, match="within the timeout"):
                await client.transactions.list()
            assert (await client.with_options(timeout=30.0).transactions.list()).items == []

    run(read)


def test_close_ends_a_request_that_hangs(sandbox: Sandbox) -> None:
    def close() -> None:
        until(lambda: sandbox.requests, "the request is under way")
        sandbox.close()

    async def read() -> None:
        async with client_of(sandbox, max_attempts=1) as client:
            sandbox.fail_next("GET", "/transactions", Fault.hang_after_commit)
            with beside(close), pytest.raises(APIConnectionError, match="the sandbox ended the connection"):
                await client.transactions.list()
            with pytest.raises(RuntimeError, match="not running"):
                await client.transactions.list()

    asyncio.run(read())


def test_a_slow_drip_and_a_body_without_its_end(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(_fault_middleware, "DRIP_INTERVAL", 0)

    async def read() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(sandbox.app), base_url=BASE, auth=(KEY, "")) as http:
            whole = await http.get("/transactions")
            sandbox.fail_next("GET", "/transactions", Fault.slow_drip)
            assert (await http.get("/transactions")).json()["data"] == whole.json()["data"]
            sandbox.fail_next("GET", "/transactions", Fault.truncated, content_length=False)
            cut = await http.get("/transactions")
            assert whole.content.startswith(cut.content[:10])
            assert 10 < len(cut.content) < len(whole.content)

    run(read)
