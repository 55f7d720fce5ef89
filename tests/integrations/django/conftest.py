"""A project with the app: its database, its sandbox, and the callbacks that come to it."""

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.test import Client as Browser
from django.test import override_settings
from django.urls import include, path

from integrations import apps  # noqa: F401  # pyright: ignore[reportUnusedImport]  it configures Django
from momopay import Payment
from momopay.integrations.django import client, payment_ended
from momopay.integrations.django.models import create_tables
from momopay.sandbox import Account, Sandbox
from postgresql import PostgresqlServer

ALIAS = "shop"
URL = "http://127.0.0.1:1/momopay/"
"""Where callbacks go. Nobody listens there: a test delivers them."""


ORDER: dict[str, Any] = {"reference": "INV-1", "amount": 100, "phone": "0712345678"}


def collect(**changes: Any) -> Payment:
    return client.stk.collect_once(**{**ORDER, **changes})


@dataclass
class Project:
    """A Django project in this process."""

    sandbox: Sandbox
    ended: list[Payment]

    @property
    def database(self) -> Any:
        return connections[ALIAS]

    def prompts(self) -> int:
        return sum(request.path.endswith("/payments/stk") for request in self.sandbox.requests)

    def deliver(self, number: int = -1) -> int:
        """Deliver a callback that found nobody; return the status of the response."""
        callback = self.sandbox.callbacks[number]
        parts = urlsplit(callback.url)
        sent = Browser(enforce_csrf_checks=True).post(
            f"{parts.path}?{parts.query}", callback.payload, content_type="application/json"
        )
        return sent.status_code

    def stated(self, name: str, number: int = -1) -> str:
        """Return what a callback states."""
        transaction: Any = self.sandbox.callbacks[number].payload["transaction"]
        return str(transaction[name])

    def status(self, reference: str) -> str | None:
        """Return the last status of an entry that the journal knows."""
        assert client.journal is not None
        entry = client.journal.get(reference)
        assert entry is not None
        return entry.status

    def sweep(self) -> None:
        call_command("momopay_sweep", stdout=StringIO())


@pytest.fixture(params=["sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a database that nobody used yet."""
    odd = "a shop%20#1" if sys.platform == "win32" else "a shop%20#1?mode=ro"  # Windows' names have no question mark
    files = {"sqlite": "shop.sqlite3", "odd": odd, "memory": "unused"}
    if request.param in files:
        test = {} if request.param == "memory" else {"NAME": str(tmp_path / "test.sqlite3")}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / files[request.param]), "TEST": test}
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    url = urlsplit(server.new_database())
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path[1:],
        "USER": url.username,
        "HOST": url.hostname,
        "PORT": url.port,
    }


@contextmanager
def database(engine: dict[str, Any]) -> Generator[Any]:
    known = connections.settings[ALIAS]  # in the settings, which name each database before the first view is made
    connections.settings[ALIAS] = {**connections.settings["default"], "OPTIONS": {}, **engine}
    with suppress(AttributeError):  # a test without a database may have made a connection of the placeholder
        del connections[ALIAS]
    try:
        yield connections[ALIAS]
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]
        connections.settings[ALIAS] = known


@pytest.fixture(params=[True])
def project(
    request: pytest.FixtureRequest, sandbox: Sandbox, account: Account, key: str, engine: dict[str, Any]
) -> Generator[Project]:
    """A project; with the parameter False, nobody ran migrate."""
    ended = list[Payment]()

    def receive(payment: Payment, **_arguments: Any) -> None:
        ended.append(payment)

    payment_ended.connect(receive)
    settings.ROOT_URLCONF = (path("momopay/", include("momopay.integrations.django.urls")),)
    setting = {"API_KEY": key, "BASE_URL": sandbox.base_url, "CALLBACK_BASE_URL": URL, "DATABASE": ALIAS}
    account.rate_limit = None
    with database(engine) as connection, override_settings(MOMOPAY={**setting, "BUDGET": None, "DEADLINE": 20.0}):
        if request.param:
            create_tables(connection)
        try:
            yield Project(sandbox, ended)
        finally:
            payment_ended.disconnect(receive)
