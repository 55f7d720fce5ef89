"""SQLite across a fork: a file that was open is refused in the child, and no other one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journal.kit import forks, found, in_a_fork, put
from momopay import Journal, JournalError, JournalState
from momopay.journal.sqlite_fork import marked_open


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "payouts.db"


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


def test_a_process_has_one_file_open_many_times() -> None:
    with marked_open("/payouts.db"), marked_open("/payouts.db"):
        pass
    with marked_open("/payouts.db"):
        pass


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="lists the open files of a process on Linux")
def test_no_file_is_open_at_rest(path: Path) -> None:
    with Journal(f"sqlite:///{path}") as journal:
        put(journal, "r", JournalState.UNKNOWN)
        files = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert [each for each in files if each.startswith(str(path)) and "-senders" not in each] == []
