"""Confirmed callbacks over real sockets: the sandbox POSTs each one, and a payment is settled once it is confirmed.

The sandbox's clock runs faster than the wall's, as in `sockets.py`; all figures are in the service's seconds.
"""

from __future__ import annotations

import asyncio
import logging

from momopay import AsyncClient, MomoPayError, RateBudget, parse_callback
from momopay.sandbox import Sandbox
from scale.receiver import Receiver
from scale.report import Report
from scale.sockets import Plan, Way, warm_up

RETRY = 10.0
"""Seconds until a callback that was not confirmed comes again."""
PAYERS = 4
BUDGET = 50
"""Requests in a window: so many fewer than the service allows that a busy machine delays none into a 429."""


def ceiling(plan: Plan) -> float:
    """Return the payments a minute that the budget lets a key begin if nothing has to be read."""
    return BUDGET * 60.0 / (60.0 + plan.margin)


async def settle(plan: Plan) -> Report:
    """Pay without a pause and confirm every callback; return what was settled."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL)
    with Sandbox(speed=plan.speed) as sandbox:
        await warm_up(sandbox)
        way = Way("confirmed callbacks", plan, sandbox)
        async with (
            Receiver(plan.seed) as receiver,
            AsyncClient(
                way.key, base_url=sandbox.base_url, budget=RateBudget(BUDGET, (60.0 + plan.margin) / plan.speed)
            ) as client,
            asyncio.TaskGroup() as tasks,
        ):

            async def confirm(body: bytes) -> None:
                callback = parse_callback(body)
                while True:
                    try:
                        ended = await client.transactions.confirm(callback)
                    except MomoPayError:
                        way.report.delays.append(RETRY)
                        await way.pass_time(RETRY)
                    else:
                        way.hear(ended.transaction_id, ended.updated_at, ended.status, reasoned=True)
                        return

            async def pay(url: str) -> None:
                while way.paying:
                    prompt = await client.stk.initiate(amount=100, phone="254712349945", callback_url=url)
                    tasks.create_task(way.be_the_customer(prompt.transaction_id))

            def hear(body: bytes) -> None:
                tasks.create_task(confirm(body))

            url = receiver.url(way.key, hear, 0.0)
            await asyncio.gather(*(pay(url) for _ in range(PAYERS)))
            await way.pass_time(plan.drain)
        way.tally()
        way.report.left_waiting = sum(
            each.transaction_id not in way.heard for each in sandbox.callbacks if each.status == 200
        )
        return way.report
