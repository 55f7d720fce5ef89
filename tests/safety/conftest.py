"""A shop with the blocking client, over SQLite, on a sandbox whose time stands still between calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers import Drive
from momopay import Journal
from momopay.sandbox import Account, Sandbox
from postgresql import PostgresqlServer
from safety.kit import Between, DatabaseClock, Shop


@pytest.fixture
def client_kind() -> str:
    """One of the two clients: they share the code of the durable calls. Tests name the other where that differs."""
    return "blocking"


@pytest.fixture
def database_clock() -> Iterator[DatabaseClock]:
    clock = DatabaseClock()
    with clock.installed():
        yield clock


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if getattr(request, "param", "sqlite") == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        return server.new_schema()
    return f"sqlite:///{tmp_path / 'journal.db'}"


@pytest.fixture
def journal(url: str, database_clock: DatabaseClock) -> Iterator[Journal]:
    with Journal(url) as journal:
        yield journal


@pytest.fixture
def between() -> Iterator[Between]:
    between = Between()
    yield between
    between.close()


@pytest.fixture
def account(sandbox: Sandbox, key: str) -> Account:
    account = sandbox.account(key)
    account.rate_limit = None
    return account


@pytest.fixture
def shop(
    drive: Drive,
    sandbox: Sandbox,
    key: str,
    account: Account,
    journal: Journal,
    database_clock: DatabaseClock,
    between: Between,
) -> Shop:
    sdk = drive(api_key=key, base_url=sandbox.base_url, transport=between, deadline=3.0)
    return Shop(sandbox, key, account, journal, database_clock, between, sdk)
