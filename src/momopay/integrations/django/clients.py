"""The setting ``MOMOPAY``, and the clients of this process, which are made from it on first use.

The clients use the project's journal, sign callback URLs, and raise an error if the project's own transaction locks
them out of SQLite.

Thread safety: any thread may call everything here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import cache, partial
from inspect import signature
from typing import Any, Final, cast
from urllib.parse import quote

from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.dispatch import Signal
from django.urls import reverse
from django.utils.module_loading import import_string

from momopay import AsyncClient, CallbackSigner, Client, ConfigurationError, Journal, JournalError
from momopay._core.config import Hooks
from momopay._core.wiring import Once, load
from momopay._redaction import redacted_repr
from momopay.client import BaseClient
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.journal import internals

logger: logging.Logger = logging.getLogger("momopay")

TIMEOUT: Final = 2.0  # seconds to wait for the database where waiting longer would not help
_OWN: Final = {"CALLBACK_BASE_URL", "CALLBACK_SECRETS", "DATABASE", "LINK", "SWEEP_SECRET"}


def options() -> dict[str, Any]:
    """Return the setting ``MOMOPAY``; raise ConfigurationError if it is no dict, or has a name that does not exist."""
    given = getattr(settings, "MOMOPAY", {})
    if not isinstance(given, dict):
        raise ConfigurationError('the setting MOMOPAY must be a dict, such as {"API_KEY": ..., "BASE_URL": ...}')
    found = cast("dict[str, Any]", given)
    if unknown := found.keys() - _known():
        names = ", ".join(sorted(map(repr, unknown)))
        raise ConfigurationError(f"there is no {names} in MOMOPAY, which takes {', '.join(sorted(_known()))}")
    return dict(found)


@cache
def _known() -> set[str]:
    return {each.upper() for each in signature(BaseClient).parameters if each != "journal"} | _OWN


def client_options() -> dict[str, Any]:
    """Return the arguments of the clients, apart from the journal."""
    return {name.lower(): value for name, value in options().items() if name not in _OWN}


def signer() -> CallbackSigner:
    """Return the signer of callback URLs, by default with Django's secrets."""
    return CallbackSigner(options().get("CALLBACK_SECRETS") or [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS])


def callback_url() -> str | None:
    """Return the URL of the app's callback view without a token, None if the setting has no base."""
    base = options().get("CALLBACK_BASE_URL")
    return f"{str(base).rstrip('/')}/callback" if base else None


def status_url(reference: str) -> str:
    """Return the signed URL, without a host, at which the page of a checkout polls the app for a payment."""
    return signer().status_url(reverse("momopay:status"), reference=reference)


def database() -> str:
    """Return the alias of the database that has the journal."""
    return str(options().get("DATABASE") or DEFAULT_DB_ALIAS)


def link() -> Callable[[str], Any] | None:
    """Return what makes the project's object of a reference, or its URL, for the admin; None if nothing does."""
    made: Any = options().get("LINK")
    if isinstance(made, str):
        # A URL with a place for the reference, or the path of a function.
        made = partial(_filled, made) if "{" in made else import_string(made)
    if made is not None and not callable(made):
        raise ConfigurationError("must be a function of a reference, its path as text, or a URL with {reference}")
    return cast("Callable[[str], Any] | None", made)


def _filled(url: str, reference: str) -> str:
    return url.format(reference=quote(reference, safe=""))


def journal_address() -> dict[str, Any]:
    """Return the parts of the journal's URL; raise ConfigurationError if that database cannot have the journal."""
    connection: Any = connections[database()]
    if connection.vendor == "sqlite":
        return {"drivername": "sqlite", "database": str(connection.settings_dict["NAME"])}
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"{connection.vendor} cannot have the journal, which needs SQLite or PostgreSQL. A SQLite file beside it"
            ' serves the processes of one machine: add "momopay": {"ENGINE": "django.db.backends.sqlite3",'
            ' "NAME": BASE_DIR / "momopay.sqlite3"} to DATABASES, "DATABASE": "momopay" to MOMOPAY, and run'
            " manage.py migrate, and manage.py migrate --database momopay"
        )
    # Only what libpq takes, as texts, paths and numbers. The rest are objects and options of Django and psycopg.
    found = connection.get_connection_params()
    given = {name: str(each) for name, each in found.items() if type(each) in {str, int} or hasattr(each, "__fspath__")}
    given.pop("prepare_threshold", None)
    # Not in the query: a URL is shown with its password hidden, but only in the usual place.
    user, password = (given.pop(name, None) for name in ("user", "password"))
    return {"drivername": "postgresql+psycopg", "username": user, "password": password, "query": given}


def _signed_url(reference: str) -> str | None:
    url = callback_url()
    return None if url is None else signer().url(url, reference=reference)


def _check_not_locked_out(reference: str) -> None:
    """Raise after `TIMEOUT` if the caller's own open transaction keeps the journal from writing to SQLite."""
    connection = connections[database()]
    if connection.vendor != "sqlite" or not connection.in_atomic_block:
        return
    store = internals(the_journal()).store
    try:
        with store.bounded(TIMEOUT), store.database.transaction():
            pass
    except JournalError as error:
        locked = JournalError(
            "an open transaction in this thread locks SQLite: nothing was recorded; nothing was sent. Call after it"
            " (transaction.on_commit), decorate the view with transaction.non_atomic_requests, or use PostgreSQL"
        )
        # Read in that same transaction. While it holds the lock, nobody else can change the payment.
        payments: Any = apps.get_model("momopay.Payment")
        earlier = payments.objects.using(database()).filter(reference=reference).exclude(state__in=MAY_BE_SENT)
        locked.may_have_executed = earlier.exists()
        raise locked from error


