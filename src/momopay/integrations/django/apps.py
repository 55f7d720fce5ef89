"""The app's configuration: its system checks, and what happens when settings change or the process forks."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004  Django's own name
from django.core.signals import setting_changed
from django.db import connections
from django.urls import Resolver404, resolve

from momopay.client import Client
from momopay.errors import ConfigurationError
from momopay.integrations.django import conf
from momopay.integrations.django.clients import forget_clients
from momopay.urls import check_callback_url, is_loopback

T = TypeVar("T")

_ROUTE: Final = 'path("momopay/", include("momopay.integrations.django.urls"))'


class MomopayConfig(AppConfig):
    """The app ``momopay``."""

    name = "momopay.integrations.django"
    label = "momopay"
    verbose_name: Any = "Mobile money"

    def ready(self) -> None:
        """Register the checks, and what happens when settings change or the process forks."""
        register(check_settings)
        setting_changed.connect(forget_clients, dispatch_uid="momopay")
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_close_files)


def _close_files() -> None:
    """Close this thread's connections to SQLite before a fork, as under ``gunicorn --preload``."""
    # A child that opened a file again which was open at the fork would lose its locks, and then what the journal wrote.
    for connection in connections.all(initialized_only=True):
        if connection.vendor == "sqlite" and not connection.in_atomic_block:
            connection.close()


def check_settings(**_options: object) -> list[CheckMessage]:
    """Return what is wrong with the setting MOMOPAY. Sends nothing, and opens no connection."""
    found: list[CheckMessage] = []

    def tried(number: str, make: Callable[[], T], hint: str | None = None) -> T | None:
        try:
            return make()
        except (ConfigurationError, ValueError) as error:
            found.append(Error(str(error), hint=hint, id=f"momopay.{number}"))
            return None

    options = tried("E001", conf.options)
    if options is None:
        return found
    client: Client | None = None
    missing = [name for name in ("API_KEY", "BASE_URL") if not (options.get(name) or os.getenv(f"MOMOPAY_{name}"))]
    if missing:
        # No error: a new project must be able to make its migrations. The first call of a client raises one.
        hint = f"Set it in MOMOPAY, or as {' and '.join(f'MOMOPAY_{name}' for name in missing)} in the environment."
        found.append(Warning(f"MOMOPAY has no {' and no '.join(missing)}", hint=hint, id="momopay.W003"))
    else:
        client = tried("E002", lambda: Client(**conf.client_options()))
    alias = conf.database()
    database = connections.settings.get(alias, {})
    # `manage.py test` puts SQLite into memory before it checks; a test that pays uses momopay_django.
    if not str(database.get("NAME")).startswith("file:memorydb_"):
        tried("E003", conf.journal_url)
    if database.get("ATOMIC_REQUESTS") and "sqlite" in database["ENGINE"]:
        text = f"ATOMIC_REQUESTS is on for {alias!r}: SQLite cannot write a payment beside the transaction of a view"
        hint = "Decorate views that pay with transaction.non_atomic_requests, or use PostgreSQL."
        found.append(Warning(text, hint=hint, id="momopay.W002"))
    tried("E004", conf.signer, 'It is MOMOPAY["CALLBACK_SECRETS"], by default SECRET_KEY.')
    url = conf.callback_url()
    if client is not None and url is not None:
        on_loopback = is_loopback(client.base_url)
        hint = 'It is MOMOPAY["CALLBACK_BASE_URL"].'
        tried("E005", lambda: check_callback_url(url, on_loopback=on_loopback), hint)
        path = urlsplit(url).path
        is_there = False
        with suppress(Resolver404):
            is_there = resolve(path).url_name == "callback"
        if not is_there:
            text = f'no callback view is at {path}, where MOMOPAY["CALLBACK_BASE_URL"] leads'
            hint = f"Add {_ROUTE} to the URLs, and use its address. Ignore this behind a proxy that changes paths."
            found.append(Warning(text, hint=hint, id="momopay.W001"))
    return found
