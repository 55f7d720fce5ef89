"""A blocking client on a sandbox of its own, and a journal in SQLite unless a test asks for both databases."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from drivers import Drive, Driver
from durable.kit import Serve, Served, Service, Shop
from events_kit import Watcher
from momopay import Journal
from momopay.durable import decide
from momopay.sandbox import Account, Sandbox
from postgresql import PostgresqlServer


@pytest.fixture
def client_kind() -> str:
    """One of the two clients: they share the code of the durable calls. `over_both_clients` is for what differs."""
    return "blocking"


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal in which nothing happened yet. A copy costs less than new tables."""
    path = tmp_path_factory.mktemp("empty") / "journal.db"
    with Journal(f"sqlite:///{path}") as journal:
        journal.get("r")
    return path


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, empty: Path) -> str:
    if getattr(request, "param", "sqlite") == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        return server.new_schema()
    shutil.copyfile(empty, tmp_path / "journal.db")
    return f"sqlite:///{tmp_path / 'journal.db'}"


@pytest.fixture
def no_backoff(no_backoff: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause before a payment is sent again as short, too. Its length is the business of test_decide.py."""
    monkeypatch.setattr(decide, "BASE_BACKOFF", 0.0)


@pytest.fixture
def account(sandbox: Sandbox, key: str) -> Account:
    account = sandbox.account(key)
    account.rate_limit = None
    return account


@pytest.fixture
def shop(sandbox: Sandbox, key: str, account: Account, journal: Journal, sdk: Driver) -> Shop:
    return Shop(journal, sdk, sandbox, key, account)


@pytest.fixture
def serve(drive: Drive, journal: Journal) -> Serve:
    def make(initiation: Any = None, *, options: Mapping[str, Any] = MappingProxyType({}), **answers: Any) -> Served:
        service, seen = Service(initiation, **answers), Watcher()
        return Served(journal, drive(transport=service.transport, on_event=seen, **options), service, seen)

    return make


@pytest.fixture
def sdk(drive: Drive, sandbox: Sandbox, account: Account, key: str) -> Driver:
    assert account.tenant_id
    return drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)
