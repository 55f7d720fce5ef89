"""A backup is the journal of one moment, whoever writes meanwhile, and never half a file."""

import stat
import threading
from pathlib import Path

import pytest

from journal.kit import (
    COLLECTION,
    SENDING,
    UNKNOWN,
    begin,
    callback,
    execute,
    just_before,
    lease_of,
    put,
    put_collection,
    state_of,
    store_of,
)
from momopay import ConfigurationError, Journal, JournalError, RequestValidationError
from momopay.journal.evidence import KeyIdentity
from postgresql import PostgresqlServer

IDENTITY = KeyIdentity.of("pk_test_abc", "https://api.example/v1")


def opened(path: Path, account: str = "default") -> Journal:
    return Journal(f"sqlite:///{path}", account=account, create=False)


def test_a_backup_has_everything_and_overwrites_nothing(url: str, journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    put(journal, "a")
    put_collection(journal, statuses=["FAILED", "SUCCESS"])
    with journal.handling(callback()) as is_first:
        assert is_first
    store_of(journal).check(IDENTITY)
    store_of(journal).accounts.learn(IDENTITY, "tenant")
    with Journal(url, account="other") as other, lease_of(other) as lease:
        assert begin(other, lease, "b")
        journal.backup(path)
        assert state_of(other, "b") is SENDING
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    for taken in (path, tmp_path):
        with pytest.raises(RequestValidationError):
            journal.backup(taken)
    assert path.read_bytes() == content
    assert {each.name for each in tmp_path.iterdir() if "copy" in each.name} == {"copy.db"}
    with opened(path) as copy:
        assert list(copy.entries()) == list(journal.entries())
        assert copy.get("o", COLLECTION) is not None
        with copy.handling(callback()) as is_first:
            assert not is_first
        assert copy.check() == journal.check()
        with pytest.raises(ConfigurationError):
            store_of(copy).check(KeyIdentity.of("pk_live_abc", "https://api.example/v1"))
        put(copy, "c")
    with opened(path, account="other") as copy:
        assert state_of(copy, "b") is UNKNOWN  # its sender is not alive in the copy
    assert journal.get("c") is None


def test_a_backup_that_fails_leaves_nothing(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(journal, "a")
    with pytest.raises(JournalError):
        journal.backup(tmp_path / "nowhere" / "copy.db")
    put(journal, "b")

    def fail() -> None:
        raise OSError("the disk is full")

    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    statement = "VACUUM" if "sqlite" in repr(journal) else "SELECT momopay_transactions"
    with pytest.raises(JournalError), just_before(statement, journal, fail):
        journal.backup(tmp_path / "copy.db")
    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        journal.backup(tmp_path / "copy.db")
    assert [each.name for each in tmp_path.iterdir() if "copy" in each.name] == []


def test_a_backup_is_of_one_moment_while_others_write(url: str, journal: Journal, tmp_path: Path) -> None:
    """A writer adds a payout, then its transaction: a copy never has one whose payout is missing."""
    put(journal, "0")
    done, written = threading.Event(), [0]

    def write() -> None:
        with Journal(url) as other:
            while not done.is_set():
                written[0] += 1
                put(other, str(written[0]))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            before = written[0]
            journal.backup(tmp_path / f"{number}.db")
            while written[0] == before:  # nobody waits for the backup for long
                done.wait(0.01)
    finally:
        done.set()
        writer.join()
    for number in range(3):
        with opened(tmp_path / f"{number}.db") as copy:
            rows = [each[0] for each in execute(copy, "SELECT reference FROM momopay_payments")]
            made = [each[0] for each in execute(copy, "SELECT reference FROM momopay_transactions")]
        assert set(made) <= set(rows)
        assert sorted(map(int, rows)) == list(range(len(rows)))
        assert len(rows) - len(made) in {0, 1}


def test_what_a_server_gets_while_it_is_copied_is_in_no_table(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url = postgresql.new_schema()
    with Journal(url) as journal, Journal(url) as other:
        put_collection(journal)
        with just_before("SELECT momopay_transactions", journal, lambda: put(other, "late")):
            journal.backup(tmp_path / "copy.db")
    with opened(tmp_path / "copy.db") as copy:
        assert [entry.transaction_ids for entry in copy.entries()] == [("o-0",)]
        assert len(execute(copy, "SELECT * FROM momopay_transactions")) == 1
