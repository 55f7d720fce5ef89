"""`Client` and `AsyncClient`: configuration, wiring, closing. No logic."""

from __future__ import annotations

import base64
import os
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Final, Generic, Self

from typing_extensions import Sentinel

from momopay._colours import IO, finish
from momopay._io import AsyncIO, BlockingIO, Headers, common_headers
from momopay._session import Limits, Session
from momopay._standing import standing_of
from momopay._waiting import WaitingRoom
from momopay.errors import ConfigurationError
from momopay.urls import check_base_url, is_loopback

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from momopay._budget import Budget
    from momopay.resources.channels import Channels
    from momopay.resources.payouts import Payouts
    from momopay.resources.stk import Stk
    from momopay.resources.transactions import Transactions
    from momopay.resources.wallet import Wallet

SHARED = Sentinel("SHARED")
"""The default budget: one for each key and address in the process."""

KEEP = Sentinel("KEEP")
"""Stands for an option that stays as it is."""


class _Client(Generic[IO]):
    """What both clients are made of; resources are loaded when they are first used."""

    _session: Session[IO]
    _room: WaitingRoom
    _owns_connections: bool = True

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

        return Transactions(self._session, self._room)

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
        now = self._session.limits
        limits = _limits(
            now.timeout if timeout is KEEP else timeout,
            now.deadline if deadline is KEEP else deadline,
            now.max_attempts if max_attempts is KEEP else max_attempts,
        )
        copy = object.__new__(type(self))
        copy._session = self._session.with_limits(limits)
        copy._room = self._room
        copy._owns_connections = False
        return copy

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._session.base_url!r})"


class Client(_Client[BlockingIO]):
    """The blocking client. Safe to share among threads; make one and keep it.

    Args:
        api_key: ``pk_live_...`` or ``pk_test_...``; else the environment's MOMOPAY_API_KEY.
        base_url: The service's address, ending in ``/v1``; else the environment's MOMOPAY_BASE_URL.
        timeout: Seconds for one attempt as a whole.
        deadline: Seconds for one call, repeats and pauses included.
        max_attempts: Attempts in one call.
        budget: The rate budget; by default one shared by all clients of this key in the process; None for
            no budget at all.
        transport: An httpx transport to send through, instead of the SDK's own connections. `timeout` then
            bounds each of its network operations, and the body.

    Raises:
        ConfigurationError: No key or address, TLS missing, a live key on loopback, or a senseless option.
    """

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        deadline: float = 90.0,
        max_attempts: int = 4,
        budget: Budget | SHARED | None = SHARED,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        limits = _limits(timeout, deadline, max_attempts)
        self._session = _session(BlockingIO(transport), api_key, base_url, budget, limits)
        self._room = WaitingRoom()

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            finish(self._session.io.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Client[AsyncIO]):
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

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        deadline: float = 90.0,
        max_attempts: int = 4,
        budget: Budget | SHARED | None = SHARED,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        limits = _limits(timeout, deadline, max_attempts)
        self._session = _session(AsyncIO(transport), api_key, base_url, budget, limits)
        self._room = WaitingRoom()

    async def aclose(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            await self._session.io.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_ENVIRONMENT: Final = {"api_key": "MOMOPAY_API_KEY", "base_url": "MOMOPAY_BASE_URL"}


def _given(name: str, value: str | None) -> str:
    found = os.environ.get(_ENVIRONMENT[name]) if value is None else value
    if not isinstance(found, str) or not found:
        raise ConfigurationError(f"no {name}: pass {name}=..., or set {_ENVIRONMENT[name]}")
    return found


def _session(
    io: IO, api_key: str | None, base_url: str | None, budget: Budget | SHARED | None, limits: Limits
) -> Session[IO]:
    key, url = _given("api_key", api_key), check_base_url(_given("base_url", base_url))
    if not key.isascii() or not key.isprintable() or any(character in " :" for character in key):
        raise ConfigurationError("api_key must be visible ASCII without spaces or colons")
    on_loopback = is_loopback(url)
    if on_loopback and key.startswith("pk_live_"):
        raise ConfigurationError("a live key does not go to loopback; use a pk_test_ key with the sandbox")
    standing = standing_of(url, key)
    return Session(
        io,
        base_url=url,
        headers=_headers(url, key),
        on_loopback=on_loopback,
        budget=standing.budget if budget is SHARED else budget,
        stk_pause=standing.stk_pause,
        limits=limits,
    )


def _headers(url: str, key: str) -> Headers:
    from momopay import __version__

    return common_headers(
        url,
        {
            "Authorization": "Basic " + base64.b64encode(f"{key}:".encode()).decode(),
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"momopay/{__version__}",
        },
    )


def _limits(timeout: float, deadline: float, max_attempts: int) -> Limits:
    for name, seconds in (("timeout", timeout), ("deadline", deadline)):
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not seconds > 0
            or not isfinite(seconds)
        ):
            raise ConfigurationError(f"{name} must be a finite number of seconds above 0")
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
        raise ConfigurationError("max_attempts must be a whole number, at least 1")
    return Limits(float(timeout), float(deadline), max_attempts)
