"""`Client` and `AsyncClient`: options, wiring and closing. No logic.

A client checks its options when it is built. What sends is imported and wired at the first use, so that a program
that only builds a client starts as fast as one without, and a program that only collects does not load payouts.
"""

from __future__ import annotations

import threading
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Self

from momopay._core.backend import BackendT
from momopay._core.config import SHARED_BUDGET, UNCHANGED, Account, Limits, check_collaborators
from momopay._redaction import clears_frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import httpx

    from momopay._core.session import Session
    from momopay._polling.coordinator import WaitCoordinator
    from momopay._ratelimit.budget import Budget
    from momopay._ratelimit.limiter import SharedBudget
    from momopay._transport.async_backend import AsyncBackend  # noqa: F401  a base class names it in a string
    from momopay._transport.sync_backend import SyncBackend  # noqa: F401  a base class names it in a string
    from momopay.resources.channels import Channels
    from momopay.resources.payouts import Payouts
    from momopay.resources.stk import Stk
    from momopay.resources.transactions import Transactions
    from momopay.resources.wallet import Wallet

__all__ = ["AsyncClient", "Client"]


def _load(path: str) -> Any:
    """Return what a module of this package defines: the boundary behind which everything that sends is imported."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"momopay.{module}"), name)


class _Shared(Generic[BackendT]):
    """What a client and its copies share. It is made at the first use, by whichever thread is first."""

    def __init__(
        self,
        account: Account,
        budget: Budget | SharedBudget | SHARED_BUDGET | None,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None,
        backend_class: str,
    ) -> None:
        self.account = account
        self.budget: Budget | SharedBudget | SHARED_BUDGET | None = budget
        self._transport = transport
        self._backend_class = backend_class
        self._lock = threading.Lock()
        self._backend: Any = None
        self._coordinator: WaitCoordinator | None = None

    def backend(self) -> BackendT:
        """Return the connections."""
        with self._lock:  # two threads may make the first call
            if self._backend is None:
                self._backend = _load(self._backend_class)(self._transport)
            backend: BackendT = self._backend
            return backend

    def coordinator(self) -> WaitCoordinator:
        """Return what lets all waits poll together."""
        with self._lock:
            coordinator: WaitCoordinator = self._coordinator or _load("_polling.coordinator.WaitCoordinator")()
            self._coordinator = coordinator
            return coordinator


class _BaseClient(Generic[BackendT]):
    """What both clients have in common."""

    _shared: _Shared[BackendT]
    _limits: Limits
    _owns_connections: bool = True

    @cached_property
    def _session(self) -> Session[BackendT]:
        shared = self._shared
        session: Session[BackendT] = _load("_core.session.open_session")(
            shared.backend(), shared.account, shared.budget, self._limits
        )
        return session

    @cached_property
    def _loaded(self) -> dict[str, Any]:
        return {}

    def _resource(self, path: str, *shared: Callable[[], object]) -> Any:
        """Return a group of operations. It is imported at its first use, and made once for each client."""
        if path not in self._loaded:
            self._loaded[path] = _load(f"resources.{path}")(self._session, *(make() for make in shared))
        return self._loaded[path]

    @property
    def stk(self) -> Stk[BackendT]:
        """STK collections."""
        stk: Stk[BackendT] = self._resource("stk.Stk")
        return stk

    @property
    def payouts(self) -> Payouts[BackendT]:
        """B2C payouts."""
        payouts: Payouts[BackendT] = self._resource("payouts.Payouts")
        return payouts

    @property
    def transactions(self) -> Transactions[BackendT]:
        """Transactions: read, listed, waited for."""
        # The method and not its result, which takes a lock: every call passes through here.
        transactions: Transactions[BackendT] = self._resource("transactions.Transactions", self._shared.coordinator)
        return transactions

    @property
    def wallet(self) -> Wallet[BackendT]:
        """The service wallet."""
        wallet: Wallet[BackendT] = self._resource("wallet.Wallet")
        return wallet

    @property
    def channels(self) -> Channels[BackendT]:
        """Payment channels."""
        channels: Channels[BackendT] = self._resource("channels.Channels")
        return channels

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
        copy = object.__new__(type(self))  # not the constructor: a subclass may have changed its arguments
        copy._shared = self._shared
        copy._limits = Limits(
            timeout=limits.timeout if timeout is UNCHANGED else timeout,
            deadline=limits.deadline if deadline is UNCHANGED else deadline,
            max_attempts=limits.max_attempts if max_attempts is UNCHANGED else max_attempts,
        )
        copy._owns_connections = False  # closing a copy must not close what the original still uses
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
            `FileRateBudget` shares it with the other processes of the machine, a `RedisRateBudget` with
            other machines, too; None is no budget at all.
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
        self._shared = _Shared(Account(api_key, base_url), budget, transport, "_transport.sync_backend.SyncBackend")

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            _load("_core.operation.run_sync")(self._session.close())

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
        self._shared = _Shared(Account(api_key, base_url), budget, transport, "_transport.async_backend.AsyncBackend")

    async def aclose(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
