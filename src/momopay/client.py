"""`Client` and `AsyncClient`: configuration, wiring, closing. No logic.

A client checks its options when it is made; what sends is loaded and wired at the first use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Self

from typing_extensions import Sentinel

from momopay._colours import IO, finish
from momopay._discretion import forgetful
from momopay._options import SHARED, Account, Limits, check_parts

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from momopay._budget import Budget
    from momopay._io.blocking import BlockingIO
    from momopay._io.suspending import AsyncIO
    from momopay._session import Session
    from momopay._slots import SharedBudget
    from momopay._waiting import WaitingRoom
    from momopay.resources.channels import Channels
    from momopay.resources.payouts import Payouts
    from momopay.resources.stk import Stk
    from momopay.resources.transactions import Transactions
    from momopay.resources.wallet import Wallet

KEEP = Sentinel("KEEP")
"""Stands for an option that stays as it is."""


class _Shared(Generic[IO]):
    """What a client and its copies have in common, made at the first use."""

    _budget: Budget | SharedBudget | SHARED | None
    _connect: Callable[[], IO]
    _made: tuple[IO, WaitingRoom] | None

    def __init__(
        self, connect: Callable[[], IO], account: Account, budget: Budget | SharedBudget | SHARED | None
    ) -> None:
        self._connect = connect
        self.account = account
        self._budget = budget
        self._lock = threading.Lock()
        self._made = None

    def io_and_room(self) -> tuple[IO, WaitingRoom]:
        """Give the connections, and the room of those who wait."""
        from momopay._waiting import WaitingRoom

        with self._lock:
            if self._made is None:
                self._made = self._connect(), WaitingRoom()
            return self._made

    def session(self, limits: Limits) -> Session[IO]:
        """Give a session over the connections."""
        from momopay._session import Session
        from momopay._standing import standing_of

        standing = standing_of(self.account.base_url, self.account.api_key)
        given = self._budget
        budget = standing.budget if given is SHARED else given
        io, _ = self.io_and_room()
        return Session(io, self.account, budget=budget, stk_pause=standing.stk_pause, limits=limits)


class _Client(Generic[IO]):
    """What both clients are made of."""

    _shared: _Shared[IO]
    _limits: Limits
    _owns_connections: bool = True

    @cached_property
    def _session(self) -> Session[IO]:
        return self._shared.session(self._limits)

    @cached_property
    def stk(self) -> Stk[IO]:
        """STK collections."""
        from momopay.resources.stk import Stk

        return Stk(self._session)

    @cached_property
    def payouts(self) -> Payouts[IO]:
        """B2C payouts."""
        from momopay.resources.payouts import Payouts

        return Payouts(self._session)

    @cached_property
    def transactions(self) -> Transactions[IO]:
        """Transactions: read, listed, waited for."""
        from momopay.resources.transactions import Transactions

        _, room = self._shared.io_and_room()
        return Transactions(self._session, room)

    @cached_property
    def wallet(self) -> Wallet[IO]:
        """The service wallet."""
        from momopay.resources.wallet import Wallet

        return Wallet(self._session)

    @cached_property
    def channels(self) -> Channels[IO]:
        """Payment channels."""
        from momopay.resources.channels import Channels

        return Channels(self._session)

    def with_options(
        self,
        *,
        timeout: float | KEEP = KEEP,
        deadline: float | KEEP = KEEP,
        max_attempts: int | KEEP = KEEP,
    ) -> Self:
        """Give a light copy with other options; it shares connections, budget and waits.

        Args:
            timeout: Seconds for one attempt.
            deadline: Seconds for one call.
            max_attempts: Attempts in one call.

        Returns:
            The copy. Closing it closes nothing; the original owns the connections.

        Raises:
            ConfigurationError: A senseless option.
        """
        now = self._limits
        copy = object.__new__(type(self))
        copy._shared = self._shared
        copy._limits = Limits(
            timeout=now.timeout if timeout is KEEP else timeout,
            deadline=now.deadline if deadline is KEEP else deadline,
            max_attempts=now.max_attempts if max_attempts is KEEP else max_attempts,
        )
        copy._owns_connections = False
        return copy

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._shared.account.base_url!r})"


class Client(_Client["BlockingIO"]):
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

    @forgetful
    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        deadline: float = 90.0,
        max_attempts: int = 4,
        budget: Budget | SharedBudget | SHARED | None = SHARED,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        def connect() -> BlockingIO:
            from momopay._io.blocking import BlockingIO

            return BlockingIO(transport)

        check_parts(budget, transport, "handle_request")
        self._limits = Limits(timeout=timeout, deadline=deadline, max_attempts=max_attempts)
        self._shared = _Shared(connect, Account(api_key, base_url), budget)

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            finish(self._session.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Client["AsyncIO"]):
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

    @forgetful
    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        deadline: float = 90.0,
        max_attempts: int = 4,
        budget: Budget | SharedBudget | SHARED | None = SHARED,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        def connect() -> AsyncIO:
            from momopay._io.suspending import AsyncIO

            return AsyncIO(transport)

        check_parts(budget, transport, "handle_async_request")
        self._limits = Limits(timeout=timeout, deadline=deadline, max_attempts=max_attempts)
        self._shared = _Shared(connect, Account(api_key, base_url), budget)

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
