"""Runs the blocks of one page in order, in one namespace.

As a program it runs a page in a separate process, for what a process can do only once, such as setting up Django.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import os
import sqlite3
import sys
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from docs.blocks import Block, blocks_in
from drivers import unique_key
from momopay import AsyncClient, Client, Journal, PollSchedule, RateBudget, RedisRateBudget
from momopay._core import state
from momopay._polling.wait import WaitCall
from momopay.sandbox import Sandbox
from patience import until
from served import asgi_served, wsgi_served

SPEED = 100
"""How much faster than real time the sandbox, the waits and the rate budget run on a page."""
EXTRA_TIME = 5
"""Factor on the limit of a wait, for a busy machine."""
RUN = {"python", "check"}
CLOSED = (AsyncClient, Client, Journal, RedisRateBudget)


def is_run(block: Block) -> bool:
    """Return whether the block is run as part of its page. Test files and recipes are run by themselves."""
    return block.language in RUN and block.reason is None and not block.is_program


def run_page(page: Path, sandbox: Sandbox) -> None:
    sandbox.reset()
    key = unique_key()
    environment = {
        "MOMOPAY_API_KEY": key,
        "MOMOPAY_BASE_URL": sandbox.base_url,
        "MOMOPAY_CALLBACK_SECRET": "a secret of more than 16 bytes",
    }
    names: dict[str, Any] = {
        "__name__": "page",
        "account": sandbox.account(key),
        "asgi_served": asgi_served,
        "key": key,
        "let_leases_end": let_leases_end,
        "sandbox": sandbox,
        "until": until,
        "wsgi_served": wsgi_served,
    }
    with (
        waits_scaled(SPEED),
        patch.object(state, "RateBudget", partial(RateBudget, window=61.0 / SPEED)),
        patch.dict(os.environ, environment),
        asyncio.Runner() as runner,
    ):
        made: dict[int, Any] = {}
        try:
            for block in filter(is_run, blocks_in(page)):
                run_block(block, names, runner)
                made |= {id(each): each for each in names.values() if isinstance(each, CLOSED)}
        finally:
            close_all([*made.values(), *names.values()], runner)
            names.clear()
            made.clear()
            gc.collect()  # a resource that the page did not close is reported here, not on the next page


def waits_scaled(speed: float) -> AbstractContextManager[Any]:
    """Run all waits that begin in this context so much faster than real time."""
    begin: Any = WaitCall.__init__

    def begin_scaled(watch: WaitCall, *arguments: Any) -> None:
        others, schedule = arguments[:-1], arguments[-1]
        scaled = PollSchedule(schedule.first / speed, schedule.every / speed, schedule.limit / speed * EXTRA_TIME)
        begin(watch, *others, scaled)

    return patch.object(WaitCall, "__init__", begin_scaled)


def let_leases_end(file: str) -> None:
    """Let the latest attempt of every payment in a SQLite journal be long ago, so that a person may release it."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE momopay_payments SET lease_until = 0")


def run_block(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """Run a block. Tracebacks show the line numbers of the page."""
    text = "\n" * (block.line - 1) + block.text
    # A reader's file does not have this module's `from __future__ import annotations`.
    code = compile(text, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, names))
    else:
        exec(code, names)


def close_all(values: list[Any], runner: asyncio.Runner) -> None:
    """Close the clients, journals and budgets that a page made, also those whose name was reused."""
    for value in values:
        if isinstance(value, AsyncClient):
            runner.run(value.aclose())
        elif isinstance(value, Client | Journal | RedisRateBudget):
            value.close()


if __name__ == "__main__":
    with Sandbox(speed=SPEED) as own_sandbox:
        run_page(Path(sys.argv[1]), own_sandbox)
