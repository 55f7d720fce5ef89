"""A real Redis or Valkey on a free loopback port, and a client's place at a budget that is shared over it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

import pytest
import redis
import redis.asyncio

from momopay import Lane, RedisRateBudget
from momopay._core.operation import run_sync
from momopay._ratelimit.lane import ALONE, Place
from momopay._transport.async_backend import AsyncBackend
from momopay._transport.sync_backend import SyncBackend

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
_START_TIMEOUT = 10.0


def need_redis() -> None:
    """Skip the test if there is no server, unless the run forbids to skip."""
    if PROGRAM is None:
        reason = "needs redis-server or valkey-server"
        pytest.fail(reason) if os.environ.get("CI_REQUIRE_ALL") else pytest.skip(reason)


def connect(url: str, **options: Any) -> Any:
    """Return a blocking client; redis-py's own types are known in part only."""
    library: Any = redis
    return library.Redis.from_url(url, **options)


def connect_asyncio(url: str, **options: Any) -> Any:
    """Return an asyncio client."""
    library: Any = redis.asyncio
    return library.Redis.from_url(url, **options)


class RedisServer:
    """The server. It keeps nothing on disk, so after a restart on the same port its data is lost."""

    def __init__(self, *options: str) -> None:
        self._options = options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        assert PROGRAM is not None
        fixed = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no")
        command = [PROGRAM, "--port", str(self.port), *fixed, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + _START_TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, "the server ended at once"
                assert time.monotonic() < give_up, "the server does not listen"
                time.sleep(0.02)
            else:
                return self

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Caller:
    """One client's place at a shared budget, blocking or asynchronous. `ahead` moves its clock, not the server's."""

    def __init__(self, budget: RedisRateBudget, account_hash: str, *, is_async: bool = False) -> None:
        self.ahead = 0.0
        self._runner = asyncio.Runner() if is_async else None
        backend: Any = AsyncBackend() if is_async else SyncBackend()
        backend.now = self._now
        self._slots: Any = budget.slots(backend, account_hash)

    def _now(self) -> float:
        return time.monotonic() + self.ahead

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return run_sync(work) if self._runner is None else self._runner.run(work)

    def reserve(self, lane: Lane = Lane.PAYMENT, place: Place = ALONE) -> float:
        """Take a slot if there is one now; return the seconds until there may be one."""
        return float(self._run(self._slots.reserve_now(self._now(), lane, place)))

    def at_once(self, calls: int) -> int:
        """Return how many of so many calls get a slot at once."""
        return [self.reserve() for _ in range(calls)].count(0.0)

    def stop(self, seconds: float) -> None:
        now = self._now()
        self._run(self._slots.stop(now, now + seconds))

    def leave(self) -> None:
        self._run(self._slots.close())

    def close(self) -> None:
        self.leave()
        if self._runner is not None:
            self._runner.close()
