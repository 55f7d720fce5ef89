"""A backup is the journal of one moment, whoever writes meanwhile, and never half a file; and what lost its phone."""

import hashlib
import hmac
import os
import re
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Text

from journal.constants import ACCEPTED, COLLECTION, NO_TIMES, NOT_SENT, PHONE, REFUSED, SENDING, UNKNOWN
from journal.database_kit import before_each, execute, just_before, store_of
from journal.kit import begin, dated, fill, found, lease_of, put, put_collection, record, state_of
from journal.records import callback
from momopay import ConfigurationError, Journal, JournalError, RequestValidationError
from momopay._core.config import Account
from momopay.journal import sqlite
from momopay.journal.journal import internals
from momopay.journal.schema import metadata
from momopay.journal.sqlite import SqliteDatabase, TrackedConnection

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECRET = "0123456789abcdef0123456789abcdef"
IDENTITY = Account("pk_test_abc", "https://api.example/v1").identity


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
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    for taken in (path, tmp_path, tmp_path / "a\0b"):
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
            store_of(copy).check(replace(IDENTITY, mode="live"))
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


@pytest.mark.both_databases
def test_a_backup_is_of_one_moment_while_others_write(journal: Journal, other: Journal, tmp_path: Path) -> None:
    """Of what a server gets while it is copied, no table has anything."""
    put_collection(journal)
    is_file = "sqlite" in repr(journal)
    statement = "VACUUM" if is_file else "SELECT momopay_transactions"
    with just_before(statement, journal, lambda: put(other, "late")):
        journal.backup(tmp_path / "copy.db")
    with opened(tmp_path / "copy.db") as copy:
        ids = [entry.transaction_ids for entry in copy.entries()]
        assert ids == ([("t-late",), ("o-0",)] if is_file else [("o-0",)])
        assert len(execute(copy, "SELECT * FROM momopay_transactions")) == len(ids)


@pytest.mark.both_databases
def test_phones_of_what_ended_before_are_removed_and_nothing_else(journal: Journal) -> None:
    day, old = timedelta(days=1), NOON - timedelta(days=1)
    for reference, when, state, status in [
        ("paid", old, ACCEPTED, "SUCCESS"),
        ("reversed", old, ACCEPTED, "REVERSED"),
        ("refused", old, REFUSED, None),
        ("not sent", old, NOT_SENT, None),
        ("failed", old, ACCEPTED, "FAILED"),  # comes back yet
        ("open", old, ACCEPTED, None),
        ("unresolved", old, UNKNOWN, None),
        ("new", NOON + day, ACCEPTED, "SUCCESS"),
        ("ended later", NOON + day, ACCEPTED, "SUCCESS"),
        ("refused later", NOON + day, REFUSED, None),
    ]:
        dated(journal, reference, when, state, status)
    late = "WHERE reference IN ('ended later', 'refused later')"
    execute(journal, f"UPDATE momopay_payments SET created_at = '{old.isoformat()}' {late}")
    execute(journal, "UPDATE momopay_payments SET sent_at = created_at WHERE reference = 'ended later'")
    put_collection(journal, "order")
    put_collection(journal, "open order", statuses=["FAILED", "PENDING"])
    put_collection(journal, "paid, and one open", statuses=["SUCCESS", "PENDING"])
    put_collection(journal, "paid, and one unresolved")
    put(journal, "paid, and one unresolved", UNKNOWN, COLLECTION, amount=100)
    execute(journal, """UPDATE momopay_payments SET metadata = '{"name": "Achieng"}'""")
    execute(journal, "UPDATE momopay_transactions SET receipt = 'QK1'")
    execute(journal, "UPDATE momopay_payments SET search_after = 0 WHERE reference = 'not sent'")
    before = {entry.reference: entry for entry in journal.entries()}
    assert journal.anonymise(before=NOON) == 5
    searched = internals(journal).queue.due().searched  # without its phone, that of another payment would fit
    assert {each.state for each in searched} == {UNKNOWN}
    after = {entry.reference: entry for entry in journal.entries()}
    gone = {name for name, entry in after.items() if entry.is_anonymised}
    assert gone == {"paid", "reversed", "refused", "not sent", "order"}
    for name in gone:
        entry = after[name]
        assert (entry.phone, entry.metadata) == ("", None), name
        assert {each.phone for each in entry.transactions} <= {""}, name
        assert entry.receipt == before[name].receipt, name
        assert entry.attempts == before[name].attempts, name
    for name in before.keys() - gone:
        assert after[name] == before[name]
    assert journal.anonymise(before=NOON) == 0


