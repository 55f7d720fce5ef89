"""The app's configuration: its system checks, and its handlers for changed settings and forks."""

from __future__ import annotations

import logging
import os
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import ERROR, WARNING, CheckMessage, register
from django.core.handlers.base import BaseHandler
from django.core.signals import setting_changed
from django.db import connections, router
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import is_valid_path, set_urlconf
from django.utils.connection import ConnectionDoesNotExist
from typing_extensions import override

from momopay import Client, ConfigurationError
from momopay._core.wiring import NO_JOURNAL
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
        register(check_transactions)
        router.routers.insert(0, _ViewRouter())
        setting_changed.connect(clients.forget_clients, dispatch_uid="momopay")
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_close_files)


class _ViewRouter:
    """Keeps the payments, which are a database view, out of what ``dumpdata`` writes and ``loaddata`` reads."""

    def allow_migrate(self, _db: str, app_label: str, model_name: str | None = None, **_hints: Any) -> bool | None:
        return False if (app_label, model_name) == ("momopay", "payment") else None


def _close_files() -> None:
    """Close this thread's connections to SQLite before a fork, as under ``gunicorn --preload``."""
    # If a child opened a file that was open at the fork, it would lose the file's locks, and then the journal's writes.
    for connection in connections.all(initialized_only=True):
        if connection.vendor == "sqlite" and not connection.in_atomic_block:
            connection.close()


def check_settings(**_options: object) -> list[CheckMessage]:
    """Return the first mistake in the setting MOMOPAY. It sends nothing to the service."""
    from momopay.integrations._receiver import check_secret  # noqa: PLC0415  it loads what sends

    level, name = ERROR, "MOMOPAY"
    try:
        options, url = clients.options(), clients.callback_url()
        if not all(options.get(name) or os.getenv(f"MOMOPAY_{name}") for name in ("API_KEY", "BASE_URL")):
            level = WARNING  # a new project must be able to make its migrations; its first call raises an error
        client = Client(**clients.client_options(), journal=NO_JOURNAL)
        name = 'MOMOPAY["CALLBACK_SECRETS"], by default SECRET_KEY'
        clients.signer()
        name = 'MOMOPAY["SWEEP_SECRET"]'
        if options.get("SWEEP_SECRET"):
            check_secret(options["SWEEP_SECRET"])
        name = 'MOMOPAY["DATABASE"]'
        clients.journal_address()
        name = 'MOMOPAY["LINK"]'
        clients.link()
        name = 'MOMOPAY["CALLBACK_BASE_URL"]'
        if url is not None:
            check_callback_url(url, on_loopback=is_loopback(client.base_url))
            if "?" in url or "#" in url:
                raise ConfigurationError("must have no query and no fragment: the callback view is below it")
    except (ConfigurationError, ConnectionDoesNotExist, ImportError, TypeError, ValueError) as error:
        return [CheckMessage(level, f"{name}: {error}", id="momopay.E001")]
    if url is None:
        return []
    if getattr(is_valid_path(urlsplit(url).path), "url_name", None) != "callback":
        hint = 'Add path("momopay/", include("momopay.integrations.django.urls")). Ignore this behind a proxy.'
        return [CheckMessage(WARNING, f"{name}: no callback view is at {url}", hint=hint, id="momopay.W001")]
    if answer := _who_answers(url):
        hint = "Let this URL pass, and have its host in ALLOWED_HOSTS. The service logs in nowhere."
        return [CheckMessage(WARNING, f"{name}: {answer}", hint=hint, id="momopay.W002")]
    return []


def check_transactions(**_options: object) -> list[CheckMessage]:
    """Return a warning if Django puts each view into a transaction, with which a paid order could roll back."""
    atomic = [alias for alias, of_database in connections.settings.items() if of_database.get("ATOMIC_REQUESTS")]
    if not atomic:
        return []
    text = (
        f"ATOMIC_REQUESTS of {', '.join(atomic)}: after an exception in a view, its order is lost, its payment is not"
    )
    hint = (
        "Commit the order before you pay: decorate each view that pays with transaction.non_atomic_requests. Then add"
        ' "momopay.W003" to SILENCED_SYSTEM_CHECKS.'
    )
    return [CheckMessage(WARNING, text, hint=hint, id="momopay.W003")]


class _Handler(BaseHandler):
    """Django's handler of requests, with the project's middleware and a view that does nothing."""

    is_reached = False

    @override
    def make_view_atomic(self, view: Any) -> Any:
        def reached(*_args: object, **_options: object) -> HttpResponse:
            self.is_reached = True
            return HttpResponse()

        return reached


def _who_answers(url: str) -> str | None:
    """Return which middleware answers a POST to the callback's URL instead of the view, and how; None if none does."""
    middleware, disabled = list(settings.MIDDLEWARE), logging.root.manager.disable
    logging.disable()  # each refusal would be logged, like that of a stranger's request
    try:
        if _post(url) is None:
            return None
        for number, name in enumerate(middleware, 1):
            settings.MIDDLEWARE = middleware[:number]
            response = _post(url)
            if response is not None:
                to = f", a redirect to {response['Location']}" if "Location" in response else ""
                return f"{name} answers {response.status_code}{to}, and not the callback view at {url}"
    except Exception:  # noqa: BLE001  a middleware that cannot be loaded must not end `migrate`; requests show it
        return None
    finally:
        settings.MIDDLEWARE = middleware
        logging.disable(disabled)
        set_urlconf(None)  # which the handler has set for this thread
    return None


def _post(url: str) -> HttpResponseBase | None:
    """Return the response of a middleware to a POST, None if the view is reached or the middleware itself fails."""
    from django.test import RequestFactory  # noqa: PLC0415  not needed to serve

    parts = urlsplit(url)
    request = RequestFactory().post(
        parts.path, content_type="application/json", secure=parts.scheme == "https", headers={"Host": parts.netloc}
    )
    handler = _Handler()
    handler.load_middleware()
    response = handler.get_response(request)
    # It may need a table that `migrate` is about to make; a test run has ALLOWED_HOSTS of its own.
    ignored = HTTPStatus.BAD_REQUEST if is_loopback(url) else HTTPStatus.INTERNAL_SERVER_ERROR
    is_broken = response.status_code in {HTTPStatus.INTERNAL_SERVER_ERROR, ignored}
    return None if handler.is_reached or is_broken else response
