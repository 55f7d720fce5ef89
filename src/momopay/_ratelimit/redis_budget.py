"""`RedisRateBudget`: one rate budget for every process and machine that uses a key.

Redis holds the text of a `SharedState`, by the server's clock. A process reads it, does the arithmetic, and writes the
new text unless somebody else has written meanwhile; then it starts over. There is no lock on the server, so a process
that dies or freezes blocks nobody.

If Redis loses the log, the window counts as full for a process that has used the budget. For another one, this is the
first use ever.

While a thread asks, it holds the process's lock. An `AsyncClient` asks from a worker thread.
"""

from __future__ import annotations

import logging
import socket
import ssl
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from momopay._ratelimit.budget import BUSY, BaseBudget
from momopay._ratelimit.file_budget import Change, SharedSlots, SharedState
from momopay._ratelimit.slot_log import SlotLog
from momopay._redaction import clears_frames, redact
from momopay.errors import ConfigurationError
from momopay.money import is_number, is_whole

if TYPE_CHECKING:
    from momopay._ratelimit.budget import Backend

__all__ = ["RedisClient", "RedisRateBudget"]

logger: logging.Logger = logging.getLogger("momopay")

_COMPARE_AND_SET: Final = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
_ATTEMPTS: Final = 20  # to write before somebody else does; each that fails is a slot for another process
_RETRY: Final = 2.0  # seconds from a failure until Redis is tried again


class RedisClient(Protocol):
    """A blocking client of redis-py: a `redis.Redis`."""

    def pipeline(self, transaction: bool = True) -> Any:
        """Return a pipeline."""


class RedisRateBudget(BaseBudget):
    """One rate budget for all processes and machines that share a Redis or Valkey server (extra ``redis``).

    It works as `RateBudget` does, with its log in Redis; a slot takes two round trips. Payments go first, whichever
    process they wait in. One object can serve any number of clients, and each account has its own log, named by a hash.
    While Redis is away, each process keeps to an even share of the budget, and one request in two seconds tries Redis
    again. The logger ``momopay`` says when Redis goes away or has lost the log (WARNING) and when it is back (INFO).
    What will not heal by itself, such as a wrong password, missing rights or TLS that the server lacks, is an ERROR.
    Around an outage the service may answer one 429 to each process. Safe to use from many threads and event loops, and
    across a fork. It moves no money.

    Args:
        url_or_client: A URL (``redis://``, ``rediss://``, ``unix://``), or a `redis.Redis`. Either serves both clients;
            an `AsyncClient` asks from a worker thread. A `redis.Redis` keeps its own timeouts and retries; keep them
            under a second, because a payment waits for them.
        requests: How many requests a window holds, for all who share it. Two below the service's 60.
        window: Its length, seconds. One above the service's 60.
        sharers: The number of processes among which the budget is divided while Redis is away.
        timeout: Seconds to connect to Redis, and again for its answer; a request waits for it.
    """

    @clears_frames
    def __init__(
        self,
        url_or_client: str | RedisClient,
        *,
        requests: int = 58,
        window: float = 61.0,
        sharers: int = 8,
        timeout: float = 0.5,
    ) -> None:
        if not (is_whole(sharers) and sharers >= 1):
            raise ConfigurationError("sharers must be a whole number of processes, at least 1")
        if not (is_number(timeout) and isfinite(timeout) and timeout > 0):
            raise ConfigurationError("timeout must be a finite number of seconds above 0")
        self._sharers = sharers
        _connected(url_or_client, timeout)  # this only checks the URL; redis-py connects at the first command
        self._given = url_or_client
        self._timeout = timeout
        super().__init__(requests, window)

    def _open(self, account_hash: str) -> RedisSlots:
        size = (self.requests, self.window)
        return RedisSlots(self._given, self._timeout, account_hash, size, self._sharers)