# Columns of text that say nothing of a person: names of ours, of the service and of machines, amounts and times.
STAYS = {
    "momopay_payments": "account kind reference amount state seen_id code created_at sent_at released_by released_at"
    " wire_reference refund_of paid_before claim sender machine",
    "momopay_transactions": "account transaction_id kind reference amount status result_code receipt fee sent_at"
    " ended_at learned_at_service checked_at",
    "momopay_history": "account kind reference service_time what before after transaction_id source by_whom",
    "momopay_deliveries": "account transaction_id claim sender machine",
    "momopay_accounts": "account mode host tenant_id bound_at",
    "momopay_keys": "account key tenant_id scope",
    "momopay_versions": "since",
    "momopay_acceptances": "account at by_whom",
    "momopay_moves": "id place other begun_at done_at undone_at",
}


def test_every_column_that_may_be_of_a_person_is_cleared(journal: Journal) -> None:
    """A new column of text fails here until `anonymise` clears it, or `STAYS` says that it is of no person."""
    dated(journal, "a", NOON - timedelta(days=1), ACCEPTED, "SUCCESS")
    columns = {
        (table.name, column.name)
        for table in metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, Text) and column.name not in STAYS.get(table.name, "").split()
    }
    for table, column in sorted(columns):
        execute(journal, f"""UPDATE {table} SET "{column}" = '{{"name": "Wanjiku"}}'""")
    assert journal.anonymise(before=NOON) == 1
    left = {(table, column): execute(journal, f'SELECT "{column}" FROM {table}') for table, column in columns}
    assert {where: rows for where, rows in left.items() if "Wanjiku" in str(rows)} == {}
    assert ("momopay_transactions", "phone") in columns


def test_what_is_sent_again_meanwhile_keeps_its_phone(journal: Journal) -> None:
    dated(journal, "a", NOON, REFUSED)

    def send_again() -> None:
        with lease_of(journal) as lease:
            assert begin(journal, lease, "a")
            record(journal, lease, REFUSED, "a")

    with just_before("BEGIN", journal, send_again):
        assert journal.anonymise(before=NOON + timedelta(days=1)) == 0
    assert found(journal, "a").phone == PHONE


def test_rows_are_locked_as_a_sweep_locks_them(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the database's order of texts, which is not Python's. SQLite executes it to no effect."""
    monkeypatch.setattr(store_of(journal).database.shared, "locks_rows", True)
    for reference in "aB":
        dated(journal, reference, NOON, status="SUCCESS")
    seen = list[str]()
    with before_each(seen.append, journal):
        assert journal.anonymise(before=NOON + timedelta(days=1)) == 2
    (locks,) = (each for each in seen if each.startswith("SELECT momopay_payments.revision"))
    assert "ORDER BY momopay_payments.reference" in locks


def test_an_empty_secret_is_refused_a_short_one_is_logged(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    dated(journal, "a", NOON, status="SUCCESS")
    for secret in ("", b""):
        with pytest.raises(ConfigurationError):
            journal.anonymise(before=NOON + timedelta(days=1), secret=secret)
    assert journal.anonymise(before=NOON - timedelta(days=1), secret="x" * 15) == 0
    assert "can be guessed" in caplog.text
    caplog.clear()
    assert journal.anonymise(before=NOON - timedelta(days=1), secret="x" * 16) == 0
    assert caplog.records == []
    for wrong in NO_TIMES:
        with pytest.raises(RequestValidationError):
            journal.anonymise(before=wrong)
    assert found(journal, "a").phone == PHONE


def test_a_secret_keeps_the_payments_to_one_phone_together_and_no_file_has_the_phone(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        fill(journal, 300)
        execute(journal, "UPDATE momopay_transactions SET status = 'SUCCESS', ended_at = sent_at")
        assert journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC), secret=SECRET) == 301
        expected = "hmac-sha256:" + hmac.new(SECRET.encode(), PHONE.encode(), hashlib.sha256).hexdigest()
        phones = {phone for entry in journal.entries() for phone in (entry.phone, entry.transactions[0].phone)}
        assert phones == {expected}
        assert PHONE not in repr(found(journal, "first"))
        assert found(journal, "first").is_anonymised
        files = [each for each in path.parent.iterdir() if each.is_file()]
        assert not [each.name for each in files if PHONE.encode() in each.read_bytes()]


class ForgetfulConnection(TrackedConnection):
    """A connection of a SQLite that leaves what is deleted in its file, as before 0.5 outside Debian."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA secure_delete=OFF").close()


