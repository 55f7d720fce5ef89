"""SQLite: commits are on disk, files are private, locks are waited for in time, and lock files show who is alive."""

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from io import FileIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from forked import in_a_fork
from in_turn import in_turn
from journal.constants import ACCEPTED, NOT_SENT, SENDING, UNKNOWN
from journal.database_kit import (
    BOUND,
    another_process,
    engine_of,
    execute,
    just_before,
    locked,
    refused_in_time,
    store_of,
)
from journal.kit import begin, found, lease_of, put, sender, state_of
from journal.records import callback
from momopay import ConfigurationError, Journal, JournalError
from momopay.journal import sqlite
from momopay.journal.sqlite import SqliteDatabase, TrackedConnection


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_database_that_ends_with_the_process_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="outlives the process"):
        Journal(url)


def test_commits_wait_for_the_disk(url: str) -> None:
    with Journal(url) as journal:
        assert execute(journal, "PRAGMA journal_mode") == [("wal",)]
        assert execute(journal, "PRAGMA synchronous") == [(2,)]  # FULL


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_only_the_owner_reads_the_phones_in_a_new_journal(url: str, path: Path) -> None:
    with Journal(url) as journal, store_of(journal).database.connection():
        files = [path, *path.parent.glob("payouts.db-*")]
        assert len(files) > 1
        assert {each.stat().st_mode & 0o077 for each in files} == {0}
    there = path.with_name("there.db")
    there.touch(mode=0o640)
    with Journal(f"sqlite:///{there}") as journal:
        journal.get("r")
    assert there.stat().st_mode & 0o777 == 0o640, "a file that exists keeps its mode"


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("notes.txt", r"journal notes\.txt cannot .* not a database"),
        ("nowhere/payouts.db", r"nowhere.payouts\.db"),
        (".", r"journal \. cannot be opened"),  # which has several links, and no second name
    ],
)
def test_what_can_be_no_journal_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str, *, create: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("these are no payouts" * 100)
    with Journal(f"sqlite:///{name}", create=create) as journal:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=problem) as caught:
                journal.get("r")
            assert (caught.value.may_have_executed, "-senders" in str(caught.value)) == (False, False)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


@in_turn("name", ["a\0b", "\0", "\ud800", "", "link"])
def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    link = tmp_path / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(link)
    url: Any = URL.create("sqlite", database=f"{tmp_path}/{name}")  # as Django makes it
    with pytest.raises(ConfigurationError), Journal(url) as journal:
        journal.get("r")


def test_a_dead_process_leaves_no_files(path: Path, url: str, journal: Journal) -> None:
    with sender(url):
        assert state_of(journal) is SENDING
    assert state_of(journal) is UNKNOWN
    assert (
        path.with_name("payouts.db-senders") / f"{store_of(journal).database.shared.register_process()}.lock"
    ).exists()
    journal.close()
    assert {file.name for file in path.with_name("payouts.db-senders").iterdir()} == {
        "README",
        "sequence-37a8eec1ce19687d",
    }


def test_one_file_by_two_names_is_one_journal(tmp_path: Path, path: Path, journal: Journal) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with Journal(f"sqlite:///{link}") as by_link, lease_of(journal) as lease:
        begin(journal, lease)
        assert state_of(by_link) is SENDING


def test_a_process_whose_lock_file_was_deleted_registers_again(path: Path, url: str, journal: Journal) -> None:
    with another_process(url) as elsewhere, lease_of(journal) as lease:
        begin(journal, lease, "before")
        shutil.rmtree(path.with_name("payouts.db-senders"))
        assert state_of(elsewhere, "before") is UNKNOWN  # it looks as if its process had died
        begin(journal, lease, "after")
        assert state_of(elsewhere, "before") is SENDING
        assert state_of(elsewhere, "after") is SENDING


