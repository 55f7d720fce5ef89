"""`Client` and `AsyncClient`: options, wiring and closing. No logic.

A client checks its options when it is built. What sends is imported and wired at the first use, so that a program
that only builds a client starts as fast as one without, and a program that only collects does not load payouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Self

import momopay
from momopay._core.base_client import BaseClient, Connections, load
from momopay._core.config import SHARED_BUDGET, Account, Limits, check_collaborators
from momopay._redaction import clears_frames

if TYPE_CHECKING:
    import ssl

    import httpx

    from momopay import events
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend
else:

    class LateModule:
        """A module of an annotation, imported when `typing.get_type_hints` asks for one of its names."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> object:
            return getattr(import_module(self._name), name)

    events, httpx, ssl = LateModule("momopay.events"), LateModule("httpx"), LateModule("ssl")

__all__ = ["AsyncClient", "Client"]


class Client(BaseClient["SyncBackend"]):
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
        proxy: The URL of an HTTP proxy to connect through, ``http://`` or ``https://``, with a user and a password if
            it wants them. The environment's proxies are never used.
        verify: What TLS trusts, and any certificate of the client's own; by default what httpx trusts.
        default_headers: Headers to add to every request, such as those that a gateway wants. Not Authorization,
            Content-Type, Content-Length, Host, Idempotency-Key, nor those that decide where a request ends.
        app_info: Your program and its version, such as ``"shop/1.2"``, added to the User-Agent.
        on_event: Called with each event of `momopay.events` as it happens, in the thread or task of the call, so it
            must return quickly and must not block an event loop. An exception in it is logged and changes nothing.

    Raises:
        ConfigurationError: No key or address, an address that does not end in ``/v1``, TLS missing, a live key on
            loopback, `proxy` or `verify` beside `transport`, an `on_event` that cannot be called or is async, or a
            senseless option.
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
        budget: momopay.RateBudget
        | momopay.FileRateBudget
        | momopay.RedisRateBudget
        | SHARED_BUDGET
        | None = SHARED_BUDGET,
        transport: httpx.BaseTransport | None = None,
        proxy: str | None = None,
        verify: ssl.SSLContext | None = None,
        default_headers: Mapping[str, str] | None = None,
        app_info: str | None = None,
        on_event: Callable[[events.Event], object] | None = None,
    ) -> None:
        check_collaborators(budget, transport, "handle_request")
        limits = Limits(timeout=timeout, deadline=deadline, max_attempts=max_attempts)
        account = Account(api_key, base_url)
        connections: Connections[SyncBackend] = Connections(
            "_transport.sync_backend.SyncBackend", transport, proxy, verify
        )
        self._configure(account, limits, budget, connections, default_headers, app_info, on_event)

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._owns_connections:
            load("_core.operation.run_sync")(self._session.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(BaseClient["AsyncBackend"]):
    """The client for asyncio and trio. Belongs to the event loop that uses it first; make one for each.

    Args:
        api_key: As for `Client`.
        base_url: As for `Client`.
        timeout: As for `Client`.
        deadline: As for `Client`.
        max_attempts: As for `Client`.
        budget: As for `Client`.
        transport: An async httpx transport to send through, instead of the SDK's own connections.
        proxy: As for `Client`.
        verify: As for `Client`.
        default_headers: As for `Client`.
        app_info: As for `Client`.
        on_event: As for `Client`. A plain function: it is not awaited.

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
        budget: momopay.RateBudget
        | momopay.FileRateBudget
        | momopay.RedisRateBudget
        | SHARED_BUDGET
        | None = SHARED_BUDGET,
        transport: httpx.AsyncBaseTransport | None = None,
        proxy: str | None = None,
        verify: ssl.SSLContext | None = None,
        default_headers: Mapping[str, str] | None = None,
        app_info: str | None = None,
        on_event: Callable[[events.Event], object] | None = None,
    ) -> None:
        check_collaborators(budget, transport, "handle_async_request")
        limits = Limits(timeout=timeout, deadline=deadline, max_attempts=max_attempts)
        account = Account(api_key, base_url)
        connections: Connections[AsyncBackend] = Connections(
            "_transport.async_backend.AsyncBackend", transport, proxy, verify
        )
        self._configure(account, limits, budget, connections, default_headers, app_info, on_event)

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
