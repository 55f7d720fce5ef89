"""A journal that went back in time is noticed, by every process that can know it, and by nobody else.

`tests/safety/test_restored_journal` shows what durable calls do then.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from journal.forking import forks, in_a_fork
from journal.kit import REFUSED, begin, engine_of, execute, found, in_threads, just_before, lease_of, put, store_of
from momopay import ConfigurationError, Journal, JournalError, RequestValidationError
from momopay.journal.evidence import KeyIdentity

IDENTITY = KeyIdentity.of("pk_test_a", "https://api.example/v1")


@pytest.fixture
def url(request: pytest.FixtureRequest, url: str) -> str:
    if "path" in request.fixturenames and not url.startswith("sqlite"):
        pytest.skip("of a file")
    return url


@pytest.fixture
def kept(path: Path) -> Path:
    """The small file in which the processes keep how far the journal came."""
    return path.with_name("payouts.db-senders") / "sequence"


def check(journal: Journal) -> None:
    """Check the journal as each durable call does."""
    store_of(journal).check(IDENTITY)


def is_refused(journal: Journal) -> bool:
    """Return whether every use that would pay is refused, and none that only looks."""
    problem: ConfigurationError | None = None
    try:
        check(journal)
    except ConfigurationError as error:
        problem = error
    assert problem is None or ("went back in time" in str(problem) and not problem.may_have_executed)
    assert journal.check().went_back == (None if problem is None else str(problem))
    return problem is not None


def sequence(journal: Journal) -> tuple[int, int]:
    (row,) = execute(journal, "SELECT restored, sequence FROM momopay_journal")
    return row[0], row[1]


def set_back(journal: Journal, number: int = 1) -> None:
    """Lose the newest payments, as a failover to an older standby does."""
    execute(journal, f"UPDATE momopay_journal SET sequence = sequence - {number}")


@pytest.mark.both_databases
def test_each_attempt_that_begins_is_counted(journal: Journal, url: str) -> None:
    for number in range(1, 4):
        put(journal, "r", REFUSED)
        assert sequence(journal) == (0, number)
    with Journal(url, account="another") as another:
        put(another, "r", REFUSED)
    with lease_of(journal) as lease:  # which read another row
        assert begin(journal, lease, read=None) == found(journal)
    assert sequence(journal) == (0, 5)
    assert not is_refused(journal)


@pytest.mark.both_databases
def test_a_process_refuses_what_is_older_than_it_has_seen(journal: Journal) -> None:
    put(journal, "a")
    put(journal, "b")
    set_back(journal)
    for _ in range(2):
        assert is_refused(journal)
    put_again = pytest.raises(ConfigurationError, match="went back")
    with put_again, lease_of(journal) as lease:
        begin(journal, lease, "c")
    assert journal.get("c") is None
    assert sequence(journal) == (0, 1)


@pytest.mark.both_databases
@pytest.mark.parametrize("number", [1, 2])
def test_what_went_back_since_the_check_is_refused_when_a_payment_begins(journal: Journal, number: int) -> None:
    put(journal, "a")
    put(journal, "b")
    check(journal)
    with (
        lease_of(journal) as lease,
        just_before("BEGIN", journal, lambda: set_back(journal, number)),
        pytest.raises(ConfigurationError, match="2 payments were begun"),
    ):
        begin(journal, lease, "c")
    assert journal.get("c") is None


def test_a_new_process_refuses_an_older_file(url: str, path: Path) -> None:
    with Journal(url) as journal:
        put(journal, "kept")
    shutil.copyfile(path, path.with_name("copy"))
    with Journal(url) as journal:
        put(journal, "lost")
    path.with_name("copy").replace(path)
    with Journal(url) as journal:
        assert is_refused(journal)
        assert [entry.reference for entry in journal.entries()] == ["kept"]


@forks
def test_a_log_that_was_cut_after_a_kill_is_noticed(url: str, path: Path) -> None:
    def child() -> None:
        journal = Journal(url)
        for number in range(5):
            put(journal, f"r{number}")
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_fork(child) == -signal.SIGKILL
    log = path.with_name("payouts.db-wal")
    os.truncate(log, log.stat().st_size * 3 // 4)
    with Journal(url) as journal:
        assert 0 < len(list(journal.entries())) < 5
        assert is_refused(journal)


def test_a_server_that_went_back_is_noticed_by_the_processes_that_have_seen_more(journal: Journal, url: str) -> None:
    """Nothing is kept beside a server: a process that begins later cannot know."""
    put(journal)
    set_back(journal)
    assert is_refused(journal)
    with Journal(url) as later:
        assert is_refused(later) is url.startswith("sqlite")


# Several processes


@contextmanager
def just_after(statement: str, journal: Journal, work: Callable[[], object]) -> Generator[None]:
    """Do something in the moment after the journal's next statement that begins so."""
    pending = [work]

    def listen(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
        if pending and text.startswith(statement):
            pending.pop()()

    engine = engine_of(journal)
    event.listen(engine, "after_cursor_execute", listen)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", listen)
    assert not pending, f"there was no {statement}"


@pytest.mark.both_databases
def test_a_payment_elsewhere_during_the_check_is_no_step_back(journal: Journal, other: Journal) -> None:
    put(journal)
    with just_after("SELECT momopay_journal", journal, lambda: put(other, "elsewhere")):
        check(journal)
    with just_after("SELECT momopay_journal", journal, lambda: in_threads(1, lambda: put(journal, "in a thread"))):
        check(journal)


def test_who_remembers_late_does_not_take_back_what_another_one_remembered(
    journal: Journal, other: Journal, url: str, path: Path
) -> None:
    """This one's commit, the other one's payment, and then what this one remembers."""
    put(journal, "a")
    with just_after("COMMIT", journal, lambda: put(other, "b")):
        put(journal, "c")
    set_back(journal)
    with Journal(url) as later:
        assert is_refused(later)


@pytest.mark.both_databases
def test_many_that_pay_at_once_refuse_nothing(journal: Journal, other: Journal) -> None:
    numbers = iter(range(100))

    def pay() -> None:
        for _ in range(5):
            number = next(numbers)
            at = (journal, other)[number % 2]
            check(at)
            put(at, f"r{number}")

    in_threads(6, pay)
    assert sequence(journal) == (0, 30)
    assert not is_refused(journal)
    assert not is_refused(other)


# The file


@pytest.mark.parametrize("content", [None, b"", b"\0" * 80, b"damaged", b"0 x now", "\u0663".encode("utf-16")])
def test_a_file_that_is_gone_or_damaged_blocks_nothing_and_is_written_anew(
    url: str, kept: Path, content: bytes | None
) -> None:
    with Journal(url) as journal:
        put(journal)
    if content is None:
        kept.unlink()
    else:
        kept.write_bytes(content)
    with Journal(url) as journal:
        assert not is_refused(journal)
        put(journal, "s")
    with Journal(url) as journal:
        set_back(journal)
        assert is_refused(journal)


def test_the_file_says_when_it_was_written_and_only_its_owner_reads_it(journal: Journal, kept: Path) -> None:
    put(journal)
    line = kept.read_text()
    assert len(line) == 80
    assert line.split()[:2] == ["0", "1"]
    if os.name != "nt":
        assert kept.stat().st_mode & 0o077 == 0


def test_a_folder_that_was_deleted_is_made_anew(journal: Journal, kept: Path) -> None:
    put(journal)
    shutil.rmtree(kept.parent)
    check(journal)
    assert kept.exists()


def test_a_file_that_cannot_be_read_is_a_journal_error(url: str, kept: Path) -> None:
    with Journal(url) as journal:
        put(journal)
    kept.unlink()
    kept.mkdir()
    with Journal(url) as journal:
        with pytest.raises(JournalError):
            check(journal)
        with pytest.raises(JournalError):
            journal.accept_restored(by="Njeri")


# A person accepts it


@pytest.mark.both_databases
def test_what_a_person_accepted_is_used_by_all(
    journal: Journal, other: Journal, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(journal, "a")
    put(journal, "b")
    check(other)
    set_back(journal)
    journal.accept_restored(by="Njeri")
    (line,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "Njeri accepted" in line.getMessage()
    assert "momopay reconcile --day 20" in line.getMessage()
    assert sequence(journal) == (1, 2)
    with Journal(url) as later:
        for each in (journal, other, later):
            assert not is_refused(each)
            put(each, f"by {id(each)}")


@pytest.mark.both_databases
def test_who_accepts_a_journal_that_lost_nothing_changes_nothing(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    put(journal)
    for _ in range(2):
        journal.accept_restored(by="Njeri")
    assert sequence(journal) == (0, 1)
    assert caplog.records == []


@pytest.mark.both_databases
def test_a_copy_from_before_the_acceptance_is_refused_whatever_its_sequence(journal: Journal) -> None:
    """The count of restores decides first: what was accepted, and not what came further, is the journal."""
    for reference in ("a", "b", "c"):
        put(journal, reference)
    set_back(journal, 2)
    journal.accept_restored(by="Njeri")
    execute(journal, "UPDATE momopay_journal SET restored = 0, sequence = 99")
    assert is_refused(journal)
    journal.accept_restored(by="Njeri")
    assert sequence(journal) == (2, 3)
    assert not is_refused(journal)


@pytest.mark.parametrize("by", ["", " ", None, 1])
def test_somebody_accepts_it(journal: Journal, by: str) -> None:
    put(journal)
    set_back(journal)
    with pytest.raises(RequestValidationError):
        journal.accept_restored(by=by)
    assert is_refused(journal)


def test_the_days_between_are_named_by_the_calendar_of_nairobi(journal: Journal, kept: Path) -> None:
    put(journal)
    execute(journal, "UPDATE momopay_payments SET sent_at = '2026-11-01T21:30:00.000000+00:00'")  # 00:30 of the 2nd
    set_back(journal)
    os.utime(kept, (1794340800, 1794340800))  # 2026-11-10, 20:00 UTC
    with pytest.raises(ConfigurationError, match="--day 2026-11-02 --last-day 2026-11-10"):
        check(journal)
    execute(journal, "DELETE FROM momopay_payments")
    with pytest.raises(ConfigurationError, match="--day 2026-11-10 --last-day 2026-11-10"):
        check(journal)