def test_a_call_goes_on_if_its_journal_is_closed_meanwhile(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = sqlite._lock

    def close_first(file: FileIO) -> None:
        monkeypatch.undo()
        journal.close()
        lock(file)

    monkeypatch.setattr(sqlite, "_lock", close_first)
    with journal.handling(callback()) as is_first:
        assert is_first


def test_an_interrupted_look_keeps_no_dead_process_alive(
    path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = sqlite._lock

    def struck(file: FileIO) -> None:
        lock(file)
        raise KeyboardInterrupt

    with store_of(journal).database.connection() as connection, another_process(f"sqlite:///{path}") as other:
        (path.with_name("payouts.db-senders") / "dead.lock").touch()
        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "_lock", struck)
            with pytest.raises(KeyboardInterrupt) as _kept:
                store_of(journal).database.shared.is_alive("dead", connection)
        assert not store_of(other).database.shared.is_alive("dead", connection)


def test_a_hard_link_is_a_second_name_and_refused(path: Path, journal: Journal) -> None:
    put(journal)
    link = path.with_name("link.db")
    link.hardlink_to(path)
    with Journal(f"sqlite:///{link}") as by_link:
        for each in (journal, by_link):
            with pytest.raises(ConfigurationError, match="second name, a hard link: remove it"):
                each.get("r")
    link.unlink()
    assert found(journal).reference == "r"


def test_a_file_beside_which_sqlite_can_write_nothing_is_named(path: Path, journal: Journal) -> None:
    put(journal)
    journal.close()
    path.with_name(f"{path.name}-shm").mkdir()  # as in a folder that this user must not write to
    with pytest.raises(ConfigurationError, match="cannot be opened") as caught, Journal(f"sqlite:///{path}") as again:
        again.get("r")
    assert f"{path} cannot be opened" in str(caught.value)


@pytest.mark.whole
def test_a_file_that_is_mounted_by_itself_has_a_second_name_and_is_refused(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this user must not mount")
    path = tmp_path / "a folder" / "payouts.db"
    path.parent.mkdir()
    with Journal(f"sqlite:///{path}") as journal:
        assert journal.get("r") is None
    use = "import sys; from momopay import Journal; Journal(f'sqlite:///{sys.argv[1]}').get('r')"
    mount = 'mount --bind "$1" "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "-rm", "sh", "-c", mount, "sh", str(path), sys.executable, use]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "second name, a mount of this file alone" in done.stderr


def replace(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


def cut(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize(("lose", "why"), [(cut, "is empty"), (Path.unlink, "is missing"), (replace, "was replaced")])
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_lost_file_is_noticed(
    path: Path, journal: Journal, lose: Callable[[Path], object], why: str, meanwhile: bool
) -> None:
    """What was written to a file that was lost meanwhile does not count."""
    put(journal, "paid")
    with ExitStack() as stack:
        if meanwhile:
            stack.enter_context(just_before("INSERT", journal, lambda: lose(path)))
        else:
            lose(path)
        with lease_of(journal) as lease, pytest.raises(JournalError, match=f"{why}.*-wal and -shm.*restore"):
            begin(journal, lease, "new", read=None)
    for _ in range(2):
        with pytest.raises(JournalError, match=f"{why}.*-wal and -shm.*restore"):
            journal.get("paid")


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("lose", [cut, Path.unlink])
def test_no_lost_file_is_taken_for_a_new_journal(
    path: Path, url: str, lose: Callable[[Path], object], *, create: bool
) -> None:
    """A backup may take its place between two runs; and whoever deletes the folder too begins anew."""
    with Journal(url) as journal:
        put(journal, "paid")
    replace(path)
    with Journal(url, create=create) as later:
        assert state_of(later, "paid") is ACCEPTED
    lose(path)
    for _ in range(2):
        with Journal(url, create=create) as later:
            with pytest.raises(JournalError, match=r"empty or missing.*delete"):
                later.get("paid")
            with pytest.raises(JournalError), lease_of(later) as lease:
                begin(later, lease, "paid")
    path.unlink(missing_ok=True)
    shutil.rmtree(path.with_name("payouts.db-senders"))
    with Journal(url) as later:
        assert later.get("paid") is None


def test_a_file_whose_tables_are_gone_is_no_new_journal(path: Path, url: str) -> None:
    with Journal(url) as journal:
        put(journal, "paid")
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE something (id INTEGER)")
    for create in (True, False):
        with Journal(url, create=create) as later, pytest.raises(JournalError, match="no journal any more"):
            later.get("paid")


def test_a_path_that_leads_elsewhere_later_is_refused(tmp_path: Path, path: Path, url: str, journal: Journal) -> None:
    """The old name leads to the same file, but its connections have another write-ahead log."""
    put(journal)
    moved = tmp_path / "moved.db"
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(JournalError, match="symbolic link by now"):
        journal.get("r")


def test_a_relative_path_is_that_of_the_folder_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Journal("sqlite:///here.db") as journal:
        put(journal)
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        assert journal.get("r") is not None
    assert [each.name for each in tmp_path.glob("*.db")] == ["here.db"]


def test_a_link_from_the_beginning_may_stay(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with Journal(f"sqlite:///{link}") as first, Journal(f"sqlite:///{path}") as second:
        put(first)
        assert second.get("r") is not None
        link.unlink()
        with pytest.raises(JournalError, match="symbolic link by now"):
            first.get("r")


def used(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in ("CREATE TABLE x (y)", *statements):
            database.execute(statement)
        database.commit()


def test_a_file_that_is_used_and_has_no_tables_is_no_new_journal(path: Path, url: str) -> None:
    used(path, "DROP TABLE x")
    assert path.stat().st_size > 0
    with Journal(url) as journal, pytest.raises(JournalError, match="is in use, and has no tables"):
        journal.get("r")
    assert not path.with_name(path.name + "-senders").exists()


def test_a_creation_that_died_is_finished_and_a_shops_own_file_may_have_a_journal(path: Path, url: str) -> None:
    used(path, "DROP TABLE x")
    path.with_name(path.name + "-senders").mkdir()  # made before the file is written
    with Journal(url) as journal:
        put(journal)
    for each in path.parent.glob(f"{path.name}*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    used(path)
    with Journal(url) as journal:
        put(journal)
        assert journal.get("r") is not None


def test_a_journal_may_be_vacuumed_and_restored_in_place(path: Path, journal: Journal) -> None:
    put(journal, "old")
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(backup)) as copy:
        other.backup(copy)
        put(journal, "new")
        other.execute("VACUUM")
        assert state_of(journal, "new") is ACCEPTED
        copy.backup(other)
    assert state_of(journal, "old") is ACCEPTED
    assert journal.get("new") is None


# Locks


def test_a_locked_file_is_refused_in_time_and_written_when_it_is_free(url: str, journal: Journal) -> None:
    """A short bound does not stay with the connection: later it waits longer again."""
    journal.get("r")
    with locked(url) as other:
        with refused_in_time():
            put(journal, "locked")
        assert journal.get("locked") is None  # who only reads does not wait
        timer = threading.Timer(2 * BOUND, other.execute, ["COMMIT"])
        timer.start()
        put(journal, "free")
        timer.join()
    assert journal.get("locked") is None


def test_a_file_in_another_journal_mode_that_is_locked(path: Path, url: str, journal: Journal) -> None:
    """Without the write-ahead log, a lock stops readers and new connections, too."""
    journal.get("r")
    engine_of(journal).dispose()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN EXCLUSIVE")
        with refused_in_time():
            journal.get("r")
        with another_process(url) as new, refused_in_time():
            new.get("r")
        other.execute("COMMIT")
        other.execute("BEGIN IMMEDIATE")  # as one that switches at the same moment: SQLite does not wait
        timer = threading.Timer(BOUND, other.execute, ["COMMIT"])
        timer.start()
        with another_process(url) as new:
            assert new.get("r") is None
        timer.join()


# Forks: a file that was open is refused in the child, and no other one


def test_a_child_refuses_a_file_that_was_open_when_it_was_forked(path: Path, url: str, journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    with another_process(url) as another_of_the_file:

        def child() -> None:
            with another_process(url) as new:
                for each in (journal, another_of_the_file, new) * 2:
                    with pytest.raises(JournalError, match="forked while"):
                        each.get("r")
            with Journal(f"sqlite:///{path.with_name('other.db')}") as other:
                put(other, "r", NOT_SENT)

        with store_of(journal).database.connection():
            assert in_a_fork(child) == 0
        assert state_of(journal) is UNKNOWN


def test_a_connection_that_was_dropped_keeps_no_child_from_the_file(path: Path, journal: Journal) -> None:
    put(journal)
    connections = [TrackedConnection(str(path)) for _ in range(2)]
    connections.pop().close()
    connections.clear()
    gc.collect()  # a connection and its cache of statements refer to each other
    assert in_a_fork(lambda: found(journal)) == 0


def test_a_child_keeps_no_dead_parent_alive(journal: Journal) -> None:
    forked = get_context("fork")
    begun = forked.Event()
    backend = store_of(journal).database.shared
    assert isinstance(backend, SqliteDatabase)
    parent = store_of(journal).database.shared.register_process()

    def live() -> None:
        begun.set()
        time.sleep(60)

    child = forked.Process(target=live)
    child.start()
    try:
        assert begun.wait(30)
        with store_of(journal).database.connection() as connection:
            assert backend.is_alive(parent, connection)
            backend.release_locks()  # as its death does
            assert not backend.is_alive(parent, connection)
    finally:
        child.kill()
        child.join()


def test_what_a_child_commits_outlasts_its_parents_journal(url: str) -> None:
    forked = get_context("fork")
    written, closed = forked.Event(), forked.Event()
    journal = Journal(url)
    put(journal, "of the parent")

    def child() -> None:
        put(journal, "before")
        written.set()
        assert closed.wait(30)
        put(journal, "after")

    process = forked.Process(target=child)
    process.start()
    assert written.wait(30)
    journal.close()
    closed.set()
    process.join(30)
    assert process.exitcode == 0
    with Journal(url) as later:
        assert {entry.reference for entry in later.entries()} == {"of the parent", "before", "after"}
