"""The way to Redis, in each colour: connections of each process and event loop, and a short time for each question."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from momopay.errors import ConfigurationError
from momopay.redis.script import Script, script

if TYPE_CHECKING:
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

AT_ONCE = 16
"""How many ask at once, in one process or loop; the others wait their turn, and find a connection open."""


class RedisConnections:
    """How one budget reaches Redis.

    Args:
        given: A URL, or a client of redis-py of either colour.
        timeout: Seconds to connect, and seconds for an answer; a client that was given has its own.

    Raises:
        ConfigurationError: Neither of both, a senseless URL, or no redis-py.
    """

    def __init__(self, given: Any, timeout: float) -> None:
        self._given = given
        self._timeout = timeout
        self._is_url = isinstance(given, str)
        self._awaits = not self._is_url and inspect.iscoroutinefunction(getattr(given, "execute_command", None))
        self._library()
        if self._is_url:
            self._connect(awaits=False)
        elif not callable(getattr(given, "evalsha", None)):
            raise ConfigurationError("a shared budget needs a Redis URL, a redis.Redis or a redis.asyncio.Redis")
        self._blocking = _BlockingLink(lambda: self._connect(awaits=False) if self._is_url else given, timeout)
        self._awaiting: WeakKeyDictionary[asyncio.AbstractEventLoop, _AwaitingLink] = WeakKeyDictionary()

    @staticmethod
    def _library() -> Any:
        try:
            import redis  # noqa: PLC0415  whoever shares no budget needs no redis-py
        except ModuleNotFoundError:
            raise ConfigurationError("a shared budget needs an extra: pip install 'momopay[redis]'") from None
        return redis

    def _connect(self, *, awaits: bool) -> Any:
        library = self._library()
        kind: Any = (library.asyncio if awaits else library).Redis
        # A connection that broke while nobody looked is worth one more try; a server that is away is not worth more.
        again: Any = (library.asyncio if awaits else library).retry.Retry(
            library.backoff.NoBackoff(), 1, supported_errors=(library.ConnectionError,)
        )
        try:
            return kind.from_url(
                self._given,
                socket_timeout=self._timeout,
                socket_connect_timeout=self._timeout,
                retry=again,
            )
        except ValueError:
            raise ConfigurationError("not a Redis URL: it must begin with redis://, rediss:// or unix://") from None

    async def run(self, backend: SyncBackend | AsyncBackend, key: str, arguments: tuple[str, ...]) -> Any:
        """Run the script once.

        Args:
            backend: The port of whoever asks; until it leaves, connections are kept open for it.
            key: The Redis key.
            arguments: The script's.

        Raises:
            ConfigurationError: An asyncio client was given, and the one who asks is not on asyncio.
            Exception: Whatever redis-py raises.
        """
        loop = _event_loop() if backend.is_async else None
        if self._awaits and loop is None:
            raise ConfigurationError(
                "a redis.asyncio client serves AsyncClient on asyncio; give a URL or a redis.Redis. Nothing was sent"
            )
        if loop is not None and (self._is_url or self._awaits):
            link = self._awaiting.get(loop)
            if link is None:
                client = self._connect(awaits=True) if self._is_url else self._given
                link = self._awaiting[loop] = _AwaitingLink(client, self._timeout)
            return await link.run(backend, key, arguments)
        return await backend.in_thread(self._blocking.run, backend, key, arguments)

    async def leave(self, backend: SyncBackend | AsyncBackend) -> None:
        """Keep nothing open for this port any longer."""
        if not self._is_url:
            return
        loop = _event_loop() if backend.is_async else None
        link = None if loop is None else self._awaiting.get(loop)
        if loop is not None and link is not None and link.is_last(backend):
            del self._awaiting[loop]
            await link.close()
        self._blocking.leave(backend)

    def close(self) -> None:
        """Close the blocking connections."""
        if self._is_url:
            self._blocking.close()


class _BlockingLink:
    """A client for many threads, connected at the first question."""

    def __init__(self, connect: Callable[[], Any], timeout: float) -> None:
        self._connect = connect
        self._timeout = timeout
        self._client: Any = None
        self._users = set[object]()
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()

    def run(self, user: object, key: str, arguments: tuple[str, ...]) -> Any:
        with self._lock:
            self._client = self._client or self._connect()
            client = self._client
            self._users.add(user)
        if not self._turns.acquire(timeout=self._timeout):
            raise TimeoutError("too many ask Redis at once")
        try:
            return self._ask(client, script(), key, arguments)
        finally:
            self._turns.release()

    @staticmethod
    def _ask(client: Any, known: Script, key: str, arguments: tuple[str, ...]) -> Any:
        try:
            return client.evalsha(known.digest, 1, key, *arguments)
        except Exception as error:
            if not _is_unknown(error):
                raise
        return client.eval(known.text, 1, key, *arguments)

    def leave(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
            last = not self._users
        if last:
            self.close()

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


class _AwaitingLink:
    """A client for the tasks of one event loop."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._users = set[object]()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, user: object, key: str, arguments: tuple[str, ...]) -> Any:
        self._users.add(user)
        task = asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        async with asyncio.timeout(2 * self._timeout), self._turns:  # to connect, and for the answer
            reply = await self._ask(script(), key, arguments)
        if task is not None and task.cancelling() > cancelled:  # redis-py's wait_for loses one on Python 3.11
            raise asyncio.CancelledError
        return reply

    async def _ask(self, known: Script, key: str, arguments: tuple[str, ...]) -> Any:
        try:
            return await self._client.evalsha(known.digest, 1, key, *arguments)
        except Exception as error:
            if not _is_unknown(error):
                raise
        return await self._client.eval(known.text, 1, key, *arguments)

    def is_last(self, user: object) -> bool:
        self._users.discard(user)
        return not self._users

    def close(self) -> Coroutine[Any, Any, None]:
        closing: Coroutine[Any, Any, None] = self._client.aclose()
        return closing


def _event_loop() -> asyncio.AbstractEventLoop | None:
    """Give asyncio's loop; none on trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _is_unknown(error: Exception) -> bool:
    return type(error).__name__ == "NoScriptError"
