"""SQLite: commits are on disk, also after an interrupt; files are private; and lock files show who is alive."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from journal.forking import forks, in_a_fork
from journal.kit import begin, found, in_threads, just_before, lease_of, put, sender
from momopay import ConfigurationError, Journal, JournalError, JournalState
from momopay.journal import bounds
from momopay.journal.sqlite import SqliteDatabase


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "payouts.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_database_that_ends_with_the_process_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="outlives the process"):
        Journal(url)


def test_commits_wait_for_the_disk(journal: Journal) -> None:
    with journal._database.connection() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # some interrupts hit a finaliser
@pytest.mark.parametrize("event", ["call", "return"])
def test_what_is_written_after_an_interrupt_is_committed(path: Path, url: str, event: str) -> None:
    """SQLite commits nothing while a statement that writes is open, and an error that is kept keeps it open."""
    kept: list[BaseException] = []
    for moment in count(step=29):
        with Journal(url) as journal:
            put(journal, f"interrupted {moment}", JournalState.UNKNOWN)
            fired: list[int] = []
            try:
                with interrupted(moment, event, fired):
                    journal.release(f"interrupted {moment}")
            except (KeyboardInterrupt, AssertionError, JournalError) as error:  # the others as an interrupt passes
                kept.append(error)
            if not fired:
                break
            put(journal, f"after {moment}", JournalState.ACCEPTED)
            with closing(sqlite3.connect(path)) as other:
                states = dict(other.execute("SELECT reference, state FROM momopay_payments"))
            assert f"after {moment}" in states, [traceback.format_exception(each)[-6:] for each in kept[-1:]]
    assert len(kept) > 10
    kept.clear()
    gc.collect()  # what an interrupt left open is closed here, and not in another test
    assert bounds.seconds_left() == bounds.LONGEST_WAIT


@contextmanager
def interrupted(moment: int, event: str, fired: list[int]) -> Generator[None]:
    """Interrupt at the n-th time that a function of SQLAlchemy or of the journal begins, or ends."""
    left = moment

    def trace(frame: FrameType, happened: str, _argument: object) -> Any:
        nonlocal left
        file = frame.f_code.co_filename
        # A tracer that raises ends a generator without its `finally`, which no signal does: a bound would never end.
        if not ("sqlalchemy" in file or "/momopay/journal/" in file) or file == bounds.__file__:
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
def test_only_the_owner_reads_the_phones_in_a_new_journal(journal: Journal, path: Path) -> None:
    with journal._database.connection():
        files = [path, *path.parent.glob("payouts.db-*")]
        assert len(files) > 1
        assert {each.stat().st_mode & 0o077 for each in files} == {0}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_a_file_that_exists_keeps_its_mode(path: Path, url: str) -> None:
    path.touch(mode=0o640)
    with Journal(url) as journal:
        journal.get("r")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_no_database_is_a_journal_error(path: Path, journal: Journal) -> None:
    path.write_text("these are no payouts" * 100)
    with pytest.raises(JournalError, match="not a database"):
        journal.get("r")


def test_a_folder_that_does_not_exist_is_a_journal_error(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'no' / 'payouts.db'}") as journal, pytest.raises(JournalError):
        journal.get("r")


def test_a_dead_process_leaves_no_files(path: Path, url: str, journal: Journal) -> None:
    with sender(url) as other:
        assert other.says() == "held"
        other.kill()
    assert found(journal).state is JournalState.UNKNOWN
    journal.close()
    assert {file.name for file in path.with_name("payouts.db-senders").iterdir()} == {"set-up.lock", "README"}


def test_one_file_by_two_names_is_one_journal(tmp_path: Path, path: Path, journal: Journal) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with Journal(f"sqlite:///{link}") as by_link, lease_of(journal) as lease:
        begin(journal, lease)
        assert found(by_link).state is JournalState.SENDING


def test_a_process_whose_lock_file_was_deleted_registers_again(path: Path, url: str, journal: Journal) -> None:
    with Journal(url) as elsewhere, lease_of(journal) as lease:
        begin(journal, lease, "before")
        shutil.rmtree(path.with_name("payouts.db-senders"))
        assert found(elsewhere, "before").state is JournalState.UNKNOWN  # it looks as if its process had died
        begin(journal, lease, "after")
        assert found(elsewhere, "before").state is JournalState.SENDING
        assert found(elsewhere, "after").state is JournalState.SENDING


def test_threads_that_register_at_once_get_one_id(path: Path) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for number in range(10):
            with Journal(f"sqlite:///{path.with_name(str(number))}") as journal:
                journal.get("r")
                database = journal._database._own.database
                assert isinstance(database, SqliteDatabase)
                assert len(set(in_threads(8, database.register_process))) == 1
    finally:
        sys.setswitchinterval(before)


def senders(path: Path) -> Path:
    return path.with_name(path.name + "-senders")


def replace(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


def cut(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize(("lose", "why"), [(cut, "is empty"), (Path.unlink, "is gone"), (replace, "was replaced")])
def test_a_process_notices_that_its_file_is_lost(
    path: Path, journal: Journal, lose: Callable[[Path], object], why: str
) -> None:
    put(journal, "paid", JournalState.ACCEPTED)
    lose(path)
    for _ in range(2):
        with pytest.raises(JournalError, match=f"{why}.*restore"):
            journal.get("paid")
        with pytest.raises(JournalError, match=why), lease_of(journal) as lease:
            begin(journal, lease, "paid")


@pytest.mark.parametrize(("lose", "why"), [(cut, "is empty"), (Path.unlink, "is gone"), (replace, "was replaced")])
def test_what_was_written_to_a_file_that_was_lost_meanwhile_does_not_count(
    path: Path, journal: Journal, lose: Callable[[Path], object], why: str
) -> None:
    journal.get("r")
    journal._database.register_process()
    with (
        lease_of(journal) as lease,
        just_before("INSERT", journal, lambda: lose(path)),
        pytest.raises(JournalError, match=why),
    ):
        begin(journal, lease)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("lose", [cut, Path.unlink])
def test_a_later_process_takes_no_lost_file_for_a_new_journal(
    path: Path, url: str, lose: Callable[[Path], object], *, create: bool
) -> None:
    with Journal(url) as journal:
        put(journal, "paid", JournalState.ACCEPTED)
    lose(path)
    for _ in range(2):
        with Journal(url, create=create) as later:
            with pytest.raises(JournalError, match=r"empty or gone.*delete"):
                later.get("paid")
            with pytest.raises(JournalError), lease_of(later) as lease:
                begin(later, lease, "paid")


def test_a_file_whose_tables_are_gone_is_no_new_journal(path: Path, url: str) -> None:
    with Journal(url) as journal:
        put(journal, "paid", JournalState.ACCEPTED)
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE something (id INTEGER)")
    for create in (True, False):
        with Journal(url, create=create) as later, pytest.raises(JournalError, match="no journal any more"):
            later.get("paid")


def test_whoever_deletes_the_folder_too_begins_anew(path: Path, url: str) -> None:
    with Journal(url) as journal:
        put(journal, "paid", JournalState.ACCEPTED)
    path.unlink()
    shutil.rmtree(senders(path))
    with Journal(url) as later:
        assert later.get("paid") is None


def test_a_journal_may_be_vacuumed_and_restored_in_place(path: Path, journal: Journal) -> None:
    put(journal, "old", JournalState.ACCEPTED)
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(backup)) as copy:
        other.backup(copy)
        put(journal, "new", JournalState.ACCEPTED)
        other.execute("VACUUM")
        assert found(journal, "new").state is JournalState.ACCEPTED
        copy.backup(other)
    assert found(journal, "old").state is JournalState.ACCEPTED
    assert journal.get("new") is None


def test_a_backup_may_take_the_files_place_between_two_runs(path: Path, url: str) -> None:
    with Journal(url) as journal:
        put(journal, "paid", JournalState.ACCEPTED)
    replace(path)
    with Journal(url, create=False) as later:
        assert found(later, "paid").state is JournalState.ACCEPTED


@pytest.mark.parametrize("content", [None, "", "tables of something else"])
def test_without_create_nothing_is_created(path: Path, url: str, content: str | None) -> None:
    if content == "":
        path.touch()
    elif content is not None:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE something (id INTEGER)")
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with Journal(url, create=False) as journal, pytest.raises(ConfigurationError, match="create=False"):
        journal.get("r")
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


@forks
def test_a_forked_child_notices_it_too(path: Path, journal: Journal) -> None:
    put(journal, "paid", JournalState.ACCEPTED)
    path.unlink()

    def child() -> None:
        with pytest.raises(JournalError, match="empty or gone"):
            journal.get("paid")

    assert in_a_fork(child) == 0
