"""The tables are created, migrated from version 1, or refused, on both databases."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from journal import version_1
from journal.kit import PHONE, begin, callback, execute, found, lease_of, sender
from momopay import ConfigurationError, Journal, JournalError, JournalState
from momopay.journal.journal import payments_of

COLUMNS = (
    "reference, state, attempts, transaction_id, code, created_at, sent_at, released_by, released_at, amount, phone,"
    " body_hash, claim, sender, lease_until, status, ended_at, metadata"
)


@pytest.fixture
def old_url(url: str) -> str:
    """The URL of a journal of version 1."""
    version_1.make(url)
    return url


@pytest.fixture
def old_process(old_url: str) -> Generator[Connection]:
    """A connection of a process of version 1, made before anything was migrated."""
    with version_1.connected(old_url) as connection:
        yield connection


def rows(journal: Journal) -> dict[str, dict[str, object]]:
    with journal._database.connection() as connection:
        found = connection.exec_driver_sql(f"SELECT account, kind, {COLUMNS} FROM momopay_payments").mappings()
        return {str(row["reference"]): dict(row) for row in found}


def versions(connection: Connection) -> list[int]:
    return list(connection.exec_driver_sql("SELECT version FROM momopay_journal").scalars())


@pytest.mark.both_databases
def test_every_row_of_version_1_is_there_with_what_version_2_adds(old_url: str) -> None:
    with Journal(old_url) as journal:
        migrated = rows(journal)
    for old in version_1.ROWS:
        reference = str(old["reference"])
        row = migrated.pop(reference)
        kept = {name: value for name, value in old.items() if name not in {"released", "state"}}
        assert {name: row[name] for name in kept} == kept
        assert (row["account"], row["kind"]) == ("default", "PAYOUT")
        assert row["state"] == ("UNKNOWN" if reference == "a: second of two" else old["state"])
        assert row["attempts"] == (0 if reference == "not sent" else 1)
        assert row["created_at"] == old["sent_at"]
        released = ("version 1", old["sent_at"]) if old["released"] else (None, None)
        assert (row["released_by"], row["released_at"]) == released
        assert row["status"] is row["ended_at"] is row["metadata"] is None
    assert migrated == {}


def test_a_journal_of_version_1_goes_on(old_url: str) -> None:
    with Journal(old_url) as journal:
        assert (found(journal, "paid").state, found(journal, "paid").transaction_id) == (JournalState.ACCEPTED, "t1")
        unresolved = {entry.reference for entry in journal.unresolved()}
        assert unresolved == {"died", "in doubt", "in doubt with id", "a: second of two"}
        for reference in ("refused", "not sent", "released"):
            with lease_of(journal) as lease:
                assert begin(journal, lease, reference) is None
        assert found(journal, "released").sent_at.isoformat() == version_1.SENT_AT
        assert not journal.first_seen(callback())
        assert journal.first_seen(callback(status="FAILED"))
        with journal.handling(callback(identity="another", status="FAILED")) as is_new:
            assert is_new


def test_the_names_of_an_end_without_success_are_merged(old_url: str) -> None:
    with Journal(old_url) as journal:
        with journal._database.connection() as connection:
            found = connection.exec_driver_sql("SELECT transaction_id, status, handled FROM momopay_callbacks").all()
        assert {(each[0], each[1]): bool(each[2]) for each in found} == {
            ("the-id", "SUCCESS"): True,
            ("another", "FAILED"): False,
            ("cancelled", "FAILED"): True,
            ("expired", "FAILED"): True,
            ("expired", "SUCCESS"): True,
        }
        assert not journal.first_seen(callback(identity="expired", status="CANCELLED"))


def test_of_two_rows_with_one_transaction_the_later_is_in_doubt(old_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Journal(old_url) as journal:
        assert found(journal, "z: first of two").state is JournalState.ACCEPTED
        assert found(journal, "a: second of two").state is JournalState.UNKNOWN
    (line,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "'a: second of two'" in line.getMessage()
    assert "shared" in line.getMessage()


@pytest.mark.both_databases
def test_a_process_of_version_1_that_still_runs_cannot_begin_a_payout(old_url: str, old_process: Connection) -> None:
    with Journal(old_url) as journal:
        before = rows(journal)
        for statement, reference in [
            (version_1.BEGIN_PAYOUT, "new"),
            (version_1.BEGIN_PAYOUT, "paid"),
            (version_1.BEGIN_AGAIN, "refused"),
            (version_1.BEGIN_AGAIN, "not sent"),
        ]:
            with pytest.raises(DBAPIError):
                old_process.execute(statement, version_1.row(reference, claim="new"))
        with pytest.raises(DBAPIError):
            old_process.execute(version_1.ACCEPT, {"reference": "died", "transaction_id": "t"})
        assert rows(journal) == before
        # It can read what was paid, and handle callbacks.
        row = old_process.execute(version_1.SELECT, {"reference": "released and paid"}).mappings().one()
        expected = next(each for each in version_1.ROWS if each["reference"] == "released and paid")
        assert dict(row) == expected
        handled = {"transaction_id": "seen by 1", "status": "SUCCESS", "handled": True, "lease_until": 0.0}
        old_process.execute(version_1.SEE_CALLBACK, {**handled, "seen_at": "", "claim": "", "sender": "0"})
        assert not journal.first_seen(callback(identity="seen by 1"))


@pytest.mark.parametrize("fresh", [False, True])
def test_a_process_of_version_1_that_starts_later_fails(url: str, *, fresh: bool) -> None:
    if not fresh:
        version_1.make(url)
    with Journal(url) as journal:
        journal.get("r")
        before = rows(journal)
        with version_1.connected(url) as connection:
            for _ in range(2):
                with pytest.raises(DBAPIError):
                    version_1.start(connection)
                with pytest.raises(DBAPIError):
                    connection.execute(version_1.BEGIN_PAYOUT, version_1.row("new"))
            assert versions(connection) == [2]
        assert rows(journal) == before
    with Journal(url) as later:
        assert rows(later) == before


@pytest.mark.both_databases
def test_many_processes_migrate_at_once(old_url: str) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(sender(old_url, "race", f"r{number}")) for number in range(3)]
        for other in others:
            other.go()
        assert [other.says() for other in others] == ["held"] * 3
    with Journal(old_url) as journal:
        assert len(rows(journal)) == len(version_1.ROWS) + 3


@pytest.mark.parametrize("statement", [1, 6, 11, 13])
def test_a_migration_that_is_killed_leaves_version_1_whole(old_url: str, statement: int) -> None:
    """The process is killed by a signal that it sends itself just before its n-th change."""
    with sender(old_url, "killed before", str(statement)) as process:
        said = process.says()
        process.process.wait(30)
    assert said == ""  # else it came to an end, and there are fewer statements
    with version_1.connected(old_url) as connection:
        assert versions(connection) == [1]
        kept = connection.exec_driver_sql("SELECT * FROM momopay_payouts ORDER BY reference").mappings().all()
        assert [dict(row) for row in kept] == sorted(version_1.ROWS, key=lambda row: str(row["reference"]))
    with Journal(old_url) as journal:
        assert len(rows(journal)) == len(version_1.ROWS)


@pytest.mark.parametrize("version", [0, 3, 99])
def test_another_version_is_refused(journal: Journal, url: str, version: int) -> None:
    execute(journal, f"UPDATE momopay_journal SET version = {version}")
    with Journal(url) as later, pytest.raises(ConfigurationError, match=f"version {version}"):
        later.get("r")


def test_tables_without_their_version_are_refused(old_url: str, url: str) -> None:
    with version_1.connected(old_url) as connection:
        for statement in ("DELETE FROM momopay_journal", "DROP TABLE momopay_journal"):
            connection.exec_driver_sql(statement)
            with Journal(url) as journal, pytest.raises(ConfigurationError, match="not its version"):
                journal.get("r")


def test_other_tables_beside_the_journal_are_left_alone(url: str) -> None:
    with version_1.connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE momopay_orders (id INTEGER)")
        with Journal(url) as journal:
            assert journal.get("r") is None
        connection.exec_driver_sql("SELECT id FROM momopay_orders")


@pytest.mark.both_databases
def test_without_create_a_database_without_a_journal_is_refused(url: str) -> None:
    with Journal(url, create=False) as journal:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="create=False"):
                journal.get("r")
    with Journal(url) as journal:
        journal.get("r")
    with Journal(url, create=False) as again:
        assert again.get("r") is None


def test_without_create_a_journal_of_version_1_is_migrated(old_url: str) -> None:
    with Journal(old_url, create=False) as journal:
        assert found(journal, "paid").state is JournalState.ACCEPTED


@pytest.mark.both_databases
def test_two_rows_cannot_be_accepted_with_one_transaction(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, "one")
        begin(journal, lease, "two")
    accept = "UPDATE momopay_payments SET state = 'ACCEPTED', transaction_id = 't' WHERE reference = '{}'"
    execute(journal, accept.format("one"))
    with pytest.raises(JournalError, match="IntegrityError"):
        execute(journal, accept.format("two"))
    execute(journal, "UPDATE momopay_payments SET transaction_id = 't' WHERE reference = 'two'")
    assert payments_of(journal).get("two") is not None


def test_a_human_can_read_a_file_of_version_2(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal, lease_of(journal) as lease:
        begin(journal, lease, "SALARY-7")
    with closing(sqlite3.connect(tmp_path / "payouts.db")) as other:
        row = other.execute("SELECT account, kind, reference, amount, phone, state FROM momopay_payments").fetchone()
    assert row == ("default", "PAYOUT", "SALARY-7", "10", PHONE, "SENDING")


def test_references_that_version_2_refuses_are_found_by_what_they_look_like(old_url: str) -> None:
    with version_1.connected(old_url) as old:
        for reference in ("SP ", "no\u00a0break", "Jose\u0301", "zero\u200bwidth", "as it should be"):
            old.execute(version_1.BEGIN_PAYOUT, version_1.row(reference, "ACCEPTED"))
    with Journal(old_url) as journal:
        payments = payments_of(journal)
        found = {each: payments.look_alike(each) for each in ("SP", "no break", "Jos\u00e9", "zerowidth", "other")}
    assert {each: entry and entry.reference for each, entry in found.items()} == {
        "SP": "SP ",
        "no break": "no\u00a0break",
        "Jos\u00e9": "Jose\u0301",
        "zerowidth": "zero\u200bwidth",
        "other": None,
    }
