"""`RedisRateBudget`: one rate budget for every process and machine that uses a key."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

from momopay._numbers import is_number, is_whole
from momopay._ratelimit.budget import check_size
from momopay._ratelimit.lane import Lane, Place
from momopay._ratelimit.line import Line
from momopay._redaction import clears_frames
from momopay.errors import ConfigurationError, MomoPayError
from momopay.redis.connection import RedisClient, RedisConnections
from momopay.redis.remote_log import RemoteLog


class RedisRateBudget:
    """One rate budget for all processes and machines that share a Redis or Valkey server (extra ``redis``).

    A script on the server does `RateBudget`'s arithmetic, in one round trip for each request; a request that has to
    wait asks again when its slot should have come. Payments go first whichever process they wait in. Pass one object
    to as many clients as there are. Each account has a log of its own, named by a hash, which expires by itself. While
    Redis is away, requests go on: each process keeps to an even share, and for one window more when Redis is back. One
    request in two seconds tries Redis again. The logger ``momopay`` says when Redis goes away (WARNING) and when it is
    back (INFO). Around an outage the service may answer a 429 to each process. Safe to use from many threads and event
    loops, and across a fork. Money never moves here.

    Args:
        url_or_client: A URL (``redis://``, ``rediss://``, ``unix://``), or a client: a `redis.Redis` serves both
            clients, a `redis.asyncio.Redis` serves `AsyncClient` on its own event loop. A client brings its own
            timeouts and retries; keep them under a second, because a payment waits for them.
        requests: How many requests a window holds, for all who share it. Two below the service's 60.
        window: Its length, seconds. One above the service's 60.
        sharers: Among how many processes the budget is divided while Redis is away; by default as many as Redis saw
            in the two windows before it last answered, or 8 if it never did.
        timeout: Seconds to connect to Redis, and again for its answer; a request waits for it.

    Raises:
        ConfigurationError: An argument is out of range, or redis-py is missing (``pip install 'momopay[redis]'``).
    """

    @clears_frames
    def __init__(
        self,
        url_or_client: str | RedisClient,
        *,
        requests: int = 58,
        window: float = 61.0,
        sharers: int | None = None,
        timeout: float = 0.5,
    ) -> None:
        check_size(requests, window)
        if sharers is not None and not (is_whole(sharers) and sharers >= 1):
            raise ConfigurationError("sharers must be a whole number of processes, at least 1")
        if not (is_number(timeout) and isfinite(timeout) and timeout > 0):
            raise ConfigurationError("timeout must be a finite number of seconds above 0")
        self.requests = requests
        self.window = window
        self._connect = partial(RedisConnections, url_or_client, timeout)
        self._new_log = partial(RemoteLog, requests, window, sharers)
        # By process, because the child of a fork must neither speak on its parent's connections nor count as the
        # parent. The parent's stay referenced there: to collect them could close them in the parent.
        self._connections = {os.getpid(): self._connect()}
        self._logs: dict[tuple[int, str], RemoteLog] = {}

    def slots(self, backend: Any, account_hash: str) -> Any:
        """Return the slots of an account, asked for through a client's backend. Clients do this for themselves."""
        key = "momopay:budget:" + account_hash
        return RedisSlots(backend, key, self._own_connections, partial(self._own_log, key))

    def close(self) -> None:
        """Close the blocking connections; they open again when needed. An event loop's close with its last client."""
        self._own_connections().close()

    def __repr__(self) -> str:
        return f"RedisRateBudget(requests={self.requests}, window={self.window})"

    def _own_connections(self) -> RedisConnections:
        return self._connections.get(os.getpid()) or self._connections.setdefault(os.getpid(), self._connect())

    def _own_log(self, key: str) -> RemoteLog:
        name = (os.getpid(), key)
        return self._logs.get(name) or self._logs.setdefault(name, self._new_log())


@dataclass
class RedisSlots:
    """One account's slots as one client asks for them. Never raises what redis-py raises."""

    backend: Any  # the client's, blocking or asynchronous
    key: str
    connections: Callable[[], RedisConnections]
    log: Callable[[], RemoteLog]

    @property
    def line(self) -> Line:
        """Where the calls of this process wait."""
        return self.log().line

    async def reserve_now(self, now: float, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        log = self.log()
        local = log.expect_locally(now, lane, place)
        if local > 0:
            return local
        delay = await self._ask("reserve", lane, place)
        if delay is not None and delay > 0:
            return delay
        local = log.reserve_locally(self.backend.now(), lane)
        return local if delay is None else 0.0

    async def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, to nobody who shares the budget; while Redis is away, in this process."""
        self.log().stop(now, until)
        await self._ask("stop", Lane.READ, Place(), until - now)

    async def close(self) -> None:
        """Close connections that nobody else uses."""
        await self.connections().leave(self.backend)

    async def _ask(self, operation: str, lane: Lane, place: Place, span: float = 0.0) -> float | None:
        """Run the script and return the slot's delay; return None while Redis is away."""
        log = self.log()
        if not log.should_ask(self.backend.now()):
            return None
        try:
            answer = await self.connections().run(self.backend, self.key, log.arguments(operation, lane, place, span))
            return log.answered(self.backend.now(), answer)
        except MomoPayError:  # a client that this caller cannot use
            raise
        except Exception as error:  # noqa: BLE001  whatever is wrong with Redis, a payment goes on without it
            log.failed(self.backend.now(), error)
            return None
