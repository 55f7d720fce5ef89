"""Every behaviour of the journal is tested on both databases."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from momopay import Journal
from postgresql import PostgresqlServer, running_postgresql


@pytest.fixture(scope="session")
def postgresql() -> Generator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that nobody used yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'payouts.db'}"
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture
def journal(url: str) -> Generator[Journal]:
    with Journal(url) as journal:
        yield journal
