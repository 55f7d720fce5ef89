"""What runs between a payment's head and its body, and what it raises."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import httpx
import pytest

import momopay
import wire
from drivers import Driver
from momopay._core import call
from momopay._transport import NotSentError, Progress, clock, common_headers
from momopay._transport.async_backend import AsyncBackend
from momopay._transport.sync_backend import SyncBackend
from patience import until

Drive = Callable[..., Driver]


def payout(client: Any) -> Any:
    return client.payouts.initiate(amount=100, phone="0712345678", reference="INV-42")


@pytest.fixture
def before_body(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[], Coroutine[Any, Any, object]]], list[Progress]]:
    """Have every payment await this, and return the list of their progress."""

    def install(check: Callable[[], Coroutine[Any, Any, object]]) -> list[Progress]:
        made = list[Progress]()

        class Checked(Progress):
            def __init__(self, until: float) -> None:
                super().__init__(until)
                made.append(self)

            def __setattr__(self, name: str, value: Any) -> None:
                super().__setattr__(name, check if name == "before_body" else value)

        monkeypatch.setattr(call, "Progress", Checked)
        return made

    return install


def transports(client_kind: str) -> dict[str, Any]:
    over_httpx = httpx.HTTPTransport() if client_kind == "blocking" else httpx.AsyncHTTPTransport()
    return {"own": None, "httpx": over_httpx}


@pytest.mark.parametrize("transport", ["own", "httpx"])
def test_it_runs_once_when_the_head_is_written(
    drive: Drive, client_kind: str, before_body: Any, transport: str
) -> None:
    seen = list[tuple[bool, bool]]()

    async def check() -> None:
        seen.append((made[-1].sending, made[-1].is_unsent))

    made: list[Progress] = before_body(check)
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, transport=transports(client_kind)[transport])
        assert driver(payout).transaction_id == wire.TRANSACTION_ID
        assert server.payments == 1
    assert seen == [(True, transport == "own")]  # of another transport, what was written is not known for certain
    assert not made[-1].is_unsent


@pytest.mark.parametrize("transport", ["own", "httpx"])
@pytest.mark.parametrize(
    "error",
    [
        momopay.JournalError("the database is away"),
        momopay.ConfigurationError("no"),
        TimeoutError("late"),
        LookupError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_it_raises_comes_out_unchanged_and_the_body_stays_unwritten(
    drive: Drive, client_kind: str, before_body: Any, transport: str, error: Exception
) -> None:
    async def check() -> None:
        raise error

    made: list[Progress] = before_body(check)
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, transport=transports(client_kind)[transport])
        with pytest.raises(type(error)) as caught:
            driver(payout)
        assert caught.value is error
        until(lambda: server.connections == 1, "the connection is made")
    assert (server.requests, server.payments) == ([], 0)
    assert made[-1].is_unsent is (transport == "own")


@pytest.mark.parametrize("transport", ["own", "httpx"])
def test_the_time_that_it_takes_counts(
    drive: Drive, client_kind: str, before_body: Any, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """Also over another transport that passes httpcore's trace on, where this is the only fence."""
    ahead, real = [0.0], clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + ahead[0])

    async def check() -> None:
        ahead[0] = 9.0

    before_body(check)
    with wire.serve(wire.succeeds()) as server:
        driver = drive(
            base_url=server.base_url, deadline=5.0, max_attempts=1, transport=transports(client_kind)[transport]
        )
        with pytest.raises(momopay.MomoPayError) as caught:
            driver(payout)
        assert caught.value.may_have_executed is (transport == "httpx")
    assert (server.requests, server.payments) == ([], 0)


@pytest.mark.parametrize("kind", [SyncBackend, AsyncBackend])
def test_an_attempt_has_no_more_time_than_its_call(kind: type[SyncBackend | AsyncBackend]) -> None:
    """Its process may have been frozen after the call reckoned how much time is left."""
    progress = Progress(clock.now() - 1.0)

    async def main(server: wire.Server) -> None:
        headers = common_headers(server.base_url, {})
        with pytest.raises(NotSentError):
            await kind().send("POST", server.base_url, headers, b"{}", timeout=5.0, progress=progress)

    with wire.serve(wire.succeeds()) as server:
        anyio.run(main, server)
        assert server.requests == []


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_payment_cancelled_while_it_runs_was_not_sent(loop: str, before_body: Any) -> None:
    made: list[Progress] = before_body(anyio.sleep_forever)

    async def main(server: wire.Server) -> None:
        async with momopay.AsyncClient("pk_test_x", base_url=server.base_url, budget=None) as client:
            with anyio.move_on_after(0.1):
                await payout(client)

    with wire.serve(wire.succeeds()) as server:
        anyio.run(main, server, backend=loop)
    assert made[-1].is_unsent
    assert (server.requests, server.payments) == ([], 0)
