"""SQLite across a fork: a file that was open is refused in the child, and no other one."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from journal.forking import forks, in_a_fork
from journal.kit import found, put
from momopay import Journal, JournalError, JournalState
from momopay.journal import sqlite_fork
from momopay.journal.sqlite_fork import TrackedConnection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "payouts.db"


def open_on(path: Path) -> list[TrackedConnection]:
    return [each for each in sqlite_fork._open if each.path == str(path)]


@forks
def test_a_child_refuses_a_file_that_was_open_when_it_was_forked(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal, Journal(f"sqlite:///{path}") as another_of_the_file:
        put(journal, "r", JournalState.UNKNOWN)

        def child() -> None:
            for each in (journal, another_of_the_file):
                for _ in range(2):
                    with pytest.raises(JournalError, match="forked while"):
                        each.get("r")
            with pytest.raises(JournalError, match="forked while"), Journal(f"sqlite:///{path}") as new:
                new.get("r")
            with Journal(f"sqlite:///{path.with_name('other.db')}") as other:
                put(other, "r", JournalState.NOT_SENT)

        with journal._database.connection():
            assert in_a_fork(child) == 0
        assert found(journal).state is JournalState.UNKNOWN


@forks
def test_a_child_uses_a_file_that_was_at_rest(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.UNKNOWN)
        with pytest.raises(KeyError), journal._database.connection():
            raise KeyError
        assert in_a_fork(lambda: found(journal)) == 0


@forks
def test_no_file_is_open_while_a_process_forks(path: Path) -> None:
    def child() -> None:
        assert not [each for each in sqlite_fork._inherited if each.path == str(path)]

    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.UNKNOWN)
        assert len(open_on(path)) == 1
        assert in_a_fork(child) == 0


def test_a_file_counts_as_open_until_its_connections_are_closed(path: Path) -> None:
    first, second = TrackedConnection(str(path)), TrackedConnection(str(path))
    first.close()
    assert open_on(path) == [second]
    second.close()
    assert open_on(path) == []


def test_a_connection_that_is_dropped_counts_as_closed(path: Path) -> None:
    connection = TrackedConnection(str(path))
    assert len(open_on(path)) == 1
    del connection
    gc.collect()  # a connection and its cache of statements refer to each other
    assert open_on(path) == []
