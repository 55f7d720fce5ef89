"""What the journal asks of each database: that a commit is on disk, and who is alive."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sqlite3
import sys
import traceback
from collections.abc import Generator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from journal.kit import begin, found, put, sender
from momopay import Journal, JournalError, JournalState
from momopay.journal.journal import payments_of
from postgresql import PostgresqlServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "payouts.db"


def test_sqlite_writes_ahead_and_waits_for_the_disk(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.ACCEPTED)
        with journal._database.connection() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # some interrupts hit a finaliser
@pytest.mark.parametrize("event", ["call", "return"])
def test_what_is_written_after_an_interrupt_is_committed(path: Path, event: str) -> None:
    """SQLite commits nothing while a statement that writes is open, and an error that is kept keeps it open."""
    kept: list[BaseException] = []
    moments = count()
    for moment in moments:
        file = path.with_name(f"{moment}.db")
        with Journal(f"sqlite:///{file}") as journal:
            put(journal, "interrupted", JournalState.UNKNOWN)
            fired: list[int] = []
            try:
                with interrupted(moment * 5, event, fired):
                    journal.release("interrupted")
            except (KeyboardInterrupt, AssertionError, JournalError) as error:  # the others on an interrupt's way out
                kept.append(error)
            if not fired:
                break
            put(journal, "r", JournalState.ACCEPTED)
            with closing(sqlite3.connect(file)) as other:
                states = dict(other.execute("SELECT reference, state FROM momopay_payouts"))
            assert states.get("r") == "ACCEPTED", [traceback.format_exception(each)[-6:] for each in kept[-1:]]
    assert len(kept) > 20


@contextmanager
def interrupted(moment: int, event: str, fired: list[int]) -> Generator[None]:
    """Interrupt at the n-th time that a function of SQLAlchemy or of the journal begins, or ends."""
    left = moment

    def trace(frame: FrameType, happened: str, _argument: object) -> Any:
        nonlocal left
        if not ("sqlalchemy" in frame.f_code.co_filename or "/momopay/journal/" in frame.f_code.co_filename):
            return None
        if happened == event:
            left -= 1
            if left < 0:
                sys.settrace(None)
                fired.append(moment)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    gc.disable()  # it would run other tests' finalisers in here
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        gc.enable()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_the_phones_in_a_new_journal_are_its_owners_alone(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.ACCEPTED)
        modes = {each.stat().st_mode & 0o077 for each in (path, *path.parent.glob("payouts.db-*"))}
    assert modes == {0}


def test_a_file_that_is_no_database_is_told(path: Path) -> None:
    path.write_text("these are no payouts" * 100)
    with Journal(f"sqlite:///{path}") as journal, pytest.raises(JournalError, match="not a database"):
        journal.get("r")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'no' / 'payouts.db'}") as journal, pytest.raises(JournalError):
        journal.get("r")


def test_the_dead_leave_no_files(path: Path) -> None:
    url = f"sqlite:///{path}"
    with Journal(url) as journal:
        with sender(url) as other:
            assert other.says() == "held"
            other.kill()
        assert found(journal).state is JournalState.UNKNOWN
    assert [file.name for file in path.with_name("payouts.db-senders").iterdir()] == ["set-up.lock"]


def test_what_a_human_reads_in_the_file_is_plain(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "SALARY-7", JournalState.REFUSED, code="INSUFFICIENT_FUNDS")
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT reference, amount, state, code FROM momopay_payouts").fetchone()
    connection.close()
    assert row == ("SALARY-7", "10", "REFUSED", "INSUFFICIENT_FUNDS")


def _pay_in_a_child(journal: Journal) -> None:
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease, "of the child") is None
        assert found(journal, "of the parent").state is JournalState.SENDING
        payments_of(journal).record_outcome(lease, "of the child", JournalState.ACCEPTED)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # what is tested here
def test_a_forked_child_is_a_sender_of_its_own(journal: Journal) -> None:
    with payments_of(journal).leases.lease() as lease:
        begin(journal, lease, "of the parent")
        child = multiprocessing.get_context("fork").Process(target=_pay_in_a_child, args=(journal,))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert found(journal, "of the parent").state is JournalState.SENDING
        payments_of(journal).record_outcome(lease, "of the parent", JournalState.ACCEPTED)
    assert found(journal, "of the child").state is JournalState.ACCEPTED
    assert found(journal, "of the parent").state is JournalState.ACCEPTED


def test_postgresql_waits_for_the_disk_whatever_its_default(postgresql: PostgresqlServer) -> None:
    url = postgresql.new_database()
    with Journal(url) as journal, journal._database.connection() as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    with Journal(url) as journal, journal._database.connection() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_a_sender_whose_connections_were_cut_is_known_again(postgresql: PostgresqlServer) -> None:
    url = postgresql.new_database()
    with Journal(url) as journal, Journal(url) as elsewhere, payments_of(journal).leases.lease() as lease:
        begin(journal, lease, "before")
        postgresql.disconnect_all()
        assert found(elsewhere, "before").state is JournalState.UNKNOWN  # it cannot be told from a dead one
        assert begin(journal, lease, "after") is None
        assert found(elsewhere, "after").state is JournalState.SENDING
        payments_of(journal).record_outcome(lease, "before", JournalState.ACCEPTED)
    with Journal(url) as later:
        assert found(later, "before").state is JournalState.ACCEPTED
