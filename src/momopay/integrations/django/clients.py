"""`client` and `async_client`: the clients of this process, made at their first use, with the journal of the project.

Thread safety: every thread may call everything here. Of threads that come first at once, each may make a client; they
share the rate budget and the database, which decides between calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, Final, cast

from django.apps import apps
from django.db import connections

from momopay._core.operation import Resource
from momopay.client import AsyncClient, BaseClient, Client
from momopay.durable.pay_all import Source
from momopay.durable.payment import item_of
from momopay.errors import ConfigurationError, JournalError, RequestValidationError
from momopay.integrations.django import conf
from momopay.journal.journal import Journal, parts_of
from momopay.journal.rules import refund_reference
from momopay.resources import payouts, stk

# Seconds to wait for the database where waiting longer would not help.
_TIMEOUT: Final = 2.0
_SIGNED: Final = {"collect_once", "initiate", "pay_once", "refund"}

_async_clients: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, object]] = {}


@cache
def the_journal() -> Journal:
    """Return the project's journal; raise ConfigurationError if nobody ran ``manage.py migrate``."""
    try:
        journal = Journal(conf.journal_url(), create=False)
        store = parts_of(journal).store
        # A database that is away or locked is left to the call that needs it.
        with suppress(JournalError), store.bounded(_TIMEOUT), store.database.connection():
            pass
    except ConfigurationError as error:
        remedy = f"run manage.py migrate --database {conf.database()}; in a test, use the fixture momopay_django"
        raise ConfigurationError(f"{error.message}. If it has no tables yet, {remedy}") from error
    return journal


@cache
def the_client() -> Client:
    """Return the blocking client of this process."""
    return ShopClient(**conf.client_options(), journal=the_journal())


def the_async_client() -> AsyncClient:
    """Return the client of the event loop that runs; RuntimeError if none does."""
    loop = asyncio.get_running_loop()
    if loop not in _async_clients:
        made = AsyncShopClient(**conf.client_options(), journal=the_journal())
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


class _ShopResource(Resource[Any]):
    """A group of operations. A payment without a callback URL gets the app's, signed for its reference."""

    def _begin(self, method: Any, args: Any, kwargs: Any) -> Any:
        reference = kwargs.get("reference") or kwargs.get("account_reference")
        if reference is None and kwargs.get("of"):
            reference = refund_reference(kwargs["of"])
        if method.__name__ in _SIGNED and reference is not None and kwargs.get("callback_url") is None:
            kwargs["callback_url"] = _signed_url(reference)
        if method.__name__ != "initiate":  # which writes nothing down
            _check_not_locked_out(reference)
        return super()._begin(method, args, kwargs)


class Stk(_ShopResource, stk.Stk[Any]):
    """STK collections."""


class Payouts(_ShopResource, payouts.Payouts[Any]):
    """B2C payouts."""

    def pay_all(self, payouts: Source, **options: Any) -> Any:
        """Do what `Payouts.pay_all` does. Each payout gets its callback URL when it is read."""
        signed: Any = payouts  # what is no source of payouts is refused below
        if isinstance(payouts, AsyncIterable):
            signed = (_signed(each) async for each in payouts)
        elif hasattr(payouts, "__iter__") and not isinstance(payouts, str | Mapping):
            signed = map(_signed, payouts)
        return super().pay_all(signed, **options)


class _ShopBaseClient(BaseClient[Any, Any]):
    @cached_property
    def _loaded(self) -> dict[str, Any]:
        return {"stk.Stk": Stk(self._session), "payouts.Payouts": Payouts(self._session)}


class ShopClient(_ShopBaseClient, Client):
    """The blocking client of a project."""


class AsyncShopClient(_ShopBaseClient, AsyncClient):
    """The client of a project for one event loop."""


def _signed_url(reference: str) -> str | None:
    url = conf.callback_url()
    return None if url is None else conf.signer().url(url, reference=reference)


def _signed(payout: Any) -> Any:
    with suppress(RequestValidationError):  # it is refused, and has an outcome of its own
        item = item_of(payout)
        return item if item.callback_url else replace(item, callback_url=_signed_url(item.reference))
    return payout


def _check_not_locked_out(reference: str | None) -> None:
    """Raise soon if the caller's own open transaction keeps SQLite from writing a payment down."""
    database = connections[conf.database()]
    if database.vendor != "sqlite" or not database.in_atomic_block:
        return
    store = parts_of(the_journal()).store
    try:
        with store.bounded(_TIMEOUT), store.database.transaction():
            pass
    except JournalError as error:
        locked = JournalError(
            "an open transaction of this thread has locked SQLite, so nothing was written down and nothing was sent."
            " Call after it (transaction.on_commit), decorate the view with transaction.non_atomic_requests, or use"
            " PostgreSQL"
        )
        # Read in that very transaction: as long as it holds the lock, nobody else changes the payment.
        payments: Any = apps.get_model("momopay.Payment")
        earlier = payments.objects.filter(reference=reference)
        locked.may_have_executed = earlier.exclude(state__in=["REFUSED", "NOT_SENT"]).exists()
        raise locked from error


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
