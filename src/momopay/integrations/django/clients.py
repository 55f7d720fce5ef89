"""The setting ``MOMOPAY``, and the clients of this process, which are made from it at their first use.

They have the project's journal, sign callback URLs, and say so if the project's transaction locks them out.

Thread safety: every thread may call everything here. Of threads that come first at once, each may make a client; they
share the rate budget and the database, which decides between calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import cache, cached_property
from typing import Any, Final, cast

from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.dispatch import Signal

from momopay import AsyncClient, CallbackSigner, Client, ConfigurationError, Journal, JournalError
from momopay._core.wiring import load
from momopay.client import BaseClient
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.journal import parts_of

TIMEOUT: Final = 2.0  # seconds to wait for the database where waiting longer would not help
_OWN: Final = {"CALLBACK_BASE_URL", "CALLBACK_SECRETS", "DATABASE"}


def options() -> dict[str, Any]:
    """Return the setting."""
    return dict(getattr(settings, "MOMOPAY", {}))


def client_options() -> dict[str, Any]:
    """Return the arguments of the clients, apart from the journal."""
    return {str(name).lower(): value for name, value in options().items() if name not in _OWN}


def signer() -> CallbackSigner:
    """Return what signs and verifies callback URLs, by default with the secrets of Django."""
    return CallbackSigner(options().get("CALLBACK_SECRETS") or [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS])


def callback_url() -> str | None:
    """Return the address of the app's callback view without a token, None if the setting has none."""
    base = options().get("CALLBACK_BASE_URL")
    return f"{str(base).rstrip('/')}/callback" if base else None


def database() -> str:
    """Return the alias of the database that has the journal."""
    return str(options().get("DATABASE") or DEFAULT_DB_ALIAS)


def journal_address() -> dict[str, Any]:
    """Return the parts of the journal's URL; raise ConfigurationError if it cannot be in a database of that kind."""
    connection: Any = connections[database()]
    if connection.vendor == "sqlite":
        return {"drivername": "sqlite", "database": str(connection.settings_dict["NAME"])}
    if connection.vendor != "postgresql":
        raise ConfigurationError(f"{connection.vendor} cannot have the journal: it needs SQLite or PostgreSQL")
    # What libpq takes. The rest are objects and switches of Django and psycopg.
    found = connection.get_connection_params()
    given = {name: str(value) for name, value in found.items() if type(value) in {str, int}}
    given.pop("prepare_threshold", None)
    # Not in the query: what shows a URL hides the password where it belongs.
    user, password = (given.pop(name, None) for name in ("user", "password"))
    return {"drivername": "postgresql+psycopg", "username": user, "password": password, "query": given}


class _ShopBaseClient(BaseClient[Any, Any]):
    @cached_property
    def _session(self) -> Any:
        session: Any = super()._session
        session.make_callback_url, session.before_payment = _signed_url, _check_not_locked_out
        return session


class ShopClient(_ShopBaseClient, Client):
    """The blocking client of a project."""


class AsyncShopClient(_ShopBaseClient, AsyncClient):
    """The client of a project for one event loop."""


def _signed_url(reference: str) -> str | None:
    url = callback_url()
    return None if url is None else signer().url(url, reference=reference)


def _check_not_locked_out(reference: str) -> None:
    """Raise soon if the caller's own open transaction keeps SQLite from writing a payment down."""
    connection = connections[database()]
    if connection.vendor != "sqlite" or not connection.in_atomic_block:
        return
    store = parts_of(the_journal()).store
    try:
        with store.bounded(TIMEOUT), store.database.transaction():
            pass
    except JournalError as error:
        locked = JournalError(
            "an open transaction of this thread has locked SQLite, so nothing was written down and nothing was sent."
            " Call after it (transaction.on_commit), decorate the view with transaction.non_atomic_requests, or use"
            " PostgreSQL"
        )
        # Read in that very transaction: as long as it holds the lock, nobody else changes the payment.
        payments: Any = apps.get_model("momopay.Payment")
        earlier = payments.objects.using(database()).filter(reference=reference).exclude(state__in=MAY_BE_SENT)
        locked.may_have_executed = earlier.exists()
        raise locked from error


@cache
def the_journal() -> Journal:
    """Return the project's journal; raise ConfigurationError if nobody ran ``manage.py migrate``."""
    try:
        # By its parts: in the text of a URL, a path ends at a "?".
        journal = Journal(load("journal.database.URL").create(**journal_address()), create=False)
        store = parts_of(journal).store
        # A database that is away or locked is left to the call that needs it.
        with suppress(JournalError), store.bounded(TIMEOUT), store.database.connection():
            pass
    except ConfigurationError as error:
        remedy = f"run manage.py migrate --database {database()}; in a test, use the fixture momopay_django"
        raise ConfigurationError(f"{error.message}. If it has no tables yet, {remedy}") from error
    return journal


@cache
def the_client() -> Client:
    """Return the blocking client of this process."""
    return ShopClient(**client_options(), journal=the_journal())


_async_clients: dict[asyncio.AbstractEventLoop, AsyncGenerator[AsyncClient]] = {}


def the_async_client() -> AsyncClient:
    """Return the client of the event loop that runs; RuntimeError if none does."""
    loop = asyncio.get_running_loop()
    clients = _async_clients.get(loop) or _client_of(loop)
    made: AsyncClient = load("_core.operation.run_sync")(anext(clients))  # it never suspends
    _async_clients[loop] = clients
    return made


async def _client_of(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[AsyncClient]:
    """Yield the client of a loop each time. The loop closes it at its end, as all generators that were begun on it."""
    async with AsyncShopClient(**client_options(), journal=the_journal()) as made:
        try:
            while True:
                yield made
        finally:
            _async_clients.pop(loop, None)


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

payment_ended: Final = Signal()
"""Sent once for each end of a payment that is final, whether a callback or a sweep brought it.

Arguments: ``payment`` (`momopay.Payment`), ``reference`` (yours), ``kind`` (`momopay.EntryKind`) and ``metadata`` (what
was given to the call, or None). A payout that FAILED has not ended before it is REVERSED. If a receiver raises, those
after it are not called, and all are called again, by the next sweep or by the service's next callback. Each order may
end several times: a cancelled prompt, then a paid one.
"""
