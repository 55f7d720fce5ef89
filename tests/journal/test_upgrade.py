"""The versions of the tables: their frozen SQL, and the upgrade of what they made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from journal.database_kit import execute, store_of
from journal.kit import found, put
from journal.versions.kit import EARLIER, connected, load
from momopay import ConfigurationError, Journal
from momopay.journal import upgrade
from momopay.journal.schema import metadata
from momopay.journal.structure import columns_of, indexes_of
from momopay.journal.upgrade import VERSION

ACCOUNTS: Final = ("default", "second shop")
SQL = Path(upgrade.__file__).with_name("versions")
# Of the file of each version. One that a release has may not change any more: write the next version instead.
FROZEN: Final = {
    "1.postgresql.sql": "ddd366b8718f88d7",
    "1.sqlite.sql": "33a24ee7edf59f58",
    "2.postgresql.sql": "b0571b2a463dace9",
    "2.sqlite.sql": "b0571b2a463dace9",
}


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def structure(url: str) -> Mapping[str, str]:
    """Return what tables and indexes a journal has."""
    with Journal(url, create=False) as journal, store_of(journal).database.connection() as connection:
        return {**columns_of(connection), **indexes_of(connection)}


def test_the_sql_of_a_version_is_frozen() -> None:
    assert {path.name: fingerprint(path) for path in sorted(SQL.iterdir())} == FROZEN, (
        "a version that was released may not change: add the next one (contributing.md, 'Add a column')"
    )


@pytest.mark.both_databases
def test_the_definitions_are_those_of_the_newest_version(url: str) -> None:
    """A definition that changes without a version fails here: of a table, an index or the condition of one."""
    with connected(url) as connection:
        metadata.create_all(connection)
        described = {**columns_of(connection), **indexes_of(connection)}
        metadata.drop_all(connection)
    with Journal(url.replace("payouts.db", "other.db")) as journal:
        journal.get("r")
    assert described == structure(url.replace("payouts.db", "other.db"))
    assert len(described) > 20


# Upgrades


@pytest.mark.both_databases
@pytest.mark.parametrize("version", EARLIER)
def test_an_upgraded_journal_has_what_a_new_one_has(url: str, tmp_path: Path, version: int) -> None:
    load(url, version)
    with Journal(url, create=False) as journal:
        assert journal.check().version == VERSION
    upgraded = structure(url)
    with connected(url) as connection:
        for table in metadata.sorted_tables:
            connection.exec_driver_sql(f"DROP TABLE {table.name}")
    if url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path / 'new.db'}"
    with Journal(url) as journal:
        journal.get("r")
    assert upgraded == structure(url)


# Journals that cannot be upgraded


@pytest.mark.both_databases
def test_a_newer_journal_is_used_only_if_it_allows_that(journal: Journal, url: str) -> None:
    put(journal)
    execute(journal, "UPDATE momopay_journal SET version = 99")
    for oldest_writer in (None, VERSION + 1, 99):
        if oldest_writer:
            execute(journal, "DELETE FROM momopay_versions WHERE version = 99")
            execute(journal, f"INSERT INTO momopay_versions VALUES (99, {oldest_writer}, '2027-01-01')")
        for create in (True, False):
            with Journal(url, create=create) as later, pytest.raises(ConfigurationError, match="version 99") as caught:
                later.get("r")
            assert "Update momopay on this machine" in str(caught.value)
            assert not caught.value.may_have_executed
    execute(journal, f"UPDATE momopay_versions SET oldest_writer = {VERSION} WHERE version = 99")
    with Journal(url, create=False) as later:
        put(later, "s")
        assert later.check().version == 99
    assert found(journal, "s")
    assert execute(journal, "SELECT version, sequence FROM momopay_journal") == [(99, 2)]


def test_a_journal_from_before_version_1_is_refused_and_left_as_it_is(journal: Journal, url: str) -> None:
    put(journal)
    execute(journal, "ALTER TABLE momopay_journal RENAME COLUMN sequence TO something")
    with Journal(url) as later, pytest.raises(ConfigurationError, match="a journal of an earlier version"):
        later.get("r")
    assert execute(journal, "SELECT version, something FROM momopay_journal") == [(VERSION, 1)]
