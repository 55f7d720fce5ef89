"""`client` and `async_client`: the clients of this process, made at their first use, with the journal of the project.

Thread safety: every thread may call everything here. Of threads that come first at once, each may make a client; they
share the rate budget and the database, which decides between calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final, cast

import momopay
from momopay._core.wiring import load
from momopay.client import AsyncClient, Client
from momopay.errors import ConfigurationError, JournalError
from momopay.integrations.django import conf

# Seconds to wait for the database where waiting longer would not help.
TIMEOUT: Final = 2.0

_async_clients: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, object]] = {}


@cache
def the_journal() -> momopay.Journal:
    """Return the project's journal; raise ConfigurationError if nobody ran ``manage.py migrate``."""
    try:
        journal = momopay.Journal(conf.journal_url(), create=False)
        store = load("journal.journal.parts_of")(journal).store
        # A database that is away or locked is left to the call that needs it.
        with suppress(JournalError), store.bounded(TIMEOUT), store.database.connection():
            pass
    except ConfigurationError as error:
        remedy = f"run manage.py migrate --database {conf.database()}; in a test, use the fixture momopay_django"
        raise ConfigurationError(f"{error.message}. If it has no tables yet, {remedy}") from error
    return journal


@cache
def the_client() -> Client:
    """Return the blocking client of this process."""
    made = load("integrations.django.shop_clients.ShopClient")(**conf.client_options(), journal=the_journal())
    return cast("Client", made)


def the_async_client() -> AsyncClient:
    """Return the client of the event loop that runs; RuntimeError if none does."""
    loop = asyncio.get_running_loop()
    if loop not in _async_clients:
        kind = load("integrations.django.shop_clients.AsyncShopClient")
        made: AsyncClient = kind(**conf.client_options(), journal=the_journal())
        until_end = _closed_at_the_end(loop, made)
        with suppress(StopIteration):
            anext(until_end).send(None)
        _async_clients[loop] = made, until_end
    return _async_clients[loop][0]


async def _closed_at_the_end(loop: asyncio.AbstractEventLoop, client: AsyncClient) -> AsyncGenerator[None]:
    """Close a client when its loop ends: a loop closes the generators that were begun on it."""
    try:
        yield
    finally:
        _async_clients.pop(loop, None)
        await client.aclose()


def forget_clients(*, setting: str, **_options: object) -> None:
    """Make the clients anew when a test changed their settings."""
    if setting in {"MOMOPAY", "DATABASES", "SECRET_KEY"}:
        _async_clients.clear()
        for made in (the_client, the_journal):
            if made.cache_info().currsize:
                made().close()
                made.cache_clear()


class _Current:
    """A proxy of the client that a call needs now, so that modules can import it before the settings are complete."""

    def __init__(self, kind: type[object], get: Callable[[], object]) -> None:
        self._kind = kind
        self._get = get

    # Not by a decorator: `object` has it as a property that can be set.
    __class__: Any = property(lambda self: self._kind)  # `isinstance` asks for it, and `dir`

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)


client: Final = cast("Client", _Current(Client, the_client))
"""The client of this process."""

async_client: Final = cast("AsyncClient", _Current(AsyncClient, the_async_client))
"""The client of the event loop that runs. Under ASGI that is one for each process."""
