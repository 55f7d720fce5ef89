"""A task cancelled where the core waits: for the rate budget, and between two attempts.

tests/transport/test_async_backend.py cancels tasks that wait for a socket.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

import momopay
import wire
from drivers import unique_key
from wire import Server


async def arrives(server: Server) -> None:
    while not server.requests:  # noqa: ASYNC110  a thread of the server's says when
        await asyncio.sleep(0.001)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_payment_cancelled_while_it_waits_for_the_budget_was_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    class Watched(momopay.RateBudget):
        refusals = 0

        def reserve(self, now: float, lane: momopay.Lane, within: float = math.inf) -> float:
            delay = super().reserve(now, lane, within)
            self.refusals += delay > within
            return delay

    async def main(server: Server) -> None:
        budget = Watched(requests=1, window=0.3)
        async with momopay.AsyncClient(unique_key(), base_url=server.base_url, budget=budget) as client:
            await client.wallet.balance()
            task = asyncio.ensure_future(client.stk.initiate(amount=100, phone="0712345678"))
            while not budget.refusals:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)
            await cancelled(task)
            assert [request.method for request in server.requests] == ["GET"]
            await client.payouts.initiate(amount=100, phone="0712345678", reference="INV-42")
            assert [request.path for request in server.requests[1:]] == ["/v1/b2c/payouts"]

    with wire.serve(wire.succeeds()) as server:
        asyncio.run(main(server))
        assert server.payments == 1
    assert "unknown" not in caplog.text


def test_a_top_up_cancelled_between_two_attempts_is_logged(
    caplog: pytest.LogCaptureFixture, backoff: Callable[[float], None]
) -> None:
    backoff(30.0)

    async def main(server: Server) -> None:
        async with momopay.AsyncClient(unique_key(), base_url=server.base_url, budget=None) as client:
            top_up = client.wallet.top_up(amount=100, phone="0712345678", account_reference="INV-42")
            task = asyncio.ensure_future(top_up)
            await arrives(server)
            await asyncio.sleep(0.05)  # for the task to reach its wait; the result is the same before it
            await cancelled(task)

    with wire.serve(wire.closes(commits=True), wire.succeeds()) as server:
        asyncio.run(main(server))
        assert len(server.requests) == 1
    assert caplog.text.count("outcome is unknown, reference 'INV-42'") == 1
    assert "712345678" not in caplog.text