class RedisSlots(SharedSlots):
    """The slots of one account, in Redis. Never raises what redis-py raises."""

    def __init__(self, given: Any, timeout: float, account_hash: str, size: tuple[int, float], sharers: int) -> None:
        super().__init__(*size)
        self._given = given  # a URL or a client
        self._timeout = timeout
        self._error: type[Exception] = _library().RedisError
        self._client: Any = None
        self._key = "momopay:budget:" + account_hash
        self._sharers = sharers
        self._is_known = False  # whether this process has used the budget
        self._last_stop = -inf  # of the shared log, on this machine's clock
        self._share: SharedState | None = None  # what it may send while Redis is away, on this machine's clock
        self._retry_at = -inf
        self._is_refused = False  # and the log says so

    def close(self) -> None:
        # Without the lock, because the caller may be an event loop. A connection in use closes when it is collected.
        client, self._client = self._client, None
        if client is not None and client is not self._given:  # the user's own stays open
            client.connection_pool.disconnect(inuse_connections=False)

    async def _change(self, backend: Backend, change: Change) -> float:
        delay: float = await backend.in_thread(self._ask, backend, change)
        return delay

    def _ask(self, backend: Backend, change: Change) -> float:
        """Change the state in Redis, or this process's share while Redis is away, and return the delay."""
        with self._lock:
            if self._share is None or backend.now() >= self._retry_at:
                try:
                    delay = self._exchange(backend, change)
                except (self._error, UnicodeError) as error:  # nothing wider: one from a signal handler must pass
                    self._go_on_without(backend.now(), error)
                else:
                    if self._share is not None:
                        self._share, self._is_refused = None, False
                        logger.info("the shared rate budget is back")
                    return delay
            now = backend.now()
            return self._apply(change, cast("SharedState", self._share), now, now)

    def _exchange(self, backend: Backend, change: Change) -> float:
        # Taken away until all answers are read. After an exception, the next request could read those of this one.
        client, self._client = self._client or _connected(self._given, self._timeout), None
        for _ in range(_ATTEMPTS):
            # The clock last, so that it is not earlier than the state that was read.
            text, (seconds, microseconds) = client.pipeline(transaction=False).get(self._key).time().execute()
            now, at = backend.now(), seconds + microseconds / 1e6
            state = SharedState.parse(text, *self.size, at) if text else None
            is_lost = state is None and (bool(text) or self._is_known)
            if state is None:
                state = SharedState.full(*self.size, at) if is_lost else SharedState(SlotLog(*self.size))
            delay = self._apply(change, state, at, now)
            if client.eval(_COMPARE_AND_SET, 1, self._key, text or b"", state.dump(at)):
                if is_lost:
                    logger.warning("Redis has lost the log of the rate budget: no request for %g s", self.size[1])
                self._is_known, self._last_stop = True, state.log.stopped_until + now - at
                break
        else:
            delay = BUSY
        self._client = client
        return delay

    def _go_on_without(self, now: float, error: Exception) -> None:
        """Keep to this process's share from now on, whatever was sent before: a 429 then stops the process."""
        self._retry_at = now + _RETRY
        requests, window = self.size
        remedy = _remedy(error)
        if self._share is None:
            self._share = SharedState(SlotLog(max(1, requests // self._sharers), window))
            self._share.log.stopped_until = self._last_stop
            if isinstance(error, _library().TimeoutError) and self._answers_without_tls():
                remedy = "the server has no TLS there, so use redis://"
        elif not remedy or self._is_refused:
            return
        self._is_refused = bool(remedy)
        # The server's words, without the command of ours that redis-py puts before them.
        words = redact(str(error).rpartition("caused error: ")[2])
        logger.log(
            logging.ERROR if remedy else logging.WARNING,
            "the shared rate budget is %s (%s: %s): this process goes on with %d of %d requests in %g s%s",
            "refused" if remedy else "away",
            *(type(error).__name__, words),
            *(max(1, requests // self._sharers), requests, window),
            remedy and f". It does not heal by itself: {remedy}",
        )

    def _answers_without_tls(self) -> bool:
        """Return whether a server that was asked for TLS takes plain text. It waits for the rest of what it reads."""
        pool = _connected(self._given, self._timeout).connection_pool
        if not issubclass(pool.connection_class, _library().SSLConnection):
            return False
        address = (pool.connection_kwargs.get("host", "localhost"), pool.connection_kwargs.get("port", 6379))
        try:
            with socket.create_connection(address, self._timeout) as plain:
                plain.sendall(b"PING\r\n")
                return plain.recv(1) in {b"+", b"-"}  # PONG, or a refusal
        except OSError:
            return False


def _remedy(error: Exception) -> str:
    """Return what a person must correct before Redis serves this budget; "" if it may come back by itself."""
    library, cause = _library().exceptions, error.__context__
    if isinstance(error, library.AuthenticationError | library.NoPermissionError):
        return "correct the user, the password, or the rights to the commands GET, SET, TIME and EVAL"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        return "correct the certificates, or use redis:// if the server has no TLS"
    if isinstance(error, UnicodeError):  # a part of it is empty or too long
        return "correct the name of the host"
    return ""


def _library() -> Any:
    try:
        import redis  # noqa: PLC0415  a program that shares no budget needs no redis-py
    except ModuleNotFoundError as error:
        raise ConfigurationError('a shared budget needs an extra: pip install "momopay[redis]"') from error
    return redis


def _connected(url_or_client: str | RedisClient, timeout: float) -> Any:
    """Return a client of redis-py, which connects at the first command."""
    library = _library()
    if not isinstance(url_or_client, str):
        if isinstance(url_or_client, library.Redis):
            return url_or_client
        raise ConfigurationError(
            "a shared budget needs a Redis URL or a redis.Redis, which serve an AsyncClient, too; a redis.asyncio"
            " client serves only one event loop"
        )
    # One retry, for a connection that the server closed while it was idle.
    retry = library.retry.Retry(library.backoff.NoBackoff(), 1, (library.ConnectionError,))
    times = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), timeout)
    try:
        return library.Redis.from_pool(library.ConnectionPool.from_url(url_or_client, retry=retry, **times))
    except ValueError:  # not chained: its text may quote the password
        raise ConfigurationError(
            "url_or_client must be a URL that begins with redis://, rediss:// or unix://, such as redis://localhost:6379"
        ) from None
