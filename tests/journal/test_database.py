"""The database as a process uses it: its errors show no secret, and a forked child opens it anew."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from journal.forking import forks, in_a_fork
from journal.kit import PHONE, TESTS, begin, execute, found, lease_of, put, record
from momopay import ConfigurationError, Journal, JournalError, JournalState, RequestValidationError
from test_redaction import shown

pytestmark = pytest.mark.both_databases


def everything(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_a_database_that_is_away_is_reported_without_password_or_phone() -> None:
    with (
        Journal("postgresql+psycopg://me:secret@127.0.0.1:1/d") as journal,
        lease_of(journal) as lease,
        pytest.raises(JournalError, match="OperationalError") as caught,
    ):
        begin(journal, lease)
    error = caught.value
    kinds = [type(each) for each in everything(error)]
    assert kinds[:3] == [JournalError, OperationalError, psycopg.OperationalError]
    # The frames of this test and of its helper hold the phone; a user's would hold what the user wrote.
    assert "secret" not in shown(error)
    assert PHONE not in "".join(f"{each!r} {each}" for each in everything(error))
    assert error.may_have_executed, "an earlier call may have paid"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_statement_that_fails_is_chained_without_its_values(journal: Journal) -> None:
    put(journal, PHONE, JournalState.UNKNOWN)
    execute(journal, "ALTER TABLE momopay_payments RENAME TO hidden")
    with pytest.raises(JournalError) as caught:
        journal.get(PHONE)
    chain = list(everything(caught.value))
    assert len(chain) >= 3
    assert PHONE not in "".join(f"{each!r} {each}" for each in chain)
    frames = [frame for each in chain[1:] for frame, _line in walk_tb(each.__traceback__)]
    inside = [frame for frame in frames if frame.f_code.co_filename.endswith("prepared.py")]
    assert inside
    assert PHONE not in "".join(str(frame.f_locals) for frame in inside)


def test_text_that_no_database_holds_is_a_journal_error(journal: Journal) -> None:
    with pytest.raises(JournalError, match="text that no database holds") as caught:
        put(journal, f"{PHONE}\ud800", JournalState.NOT_SENT)
    assert isinstance(caught.value.__cause__, UnicodeError)
    assert PHONE not in "".join(f"{each!r} {each}" for each in everything(caught.value))


def test_a_closed_journal_is_not_used(journal: Journal) -> None:
    journal.get("r")
    journal.close()
    with pytest.raises(ConfigurationError, match="closed"):
        journal.get("r")
    journal.close()


@forks
def test_a_forked_child_is_a_process_of_its_own(journal: Journal) -> None:
    def child() -> None:
        with lease_of(journal) as own:
            assert begin(journal, own, "of the child") is None
            assert found(journal, "of the parent").state is JournalState.SENDING
            record(journal, own, JournalState.ACCEPTED, "of the child")

    with lease_of(journal) as lease:
        begin(journal, lease, "of the parent")
        assert in_a_fork(child) == 0
        assert found(journal, "of the parent").state is JournalState.SENDING
        record(journal, lease, JournalState.ACCEPTED, "of the parent")
    for reference in ("of the child", "of the parent"):
        assert found(journal, reference).state is JournalState.ACCEPTED


@forks
def test_a_child_records_nothing_of_its_parents_call(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)
        assert in_a_fork(lambda: record(journal, lease, JournalState.NOT_SENT)) == 0
        assert found(journal).state is JournalState.SENDING


@forks
def test_a_child_that_closes_the_journal_leaves_its_parent_alive(journal: Journal, url: str) -> None:
    with Journal(url) as elsewhere, lease_of(journal) as lease:
        begin(journal, lease)
        assert in_a_fork(journal.close) == 0
        assert found(elsewhere).state is JournalState.SENDING
        with pytest.raises(RequestValidationError, match="is being sent"):
            elsewhere.release("r")
        assert found(journal).state is JournalState.SENDING


@forks
def test_a_lock_that_another_thread_held_does_not_stop_a_child(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        put(journal, "r", JournalState.UNKNOWN)
        with journal._database._own.lock:
            assert in_a_fork(lambda: found(journal)) == 0


@forks
def test_a_child_in_another_folder_has_its_parents_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Journal("sqlite:///payouts.db") as journal:

        def child() -> None:
            os.chdir(tmp_path / "there")
            put(journal, "of the child", JournalState.ACCEPTED)

        assert in_a_fork(child) == 0
        assert found(journal, "of the child").state is JournalState.ACCEPTED
    assert list((tmp_path / "there").iterdir()) == []


READ = """
import sys
from journal.kit import found
from momopay import Journal
with Journal(sys.argv[1]) as journal:
    for reference in ("before", "after"):
        found(journal, reference)
"""


@forks
def test_what_a_child_commits_outlasts_its_parents_journal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'payouts.db'}"
    forked = multiprocessing.get_context("fork")
    written, closed = forked.Event(), forked.Event()
    journal = Journal(url)
    put(journal, "of the parent", JournalState.ACCEPTED)

    def child() -> None:
        put(journal, "before", JournalState.ACCEPTED)
        written.set()
        assert closed.wait(30)
        put(journal, "after", JournalState.ACCEPTED)
        subprocess.run([sys.executable, "-c", READ, url], cwd=TESTS, check=True)

    process = forked.Process(target=child)
    process.start()
    assert written.wait(30)
    journal.close()
    closed.set()
    process.join(30)
    assert process.exitcode == 0
