"""`Journal.migrate` creates and upgrades a journal explicitly, and says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.database_kit import execute
from journal.kit import put
from journal.versions.kit import EARLIER, connected, load
from momopay import ConfigurationError, Journal, JournalError
from momopay.journal.database import Database
from momopay.journal.structure import columns_of
from momopay.journal.upgrade import VERSION, statements


@pytest.mark.both_databases
def test_it_creates_a_journal_once(url: str) -> None:
    to_do = f"there is no journal: create one, of version {VERSION}"
    assert [Journal.migrate(url, check=True) for _ in range(2)] == [to_do] * 2
    with pytest.raises(ConfigurationError, match="create=False"), Journal(url, create=False) as journal:
        journal.get("r")
    assert Journal.migrate(url) == f"created the journal, of version {VERSION}"
    assert Journal.migrate(url) == Journal.migrate(url, check=True) == ""
    with Journal(url, create=False) as journal:
        put(journal)


def test_a_check_creates_no_file(tmp_path: Path) -> None:
    assert Journal.migrate(f"sqlite:///{tmp_path / 'new.db'}", check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.both_databases
@pytest.mark.parametrize("version", EARLIER)
def test_it_upgrades_a_journal_once(url: str, version: int) -> None:
    load(url, version)
    with connected(url) as connection:
        before = columns_of(connection)
        to_do = f"upgrade the journal from version {version} to {VERSION}"
        assert Journal.migrate(url, check=True) == to_do
        assert columns_of(connection) == before
        assert Journal.migrate(url) == f"upgraded {to_do.removeprefix('upgrade ')}"
        assert columns_of(connection) != before
    assert Journal.migrate(url) == ""


@pytest.mark.both_databases
def test_a_newer_journal_is_refused_or_left_as_it_is(journal: Journal, url: str) -> None:
    put(journal)
    execute(journal, "UPDATE momopay_journal SET version = 99")
    for check in (True, False):
        with pytest.raises(ConfigurationError, match="Update momopay on this machine"):
            Journal.migrate(url, check=check)
    execute(journal, f"INSERT INTO momopay_versions VALUES (99, {VERSION}, '2027-01-01')")
    assert Journal.migrate(url) == Journal.migrate(url, check=True) == ""


@pytest.mark.both_databases
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_it_takes_longer_than_a_first_use_may(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it makes an index of a large table."""
    load(url, 1)

    def slow(version: int, dialect: str) -> list[str]:
        return [*statements(version, dialect), "SELECT pg_sleep(1)"]

    monkeypatch.setattr("momopay.journal.upgrade.statements", slow)
    monkeypatch.setattr(Database, "setup_seconds", 0.5)
    with Journal(url) as journal, pytest.raises(JournalError):
        journal.get("r")
    assert Journal.migrate(url).startswith("upgraded")