def _open_transaction() -> str | None:
    """Return the alias of a database in whose open transaction this thread is, tests' own aside; None if in none."""
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            try:
                # Raises inside any block but those that TestCase opens around a test; without a savepoint, no query.
                with transaction.atomic(connection.alias, savepoint=False, durable=True):
                    pass
            except RuntimeError:
                return connection.alias
        elif connection.connection is not None and not connection.autocommit:
            return connection.alias
    return None


_warnings = list[str]()  # the aliases of transactions that a payment was seen in


def _warn_of_rollback(reference: str) -> None:
    """Log a WARNING, the first time that a payment is made in a transaction which may still roll back."""
    alias = None if _warnings else _open_transaction()
    if alias is None:
        return
    _warnings.append(alias)
    logger.warning(
        "payment %s is made inside an open transaction of the database %r. If that rolls back, what you wrote about it,"
        " such as the order, is lost, and the payment is not. Commit the order first: pay after the atomic() block, and"
        " with ATOMIC_REQUESTS decorate the view with transaction.non_atomic_requests. This is said once",
        redacted_repr(reference),
        alias,
    )


def _before_payment(reference: str) -> None:
    _check_not_locked_out(reference)
    _warn_of_rollback(reference)


_HOOKS: Final = Hooks(_signed_url, _before_payment, before_release=_check_not_locked_out)


class ShopClient(Client):
    """The blocking client of a project."""

    _hooks = _HOOKS


class AsyncShopClient(AsyncClient):
    """The client of a project for one event loop."""

    _hooks = _HOOKS


def _open_journal() -> Journal:
    try:
        # From parts, because in the text of a URL a "?" would end the path.
        url = load("journal.sharing.URL").create(**journal_address())
        if url.drivername != "sqlite":
            url = url.update_query_dict({"schema": ""})  # the tables are where Django's are
        journal = Journal(url, create=False)
        store = internals(journal).store
        # If the database cannot be reached or is locked, the call that needs it raises the error.
        with suppress(JournalError), store.bounded(TIMEOUT), store.database.connection():
            pass
    except ConfigurationError as error:
        if not isinstance(error, load("journal.upgrade.NoJournalError")):
            raise
        raise ConfigurationError(  # the journal's own advice, to create it, is not Django's
            f"the database {database()!r} has no journal yet: run manage.py migrate --database {database()}; in a test,"
            " use SandboxMixin or the fixture momopay_django"
        ) from error
    return journal


_journal: Final = Once(_open_journal)
_client: Final = Once(lambda: ShopClient(**client_options(), journal=_journal.get()))
the_journal: Final = _journal.get
"""Return the project's journal; raise ConfigurationError if nobody ran ``manage.py migrate``."""
the_client: Final = _client.get
"""Return the blocking client of this process."""


_async_clients: dict[asyncio.AbstractEventLoop, AsyncGenerator[AsyncClient]] = {}


def the_async_client() -> AsyncClient:
    """Return the client of the running event loop; raise RuntimeError if there is none."""
    loop = asyncio.get_running_loop()
    clients = _async_clients.get(loop) or _client_of(loop)
    made: AsyncClient = load("_core.operation.run_sync")(anext(clients))  # never suspends
    _async_clients[loop] = clients
    return made


async def _client_of(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[AsyncClient]:
    """Yield the same client each time. The loop closes it, as it closes all async generators when it ends."""
    async with AsyncShopClient(**client_options(), journal=the_journal()) as made:
        try:
            while True:
                yield made
        finally:
            _async_clients.pop(loop, None)


def forget_clients(*, setting: str, **_options: object) -> None:
    """Close and forget the clients when a test has changed their settings."""
    if setting in {"MOMOPAY", "DATABASES", "SECRET_KEY"}:
        _async_clients.clear()
        _warnings.clear()
        for each in (_client, _journal):
            if each.made is not None:
                each.made.close()
                each.made = None


class _Current:
    """A proxy for the current client, so that modules can import it before the settings are complete."""

    def __init__(self, kind: type[object], get: Callable[[], object]) -> None:
        self._kind = kind
        self._get = get

    # Used by `isinstance` and `dir`. Not a decorator, because in `object` the property can be set.
    __class__: Any = property(lambda self: self._kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)


client: Final = cast("Client", _Current(Client, the_client))
"""The client of this process."""

async_client: Final = cast("AsyncClient", _Current(AsyncClient, the_async_client))
"""The client of the running event loop. Under ASGI, that is one for each process."""

payment_ended: Final = Signal()
"""Sent once for each end of a payment, whether a callback or a sweep reported it.

Its argument is ``payment``, a `momopay.Payment`: with your reference, the kind, and the metadata that the call was
given. A payout that fails has two ends: FAILED, and REVERSED when the money is back. If a receiver raises, those after
it are not called, and the next sweep or callback calls all of them again. An order may end several times, for example
with a cancelled prompt and then with a paid one.
"""
