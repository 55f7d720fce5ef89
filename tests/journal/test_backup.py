"""A backup is the journal of one moment, whoever writes meanwhile, and never half a file."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from momopay.journal.identity import KeyIdentity

from journal.kit import begin, callback, execute, found, just_before, lease_of, put, put_collection
from momopay import ConfigurationError, EntryKind, Journal, JournalError, JournalState, RequestValidationError
from momopay.journal.journal import accounts_of
from postgresql import PostgresqlServer

ACCEPTED, UNKNOWN, SENDING = JournalState.ACCEPTED, JournalState.UNKNOWN, JournalState.SENDING
IDENTITY = KeyIdentity.of("pk_test_abc", "https://api.example/v1")


def opened(path: Path, account: str = "default") -> Journal:
    return Journal(f"sqlite:///{path}", account=account, create=False)


def test_a_backup_has_everything(url: str, journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    put(journal, "a", ACCEPTED)
    put_collection(journal, statuses=["FAILED", "SUCCESS"])
    assert journal.first_seen(callback())
    accounts_of(journal).check(IDENTITY)
    accounts_of(journal).learn(IDENTITY, "tenant")
    with Journal(url, account="other") as other, lease_of(other) as lease:
        assert begin(other, lease, "b") is None
        journal.backup(path)
        assert found(other, "b").state is SENDING
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {each.name for each in tmp_path.iterdir() if "copy" in each.name} == {"copy.db"}
    with opened(path) as copy:
        assert list(copy.entries()) == list(journal.entries())
        assert copy.get("o", EntryKind.COLLECTION) is not None
        assert not copy.first_seen(callback())
        assert copy.check() == journal.check()
        with pytest.raises(ConfigurationError):
            accounts_of(copy).check(KeyIdentity.of("pk_live_abc", "https://api.example/v1"))
        put(copy, "c", ACCEPTED)
    with opened(path, account="other") as copy:
        assert found(copy, "b").state is UNKNOWN  # its sender is not alive in the copy
    assert journal.get("c") is None


def test_a_backup_overwrites_nothing(journal: Journal, tmp_path: Path) -> None:
    put(journal, "a", ACCEPTED)
    path = tmp_path / "copy.db"
    path.write_text("mine")
    with pytest.raises(RequestValidationError):
        journal.backup(path)
    assert path.read_text() == "mine"


def test_a_backup_that_fails_leaves_nothing(journal: Journal, tmp_path: Path) -> None:
    put(journal, "a", ACCEPTED)
    with pytest.raises(JournalError):
        journal.backup(tmp_path / "nowhere" / "copy.db")
    put(journal, "b", ACCEPTED)
    execute(journal, "UPDATE momopay_journal SET version = 2")

    def fail() -> None:
        raise OSError("the disk is full")

    statement = "VACUUM" if "sqlite" in repr(journal) else "SELECT momopay_prompts"
    with pytest.raises(JournalError), just_before(statement, journal, fail):
        journal.backup(tmp_path / "copy.db")
    assert [each.name for each in tmp_path.iterdir() if "copy" in each.name] == []


@pytest.mark.both_databases
def test_a_backup_is_of_one_moment_while_others_write(url: str, journal: Journal, tmp_path: Path) -> None:
    """A writer adds a payout, then a prompt with its number: a copy never has a prompt whose payout is missing."""
    put(journal, "0", ACCEPTED)
    done, written = threading.Event(), [0]

    def write() -> None:
        with Journal(url) as other:
            while not done.is_set():
                written[0] += 1
                put(other, str(written[0]), ACCEPTED)
                execute(
                    other,
                    "INSERT INTO momopay_prompts (account, transaction_id, reference, sent_at)"
                    f" VALUES ('default', 'p{written[0]}', '{written[0]}', '')",
                )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            before = written[0]
            journal.backup(tmp_path / f"{number}.db")
            while written[0] == before:  # nobody waits for the backup for long
                done.wait(0.01)
    finally:
        done.set()
        writer.join()
    for number in range(5):
        with opened(tmp_path / f"{number}.db") as copy, copy._database.connection() as connection:
            rows = connection.exec_driver_sql("SELECT reference FROM momopay_payments").scalars().all()
            prompts = connection.exec_driver_sql("SELECT reference FROM momopay_prompts").scalars().all()
        assert set(prompts) <= set(rows)
        assert sorted(map(int, rows)) == list(range(len(rows)))
        assert len(rows) - len(prompts) in {1, 2}


def test_what_a_server_gets_while_it_is_copied_is_in_no_table(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    with Journal(postgresql.new_schema()) as journal:
        put_collection(journal)
        with just_before("SELECT momopay_prompts", journal, lambda: put_collection(journal, "late")):
            journal.backup(tmp_path / "copy.db")
    with opened(tmp_path / "copy.db") as copy, copy._database.connection() as connection:
        assert [entry.reference for entry in copy.entries()] == ["o"]
        assert connection.exec_driver_sql("SELECT reference FROM momopay_prompts").scalars().all() == ["o"]
