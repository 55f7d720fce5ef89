"""Fixtures for merchants' tests: the sandbox, an account of its own for each test, and clients for it.

pytest loads this module wherever momopay is installed, so it imports nothing expensive before a fixture is used. While
tests run, live keys are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import momopay

if TYPE_CHECKING:
    from momopay.sandbox import Account, Sandbox

TEST_RUN = "MOMOPAY_TEST_RUN"


def pytest_configure(config: pytest.Config) -> None:
    """Refuse live keys in this process and in those that it starts."""
    environment = pytest.MonkeyPatch()
    environment.setenv(TEST_RUN, "1")
    config.add_cleanup(environment.undo)


@pytest.fixture(scope="session")
def _momopay_session_sandbox() -> Iterator[Sandbox]:
    try:
        from momopay.sandbox import Sandbox
    except ImportError as error:
        pytest.fail(f"the sandbox is an extra: pip install 'momopay[sandbox]' ({error})", pytrace=False)
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def momopay_sandbox(_momopay_session_sandbox: Sandbox) -> Sandbox:
    """The sandbox on loopback: one server for the session, reset for each test. `advance(seconds)` moves its clock."""
    _momopay_session_sandbox.reset()
    return _momopay_session_sandbox


@pytest.fixture
def momopay_api_key() -> str:
    """The API key of this test's own account."""
    return f"pk_test_{uuid4().hex}"


@pytest.fixture
def momopay_account(momopay_sandbox: Sandbox, momopay_api_key: str) -> Account:
    """This test's own account. Change its KYC, balances, fee, channels and switches as you need them."""
    return momopay_sandbox.account(momopay_api_key)


@pytest.fixture
def momopay_client(momopay_sandbox: Sandbox, momopay_api_key: str) -> Iterator[momopay.Client]:
    """A `Client` of this test's account. It has no rate budget, which would wait in real time."""
    with momopay.Client(momopay_api_key, base_url=momopay_sandbox.base_url, budget=None) as client:
        yield client


@pytest.fixture
def momopay_async_client(momopay_sandbox: Sandbox, momopay_api_key: str) -> momopay.AsyncClient:
    """An `AsyncClient` of this test's account, for the event loop of your test. It has no rate budget either."""
    import httpx

    # No connection is kept between requests, because the test's event loop may end without closing it.
    transport = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
    return momopay.AsyncClient(momopay_api_key, base_url=momopay_sandbox.base_url, budget=None, transport=transport)


@pytest.fixture
def momopay_django(
    request: pytest.FixtureRequest, momopay_sandbox: Sandbox, momopay_api_key: str, tmp_path: Path
) -> Iterator[Sandbox]:
    """The sandbox for a Django project with the app: the setting MOMOPAY points to it, with a journal for each test.

    With pytest-django's `live_server`, callbacks are delivered to that. Without it, call the command `momopay_sweep`,
    which handles every end, too.
    """
    # First, because Django forbids a test all databases that are configured when the test's own are set up.
    found = [name for name in ("transactional_db", "db", "live_server") if name in request.fixturenames]
    if not found and request.config.pluginmanager.hasplugin("django"):
        found = ["db"]
    values = {name: request.getfixturevalue(name) for name in found}
    from django.db import connections
    from django.test import override_settings
    from django.urls import reverse

    from momopay.integrations.django import clients, models

    class Databases(dict[str, Any]):
        """Hides the journal's database: Django forbids a test every one that is listed and that it did not request."""

        def __iter__(self) -> Iterator[str]:
            return (alias for alias in super().__iter__() if alias != journal)

    # A file of its own, because the test's database may be in memory and may have an open transaction.
    journal, known, server = "momopay_test", connections.settings, values.get("live_server")
    sqlite: dict[str, Any] = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "momopay.sqlite3"),
        "OPTIONS": {},
    }
    settings = {
        **clients.options(),
        "API_KEY": momopay_api_key,
        "BASE_URL": momopay_sandbox.base_url,
        "BUDGET": None,
        "DATABASE": journal,
        "CALLBACK_BASE_URL": server and server.url + reverse("momopay:callback").removesuffix("callback"),
    }
    connections.settings = Databases({**known, journal: {**known["default"], **sqlite, "ATOMIC_REQUESTS": False}})
    try:
        with override_settings(MOMOPAY=settings):
            models.create_tables(connections[journal])
            yield momopay_sandbox
    finally:
        connections[journal].close()
        del connections[journal]
        connections.settings = known
