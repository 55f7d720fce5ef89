"""Fixtures for merchants' tests: the sandbox, an account of its own for each test, and clients for it.

pytest loads this module wherever momopay is installed, so it imports nothing expensive before a fixture is used. While
tests run, live keys are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import momopay
from momopay._core.wiring import NO_JOURNAL

if TYPE_CHECKING:
    from momopay.sandbox import Account, Sandbox

TEST_RUN = "MOMOPAY_TEST_RUN"
_JOURNAL = "momopay_journal"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the database of all tests' journals."""
    parser.addini(_JOURNAL, "the URL of the database for the fixture momopay_journal; MOMOPAY_TEST_JOURNAL wins")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse live keys in this process and in those that it starts."""
    environment = pytest.MonkeyPatch()
    environment.setenv(TEST_RUN, "1")
    config.add_cleanup(environment.undo)


@pytest.fixture(scope="session")
def momopay_profile() -> str | Path | None:
    """The sandbox's profile: "contract", "met", a file of `momopay probe`, or None. Override it, also with `params`."""
    return None


@pytest.fixture(scope="session")
def _momopay_session_sandbox(momopay_profile: str | Path | None) -> Iterator[Sandbox]:
    try:
        from momopay.sandbox import Sandbox
    except ImportError as error:
        pytest.fail(f'the sandbox is an extra: pip install "momopay[sandbox]" ({error})', pytrace=False)
    with Sandbox(profile=momopay_profile) as sandbox:
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
    with momopay.Client(momopay_api_key, base_url=momopay_sandbox.base_url, budget=None, journal=NO_JOURNAL) as client:
        yield client


@pytest.fixture
def momopay_async_client(momopay_sandbox: Sandbox, momopay_api_key: str) -> momopay.AsyncClient:
    """An `AsyncClient` of this test's account, for the event loop of your test. It has no rate budget either."""
    import httpx

    # No connection is kept between requests, because the test's event loop may end without closing it.
    transport = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
    return momopay.AsyncClient(
        momopay_api_key, base_url=momopay_sandbox.base_url, budget=None, transport=transport, journal=NO_JOURNAL
    )


@pytest.fixture
def momopay_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[momopay.Journal]:
    """A journal with an account of this test's own, for ``momopay_client.with_options(journal=momopay_journal)``.

    It is in the database that MOMOPAY_TEST_JOURNAL or the ini option ``momopay_journal`` names, which all tests may
    share and may keep from run to run. By default, it is in a file of the test's own.
    """
    url: str = os.environ.get("MOMOPAY_TEST_JOURNAL") or request.config.getini(_JOURNAL)
    account = f"test-{uuid4().hex}"  # a journal that knows another test's key would refuse this one's
    with momopay.Journal(url or f"sqlite:///{tmp_path}/payments.db", account=account) as journal:
        yield journal


@pytest.fixture
def momopay_django(
    request: pytest.FixtureRequest, momopay_sandbox: Sandbox, momopay_api_key: str, tmp_path: Path
) -> Iterator[Sandbox]:
    """The sandbox for a Django project with the app: the setting MOMOPAY points to it, with a journal for each test.

    `advance` also delivers the callbacks that are due to the app's view, in the thread that calls it. With
    pytest-django's `live_server`, they are delivered to that, at any time.
    """
    # First, because Django forbids a test all databases that are configured when the test's own are set up.
    found = [name for name in ("transactional_db", "db", "live_server") if name in request.fixturenames]
    if not found and request.config.pluginmanager.hasplugin("django"):
        found = ["db"]
    values = {name: request.getfixturevalue(name) for name in found}
    from momopay.integrations.django.test import sandboxed

    with sandboxed(momopay_sandbox, momopay_api_key, tmp_path, getattr(values.get("live_server"), "url", None)):
        yield momopay_sandbox
