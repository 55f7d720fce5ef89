"""`RedisRateBudget`: one rate budget for every process and machine that uses a key."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from momopay._ratelimit.budget import Lane, check_size
from momopay._redaction import clears_frames
from momopay.errors import ConfigurationError
from momopay.redis.process_state import ProcessState
from momopay.redis.remote_log import RemoteLog

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

_TIMEOUT = 0.5


class RedisRateBudget:
    """One rate budget for all processes and machines that share a Redis or Valkey server (extra ``redis``).

    The arithmetic is `RateBudget`'s, run by a script on the server, by the server's clock, in one round trip for each
    request; a request that had to wait for its slot asks once more whether a 429 has taken it back. Pass one
    object to as many clients as there are; each account has a log of its own, under
    ``momopay:budget:`` and a hash of address and key, which expires by itself.

    While Redis is away, requests go on: each process keeps to an even share, counting what everybody had
    taken when Redis was last seen. One request in two seconds tries Redis again, and is delayed by no more than
    `timeout` to connect and again for the answer. The logger ``momopay`` says so, once when Redis goes (WARNING)
    and once when it is back (INFO). With more sharers than requests, or with sharers that Redis has not seen, the
    service may answer 429, which holds all of them back; no payment fails of it but by its deadline.

    Safe to use from many threads and event loops, and across a fork. Money never moves here.

    Args:
        url_or_client: A URL (``redis://``, ``rediss://``, ``unix://``), or a client: a `redis.Redis` serves both
            clients, a `redis.asyncio.Redis` serves `AsyncClient` on the event loop that it belongs to. A client brings
            its own timeouts and retries; keep them under a second, for a payment waits for them.
        requests: How many requests a window holds, for all who share it. Two below the service's 60.
        window: Its length, seconds. One above the service's 60.
        sharers: Among how many processes the budget is divided while Redis is away; by default as many as Redis
            has seen in the last two windows, and at least 8 where it has not watched for a whole window.
        timeout: Seconds to connect to Redis, and again for its answer.

    Raises:
        ConfigurationError: A senseless option, something that is neither URL nor client, or redis-py is missing
            (remedy: ``pip install 'momopay[redis]'``).
    """

    @clears_frames
    def __init__(
        self,
        url_or_client: str | redis.Redis | redis.asyncio.Redis,
        *,
        requests: int = 58,
        window: float = 61.0,
        sharers: int | None = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        check_size(requests, window)
        if (sharers is not None and sharers < 1) or not (isfinite(timeout) and timeout > 0):
            raise ConfigurationError("a shared budget needs at least 1 sharer, and a timeout of more than 0 seconds")
        self.requests = requests
        self.window = window
        self._premises = ProcessState(url_or_client, timeout, lambda: RemoteLog(requests, window, sharers))

    def slots(self, backend: SyncBackend | AsyncBackend, account_hash: str) -> RedisLimiter:
        """Give the slots of an account; clients do this for themselves.

        Args:
            backend: The port of the client that asks.
            account_hash: Whose budget it is.
        """
        return RedisLimiter(self._premises, backend, account_hash)

    def close(self) -> None:
        """Close the blocking connections; they open again at need. An event loop's close with its last client."""
        self._premises.links.close()

    def __repr__(self) -> str:
        return f"RedisRateBudget(requests={self.requests}, window={self.window})"


class RedisLimiter:
    """The budget of one account, asked for through one port. Never raises what redis-py raises."""

    def __init__(self, premises: ProcessState, backend: SyncBackend | AsyncBackend, account_hash: str) -> None:
        self._premises = premises
        self._backend = backend
        self._key = "momopay:budget:" + account_hash

    async def reserve(self, now: float, lane: Lane, within: float) -> float:  # noqa: ARG002  asking takes time
        """Take the next slot and say in how many seconds it comes; take none if that is later than `within`.

        Raises:
            ConfigurationError: A client of the other colour was given; nothing was sent.
        """
        return await self._premises.log(self._key).reserve(self._run, self._backend.now, lane, within)

    async def stop(self, now: float, until: float) -> None:  # noqa: ARG002  asking takes time
        """Hand out no slot before `until`, to nobody who shares the budget."""
        await self._premises.log(self._key).stop(self._run, self._backend.now, until)

    async def stopped(self, now: float) -> bool:  # noqa: ARG002  asking takes time
        """Tell whether slots handed out for now are taken back."""
        return await self._premises.log(self._key).stopped(self._run, self._backend.now)

    async def close(self) -> None:
        """Close connections that nobody else uses."""
        await self._premises.links.leave(self._backend)

    async def _run(self, arguments: tuple[str, ...]) -> Any:
        return await self._premises.links.run(self._backend, self._key, arguments)