def forgetful(_database: SqliteDatabase) -> dict[str, Any]:
    return {"factory": ForgetfulConnection}


def tracked(_database: SqliteDatabase) -> dict[str, Any]:
    return {"factory": TrackedConnection}


def clears_nothing(_database: SqliteDatabase, _connection: object) -> None: ...


def phones_in(folder: Path) -> set[bytes]:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {phone for each in files for phone in re.findall(rb"2547\d{8}", each.read_bytes())}


def with_residue(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a journal of ended payments to many people, by a SQLite that forgets nothing."""
    monkeypatch.setattr(SqliteDatabase, "connect_args", forgetful)
    with Journal(url) as journal:
        fill(journal, 60)
        execute(journal, "UPDATE momopay_payments SET phone = '2547' || (10000000 + rowid)")
        execute(journal, "UPDATE momopay_transactions SET status = 'SUCCESS', ended_at = sent_at")
        execute(journal, "UPDATE momopay_transactions SET phone = '2547' || (10000000 + rowid)")


def test_what_an_earlier_version_left_in_the_file_is_cleared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{path}"
    with_residue(url, monkeypatch)
    ended = datetime(2100, 1, 1, tzinfo=UTC)
    with monkeypatch.context() as without, Journal(url) as journal:  # the control: this SQLite does leave phones
        without.setattr(SqliteDatabase, "clear", clears_nothing)
        assert journal.anonymise(before=ended) == 61
        execute(journal, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert phones_in(path.parent)
    with Journal(url) as journal:
        assert journal.anonymise(before=ended) == 0  # although nothing is to be changed
        assert phones_in(path.parent) == set()
    monkeypatch.setattr(SqliteDatabase, "connect_args", tracked)
    before = path.stat().st_mtime_ns
    with Journal(url) as journal:
        journal.anonymise(before=ended)
        assert path.stat().st_mtime_ns == before  # written anew once only
        execute(journal, "VACUUM")  # as if the file was another one
        assert journal.anonymise(before=ended) == 0
        assert path.stat().st_mtime_ns > before


def test_what_stays_because_others_read_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{path}"
    with_residue(url, monkeypatch)
    monkeypatch.setattr(sqlite, "_READER_WAIT", 1)
    with Journal(url) as journal, closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM momopay_payments").fetchone()
        assert journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) == 61
        assert [each.levelname for each in caplog.records] == ["ERROR"]
        assert "another connection reads" in caplog.text
        reader.rollback()
        caplog.clear()
        assert journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) == 0
    assert caplog.records == []
    assert phones_in(path.parent) == set()


def test_each_connection_overwrites_what_it_deletes(path: Path) -> None:
    executed = list[str]()

    class Recording(TrackedConnection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            executed.append(sql)
            return super().execute(sql, *parameters)

    with closing(Recording(str(path))):
        assert "PRAGMA secure_delete=ON" in executed
