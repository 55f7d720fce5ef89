"""`Client` and `AsyncClient`: options, wiring and closing. No logic.

A client checks its options when it is built. What sends is imported and wired at the first use, so that a program
that only builds a client starts as fast as one without.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Self

from momopay._core.backend import BackendT
from momopay._core.config import SHARED_BUDGET, UNCHANGED, Account, Limits, check_collaborators
from momopay._redaction import clears_frames

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from momopay._core.session import Session
    from momopay._ratelimit.budget import Budget
    from momopay._ratelimit.limiter import SharedBudget
    from momopay._transport import AsyncBackend, SyncBackend  # noqa: F401  the base classes name them in strings
    from momopay.resources import Connections, Resources
    from momopay.resources.channels import Channels
    from momopay.resources.payouts import Payouts
    from momopay.resources.stk import Stk
    from momopay.resources.transactions import Transactions
    from momopay.resources.wallet import Wallet

__all__ = ["AsyncClient", "Client"]


class _Shared(Generic[BackendT]):
    """What a client and its copies share. The connections are made at the first use, by whichever thread is first."""

    def __init__(
        self,
        account: Account,
        budget: Budget | SharedBudget | SHARED_BUDGET | None,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None,
        *,
        is_async: bool,
    ) -> None:
        self.account = account
        self._budget: Budget | SharedBudget | SHARED_BUDGET | None = budget
        self._transport = transport
        self._is_async = is_async
        self._lock = threading.Lock()
        self._connections: Connections[BackendT] | None = None

    def resources(self, limits: Limits) -> Resources[BackendT]:
        """Return the operations, over the shared connections."""
        # The lazy import boundary: httpx, pydantic and every endpoint are loaded here and nowhere earlier.
        from momopay.resources import Resources, connect  # noqa: PLC0415

        with self._lock:
            if self._connections is None:
                self._connections = connect(self._transport, is_async=self._is_async)
        return Resources(self._connections, self.account, self._budget, limits)


class _BaseClient(Generic[BackendT]):
    """What both clients have in common."""

    _shared: _Shared[BackendT]
    _limits: Limits
    _owns_connections: bool = True

    @cached_property
    def _resources(self) -> Resources[BackendT]:
        return self._shared.resources(self._limits)

    @property
    def _session(self) -> Session[BackendT]:
        return self._resources.session

    @property
    def stk(self) -> Stk[BackendT]:
        """STK collections."""
        return self._resources.stk

    @property
    def payouts(self) -> Payouts[BackendT]:
        """B2C payouts."""
        return self._resources.payouts

    @property
    def transactions(self) -> Transactions[BackendT]:
        """Transactions: read, listed, waited for."""
        return self._resources.transactions

    @property
    def wallet(self) -> Wallet[BackendT]:
        """The service wallet."""
        return self._resources.wallet

    @property
    def channels(self) -> Channels[BackendT]:
        """Payment channels."""
        return self._resources.channels

    def with_options(
        self,
        *,
        timeout: float | UNCHANGED = UNCHANGED,
        deadline: float | UNCHANGED = UNCHANGED,
        max_attempts: int | UNCHANGED = UNCHANGED,
    ) -> Self:
        """Return a light copy with other options; it shares connections, budget and waits.

        Args:
            timeout: Seconds for one attempt.
            deadline: Seconds for one call.
            max_attempts: Attempts in one call.

        Returns:
            The copy. Closing it closes nothing; the original owns the connections.

        Raises:
            ConfigurationError: An option is out of range.
        """
        limits = self._limits
        copy = object.__new__(type(self))
        copy._shared = self._shared
        copy._limits = Limits(
            timeout=limits.timeout if timeout is UNCHANGED else timeout,
            deadline=limits.deadline if deadline is UNCHANGED else deadline,
            max_attempts=limits.max_attempts if max_attempts is UNCHANGED else max_attempts,
        )
        copy._owns_connections = False
        return copy

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._shared.account.base_url!r})"


class Client(_BaseClient["SyncBackend"]):
    """The blocking client. Safe to share among threads; make one and keep it.

    Args:
        api_key: ``pk_live_...`` or ``pk_test_...``; else the environment's MOMOPAY_API_KEY.
        base_url: The service's address, ending in ``/v1``; else the environment's MOMOPAY_BASE_URL.
        timeout: Seconds for one attempt as a whole.
        deadline: Seconds for one call, repeats and pauses included.
        max_attempts: Attempts in one call.
        budget: The rate budget; by default one shared by all clients of this key in the process. A
            `RedisRateBudget` shares it with other processes and machines; None is no budget at all.
        transport: An httpx transport to send through, instead of the SDK's own connections. `timeout` then
            bounds each of its network operations, and the body.

    Raises:
        ConfigurationError: No key or address, TLS missing, a live key on loopback, or a senseless option.
    """

    @clears_frames
    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        deadline: float = 90.0,
        max_attempts: int = 4,
        budget: Budget | SharedBudget | SHARED_BUDGET | None = SHARED_BUDGET,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        check_collaborators(budget, transport, "handle_request")
        self._limits = Limits(timeout=timeout, deadline=deadline, max_attempts=max_attempts)
        self._shared = _Shared(Account(api_key, base_url), budget, transport, is_async=False)

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_BaseClient["AsyncBackend"]):
    """The client for asyncio and trio. Belongs to the event loop that uses it first; make one for each.

    Args:
        api_key: As for `Client`.
        base_url: As for `Client`.
        timeout: As for `Client`.
        deadline: As for `Client`.
        max_attempts: As for `Client`.
        budget: As for `Client`.
        transport: An async httpx transport to send through, instead of the SDK's own connections.

    Raises:
        ConfigurationError: As for `Client`.
    """

    @clears_frames
    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        deadline: float = 90.0,
        max_attempts: int = 4,
        budget: Budget | SharedBudget | SHARED_BUDGET | None = SHARED_BUDGET,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        check_collaborators(budget, transport, "handle_async_request")
        self._limits = Limits(timeout=timeout, deadline=deadline, max_attempts=max_attempts)
        self._shared = _Shared(Account(api_key, base_url), budget, transport, is_async=True)

    async def aclose(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            await self._resources.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
