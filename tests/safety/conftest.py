"""A shop with the blocking client, over SQLite, on a sandbox whose time stands still between calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drivers import Drive
from durable.conftest import account, client_kind, empty, sdk, url
from momopay import Journal
from momopay.sandbox import Account, Sandbox
from safety.kit import Between, DatabaseClock, FragileShop

__all__ = ["account", "client_kind", "empty", "sdk", "url"]  # fixtures that the tests of durable calls have too


@pytest.fixture(autouse=True)
def database_clock() -> Iterator[DatabaseClock]:
    """Installed before a test opens its journal."""
    clock = DatabaseClock()
    with clock.installed():
        yield clock


@pytest.fixture
def between() -> Iterator[Between]:
    between = Between()
    yield between
    between.close()


@pytest.fixture
def shop(
    drive: Drive,
    sandbox: Sandbox,
    key: str,
    account: Account,
    journal: Journal,
    database_clock: DatabaseClock,
    between: Between,
) -> FragileShop:
    sdk = drive(api_key=key, base_url=sandbox.base_url, transport=between, deadline=3.0)
    return FragileShop(journal, sdk, sandbox, key, account, database_clock, between)
