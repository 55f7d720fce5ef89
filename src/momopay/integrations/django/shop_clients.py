"""The clients of a project: they sign callback URLs, and say so if the project's transaction locks them out.

Apart from `clients`, because this loads the journal and all that sends, and each management command would wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from django.apps import apps
from django.db import connections

from momopay._core.operation import Resource
from momopay.client import AsyncClient, BaseClient, Client
from momopay.durable.pay_all import Source
from momopay.durable.payment import item_of
from momopay.errors import JournalError, RequestValidationError
from momopay.integrations.django import conf
from momopay.integrations.django.clients import TIMEOUT, the_journal
from momopay.journal.journal import parts_of
from momopay.journal.rules import refund_reference
from momopay.resources import payouts, stk

_SIGNED: Final = {"collect_once", "initiate", "pay_once", "refund"}


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
        earlier = payments.objects.filter(reference=reference)
        locked.may_have_executed = earlier.exclude(state__in=["REFUSED", "NOT_SENT"]).exists()
        raise locked from error
