"""The connections of one process to Redis: one client of redis-py for all threads, and one for each event loop.

Thread safety: a lock guards which clients there are. redis-py's clients are safe to share among threads, or among the
tasks of one loop; an asyncio connection belongs to its loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

from momopay.errors import ConfigurationError
from momopay.redis.script import script_text

if TYPE_CHECKING:  # a blocking client must not load the other backend
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

# For all threads, and for each event loop. A reply takes about a millisecond, so more would only load the server.
_MAX_CONNECTIONS: Final = 16


class RedisClient(Protocol):
    """A client of redis-py: a `redis.Redis` or a `redis.asyncio.Redis`."""

    def register_script(self, script: Any) -> Any:
        """Return a callable that runs a script."""


@dataclass
class _Link:
    client: Any  # of redis-py
    script: Any  # runs on the client
    users: set[object] = field(default_factory=set[object])


class RedisConnections:
    """How one budget reaches Redis from one process. A given client keeps its own timeouts, and its owner closes it."""

    def __init__(self, url_or_client: str | RedisClient, timeout: float) -> None:
        try:
            import redis  # noqa: PLC0415  a program that shares no budget needs no redis-py
        except ModuleNotFoundError as error:
            raise ConfigurationError("a shared budget needs an extra: pip install 'momopay[redis]'") from error
        self._library: Any = redis
        self._given: Any = url_or_client
        self._timeout = timeout
        self._is_url = isinstance(url_or_client, str)
        self._is_async = inspect.iscoroutinefunction(getattr(url_or_client, "execute_command", None))
        self._lock = threading.Lock()
        self._links: WeakKeyDictionary[object, _Link] = WeakKeyDictionary()  # by event loop; `self` for all threads
        if self._is_url:
            self._connect(is_async=False)  # this only checks the URL; redis-py connects at the first command
        elif not callable(getattr(url_or_client, "register_script", None)):
            raise ConfigurationError("a shared budget needs a Redis URL, a redis.Redis or a redis.asyncio.Redis")

    async def run(self, backend: SyncBackend | AsyncBackend, key: str, arguments: list[str]) -> Any:
        """Run the script once. The connections stay open until the client whose backend this is leaves."""
        loop = _running_loop() if backend.is_async else None
        if self._is_async and loop is None:
            raise ConfigurationError(
                "a redis.asyncio client serves AsyncClient on asyncio; give a URL or a redis.Redis. Nothing was sent"
            )
        if loop is None or not (self._is_url or self._is_async):
            return await backend.in_thread(self._link(self, backend).script, [key], arguments)
        task = asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        async with asyncio.timeout(2 * self._timeout):  # to connect, and for the answer
            reply = await self._link(loop, backend).script([key], arguments)
        if task is not None and task.cancelling() > cancelled:
            raise asyncio.CancelledError  # asyncio.wait_for, which redis-py uses, loses one on Python 3.11
        return reply

    async def leave(self, backend: SyncBackend | AsyncBackend) -> None:
        """Close the connections that only this client used."""
        loop = _running_loop() if backend.is_async else None
        if (client := self._unlink(self, backend)) is not None:
            client.close()
        if loop is not None and (client := self._unlink(loop, backend)) is not None:
            await client.aclose()

    def close(self) -> None:
        """Close the connections of all threads; they open again when needed."""
        with self._lock:
            link = self._links.pop(self, None)
        if self._is_url and link is not None:
            link.client.close()

    def _link(self, home: object, backend: object) -> _Link:
        with self._lock:
            if home not in self._links:
                client = self._connect(is_async=home is not self) if self._is_url else self._given
                self._links[home] = _Link(client, client.register_script(script_text()))
            self._links[home].users.add(backend)
            return self._links[home]

    def _unlink(self, home: object, backend: object) -> Any:
        """Drop a user; return the client if that was its last and it is ours to close."""
        with self._lock:
            link = self._links.get(home)
            if link is not None:
                link.users.discard(backend)
            is_last = link is not None and not link.users
            return self._links.pop(home).client if is_last and self._is_url else None

    def _connect(self, *, is_async: bool) -> Any:
        library = self._library.asyncio if is_async else self._library
        # A connection that the server closed while it was idle is worth a second try; a server that is away is not.
        retry = library.retry.Retry(self._library.backoff.NoBackoff(), 1, (self._library.ConnectionError,))
        times = dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"), self._timeout)
        try:
            pool = library.BlockingConnectionPool.from_url(
                self._given, max_connections=_MAX_CONNECTIONS, retry=retry, **times
            )
        except ValueError:  # not chained: its text may quote the password
            raise ConfigurationError("not a Redis URL: it must begin with redis://, rediss:// or unix://") from None
        return library.Redis.from_pool(pool)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return asyncio's event loop; None on trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
