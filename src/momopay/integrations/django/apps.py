"""The app's configuration: its system checks, and its handlers for changed settings and forks."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.core.checks import ERROR, WARNING, CheckMessage, register
from django.core.signals import setting_changed
from django.db import connections
from django.urls import is_valid_path
from django.utils.connection import ConnectionDoesNotExist

from momopay import Client, ConfigurationError
from momopay.integrations.django import clients
from momopay.urls import check_callback_url, is_loopback


class MomopayConfig(AppConfig):
    """The app ``momopay``."""

    name = "momopay.integrations.django"
    label = "momopay"
    verbose_name: Any = "Mobile money"

    def ready(self) -> None:
        """Register the checks and the handlers."""
        register(check_settings)
        setting_changed.connect(clients.forget_clients, dispatch_uid="momopay")
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_close_files)


def _close_files() -> None:
    """Close this thread's connections to SQLite before a fork, as under ``gunicorn --preload``."""
    # If a child opened a file that was open at the fork, it would lose the file's locks, and then the journal's writes.
    for connection in connections.all(initialized_only=True):
        if connection.vendor == "sqlite" and not connection.in_atomic_block:
            connection.close()


def check_settings(**_options: object) -> list[CheckMessage]:
    """Return the first mistake in the setting MOMOPAY. It sends nothing and opens no connection."""
    level, name = ERROR, "MOMOPAY"
    try:
        options, url = clients.options(), clients.callback_url()
        if not all(options.get(name) or os.getenv(f"MOMOPAY_{name}") for name in ("API_KEY", "BASE_URL")):
            level = WARNING  # a new project must be able to make its migrations; its first call raises an error
        client = Client(**clients.client_options(), journal=None)  # a JOURNAL in the setting would be a TypeError
        name = 'MOMOPAY["CALLBACK_SECRETS"], by default SECRET_KEY'
        clients.signer()
        name = 'MOMOPAY["DATABASE"]'
        clients.journal_address()
        name = 'MOMOPAY["CALLBACK_BASE_URL"]'
        if url is not None:
            check_callback_url(url, on_loopback=is_loopback(client.base_url))
            if "?" in url or "#" in url:
                raise ConfigurationError("must have no query and no fragment: the callback view is below it")
    except (ConfigurationError, ConnectionDoesNotExist, TypeError, ValueError) as error:
        problem = f"needs a dict of the options that the docs list: {error}" if isinstance(error, TypeError) else error
        return [CheckMessage(level, f"{name}: {problem}", id="momopay.E001")]
    if url is not None and getattr(is_valid_path(urlsplit(url).path), "url_name", None) != "callback":
        hint = 'Add path("momopay/", include("momopay.integrations.django.urls")). Ignore this behind a proxy.'
        return [CheckMessage(WARNING, f"{name}: no callback view is at {url}", hint=hint, id="momopay.W001")]
    return []
