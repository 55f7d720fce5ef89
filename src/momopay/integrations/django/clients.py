"""`client` and `async_client`: the clients of this process, made at their first use, with the journal of the project.

Thread safety: every thread may call everything here. Nothing is locked, so that a child of a fork finds nothing held:
of two threads that come first at once, both use what one of them made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import reduce, wraps
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from django.db import connections

import momopay
from momopay._core.wiring import load
from momopay.client import AsyncClient, BaseClient, Client
from momopay.errors import ConfigurationError, JournalError, RequestValidationError
from momopay.integrations.django import conf

T = TypeVar("T")

# Seconds to wait for the database where waiting longer would not help.
_TIMEOUT: Final = 2.0
# The calls that take a callback URL.
_SIGNED: Final = {"collect_once", "initiate", "pay_once", "refund"}

_made: dict[str, Any] = {}
_async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncClient, object]] = WeakKeyDictionary()


def the_journal() -> momopay.Journal:
    """Return the project's journal; raise ConfigurationError if nobody ran ``manage.py migrate``."""
    if "journal" not in _made:
        journal = momopay.Journal(conf.journal_url(), create=False)
        store = load("journal.journal.parts_of")(journal).store
        try:
            # Anything else that is wrong with the database is left to the call that needs it.
            with suppress(JournalError), store.bounded(_TIMEOUT), store.database.connection():
                pass
        except ConfigurationError as error:
            if "create=False" not in error.message:
                raise
            text = f"the database {conf.database()!r} has no tables for payments: run manage.py migrate"
            raise ConfigurationError(f"{text} --database {conf.database()}") from error
        _made.setdefault("journal", journal)
    return cast("momopay.Journal", _made["journal"])


def the_client() -> Client:
    """Return the blocking client of this process."""
    if "client" in _made and _made["client"].is_closed:
        _made.pop("client", None)
    if "client" not in _made:
        _made.setdefault("client", ShopClient(**conf.client_options(), journal=the_journal()))
    return cast("Client", _made["client"])


def the_async_client() -> Any:
    """Return the client of the event loop that runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _Later()
    if loop not in _async_clients:
        made = AsyncShopClient(**conf.client_options(), journal=the_journal())
        until_end = _closed_at_the_end(made)
        with suppress(StopIteration):
            anext(until_end).send(None)
        _async_clients[loop] = made, until_end
    return _async_clients[loop][0]


async def _closed_at_the_end(client: AsyncClient) -> AsyncGenerator[None]:
    """Close a client when its loop ends: a loop closes the generators that were begun on it."""
    try:
        yield
    finally:
        await client.aclose()


def forget_clients(*, setting: str, **_options: object) -> None:
    """Make the clients anew when a test changed their settings."""
    if setting in {"MOMOPAY", "DATABASES", "SECRET_KEY"}:
        found, journal = _made.pop("client", None), _made.pop("journal", None)
        _async_clients.clear()
        for each in (found, journal):
            if each is not None:
                each.close()


class _ShopCalls(BaseClient[Any, Any]):
    """What both clients of a project change."""

    @property
    def stk(self) -> Any:
        return _Calls(super().stk, "COLLECTION")

    @property
    def payouts(self) -> Any:
        return _Payouts(super().payouts, "PAYOUT")


class ShopClient(_ShopCalls, Client):
    """The blocking client of a project."""


class AsyncShopClient(_ShopCalls, AsyncClient):
    """The client of a project for one event loop."""


class _Calls:
    """A group of operations. A payment without a callback URL gets the app's, signed for its reference."""

    def __init__(self, operations: Any, kind: str) -> None:
        self._operations = operations
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._operations, name)

        @wraps(operation)
        def call(*args: Any, **arguments: Any) -> Any:
            reference = arguments.get("reference") or arguments.get("account_reference")
            if reference is None and arguments.get("of"):
                reference = load("journal.rules.refund_reference")(arguments["of"])
            if name in _SIGNED and reference is not None and arguments.get("callback_url") is None:
                arguments["callback_url"] = _signed_url(reference)
            return _beside_transaction(lambda: operation(*args, **arguments), self._kind, reference)

        return call

    def __dir__(self) -> list[str]:
        return dir(self._operations)


class _Payouts(_Calls):
    def pay_all(self, payouts: Iterable[Any] | AsyncIterable[Any], **options: Any) -> Any:
        """Do what `Payouts.pay_all` does. Each payout gets its callback URL when it is read."""
        if isinstance(payouts, AsyncIterable):
            payouts = (_signed(each) async for each in payouts)
        elif isinstance(payouts, Iterable) and not isinstance(payouts, str | Mapping):
            payouts = map(_signed, payouts)
        return self._operations.pay_all(payouts, **options)


def _signed_url(reference: str) -> str | None:
    url = conf.callback_url()
    return None if url is None else conf.signer().url(url, reference=reference)


def _signed(payout: Any) -> Any:
    with suppress(RequestValidationError):  # it is refused, and has an outcome of its own
        item = load("durable.payment.item_of")(payout)
        return item if item.callback_url else replace(item, callback_url=_signed_url(item.reference))
    return payout


def _beside_transaction(call: Callable[[], T], kind: str, reference: object) -> T:
    """Make a call; say soon if the caller's own open transaction keeps SQLite from writing what must be kept."""
    database = connections[conf.database()]
    if database.vendor != "sqlite" or not database.in_atomic_block:
        return call()
    store = load("journal.journal.parts_of")(the_journal()).store
    try:
        with store.bounded(_TIMEOUT), store.database.transaction():
            pass
    except JournalError:
        with store.bounded(_TIMEOUT):
            try:
                return call()  # it may need to write nothing
            except JournalError as error:
                locked = JournalError(
                    "an open transaction of this thread has locked SQLite, so the payment could not be written down;"
                    " nothing was sent. Call after the transaction (transaction.on_commit), take the view out of it"
                    " (transaction.non_atomic_requests), or use PostgreSQL"
                )
                # Read in that very transaction: as long as it holds the lock, nobody else changes the payment.
                found = load("integrations.django.models.Payment").objects.filter(kind=kind, reference=reference)
                locked.may_have_executed = found.exclude(state__in=["REFUSED", "NOT_SENT"]).exists()
                raise locked from error
    return call()


class _Current:
    """A proxy of the client that a call needs now, so that modules can import it before the settings are complete."""

    def __init__(self, kind: type[object], get: Callable[[], object]) -> None:
        self._kind = kind
        self._get = get

    # Not by a decorator: `object` has it as a property that can be set.
    __class__: Any = property(lambda self: self._kind)  # `isinstance` asks for it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)

    def __dir__(self) -> list[str]:
        return dir(self._kind)

    def __repr__(self) -> str:
        return f"<the {self._kind.__name__} of this process>"


class _Later:
    """A call by `async_client` before its loop runs, as in ``asyncio.run(async_client.wallet.balance())``."""

    def __init__(self, *path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> _Later:
        return _Later(*self._path, name)

    async def __call__(self, *args: Any, **arguments: Any) -> Any:
        return await reduce(getattr, self._path, the_async_client())(*args, **arguments)


client: Final = cast("Client", _Current(Client, the_client))
"""The client of this process."""

async_client: Final = cast("AsyncClient", _Current(AsyncClient, the_async_client))
"""The client of the event loop that runs. Under ASGI that is one for each process."""
