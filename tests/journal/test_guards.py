"""A journal of another account is refused, and one that went back in time by every process that can know it.

`tests/safety/test_wrong_account` and `test_restored_journal` show what durable calls do then.
"""

import logging
import os
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from journal.constants import PAYOUT, REFUSED
from journal.database_kit import another_process, before_each, execute, in_threads, just_before, store_of
from journal.kit import begin, lease_of, put
from momopay import ConfigurationError, Journal, JournalError, RequestValidationError
from momopay._core.config import Account, KeyIdentity
from momopay.journal import guards
from momopay.journal.guards import Accounts, Mark

HERE = KeyIdentity(mode="live", host="api.example", key="a")
OTHER_KEY = replace(HERE, key="b")


@pytest.fixture
def url(request: pytest.FixtureRequest, url: str) -> str:
    if "path" in request.fixturenames and not url.startswith("sqlite"):
        pytest.skip("of a file")
    return url


@pytest.fixture
def kept(path: Path) -> Path:
    """The small file in which the processes keep how far the account came, by a hash of its name."""
    return path.with_name("payouts.db-senders") / "sequence-37a8eec1ce19687d"


def check(journal: Journal, identity: KeyIdentity = HERE) -> bool:
    """Check the journal as each durable call does; return whether the tenant of the key is known."""
    is_tenant_known = store_of(journal).check(identity)
    store_of(journal).accounts.trust()
    return is_tenant_known


# The account


def accounts_of(journal: Journal) -> Accounts:
    return store_of(journal).accounts


def test_the_first_use_binds_mode_and_host(journal: Journal, url: str) -> None:
    check(journal)
    check(journal, OTHER_KEY)
    with another_process(url) as later:
        check(later)
        for other, named in [
            (replace(HERE, mode="test"), "'live'.*'test'"),
            (replace(HERE, host="h"), "'api.example'.*'h'"),
        ]:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match=named):
                    check(later, other)


@pytest.mark.both_databases
def test_of_two_that_use_it_first_one_binds(journal: Journal, other: Journal) -> None:
    test = replace(HERE, mode="test")
    with (
        just_before("INSERT", journal, lambda: check(other)),
        pytest.raises(ConfigurationError, match=r"'live'.*'test'"),
    ):
        check(journal, test)
    check(journal)
    with pytest.raises(ConfigurationError):
        check(other, test)


def test_a_key_is_asked_for_its_tenant_until_an_answer_shows_one(journal: Journal, url: str) -> None:
    assert not check(journal)
    assert accounts_of(journal).learn(HERE, "ours")
    assert check(journal)
    with another_process(url) as later:
        assert check(later), "another process knows it too"
        assert not check(later, OTHER_KEY)
        assert accounts_of(later).learn(OTHER_KEY, "ours")
        assert check(later, OTHER_KEY)
    with Journal(url, account="shop 2") as other:
        assert not check(other, replace(HERE, mode="test"))
        assert accounts_of(other).learn(replace(HERE, mode="test"), "theirs"), "each name is an account of its own"


def test_a_key_whose_tenant_no_answer_shows_is_asked_once_in_a_process(journal: Journal, url: str) -> None:
    for nothing in (None, ""):
        with another_process(url) as process:
            assert not check(process)
            assert accounts_of(process).learn(HERE, nothing)
            assert check(process)
            assert accounts_of(process).learn(HERE, "ours"), "the first payment shows it"
        execute(journal, "DELETE FROM momopay_keys")


def test_what_was_checked_costs_no_statement(journal: Journal) -> None:
    check(journal)
    assert accounts_of(journal).learn(HERE, "t")
    seen: list[str] = []
    with store_of(journal).database.connection() as connection, before_each(seen.append, journal):
        assert accounts_of(journal).check(connection, HERE)
        assert accounts_of(journal).learn(HERE, "t")
        assert accounts_of(journal).knows(HERE, "t")
        assert accounts_of(journal).knows(HERE, None)
        assert not accounts_of(journal).knows(HERE, "another")
        assert not accounts_of(journal).knows(OTHER_KEY, "t")
    assert seen == []


def test_a_key_of_another_tenant_is_refused_from_then_on_and_the_others_go_on(journal: Journal, url: str) -> None:
    check(journal)
    assert accounts_of(journal).learn(HERE, "ours")
    moved = replace(HERE, key="c")
    assert accounts_of(journal).learn(moved, "ours")
    for key in (OTHER_KEY, moved):
        check(journal, key)
        assert not accounts_of(journal).learn(key, "theirs")
    with another_process(url) as later:
        for each in (journal, later):
            for key in (OTHER_KEY, moved):
                with pytest.raises(ConfigurationError, match=r"'ours'.*'theirs'"):
                    check(each, key)
            assert check(each)
            assert accounts_of(each).learn(HERE, "ours")


def test_no_key_is_kept(journal: Journal) -> None:
    identity = Account("pk_test_secret", "https://api.example/v1").identity
    assert journal.check().mode is None
    check(journal, identity)
    accounts_of(journal).learn(identity, "t")
    assert "secret" not in str(execute(journal, "SELECT * FROM momopay_keys"))
    checked = journal.check()
    assert (checked.account, checked.mode, checked.host, checked.tenant_id) == ("default", "test", "api.example", "t")


# Back in time


def is_refused(journal: Journal) -> bool:
    """Return whether every use that would pay is refused, and none that only looks."""
    problem: ConfigurationError | None = None
    try:
        check(journal)
    except ConfigurationError as error:
        problem = error
    with nullcontext() if problem is None else pytest.raises(ConfigurationError, match="went back in time"):
        store_of(journal).open_call(HERE, PAYOUT, "r")
    assert problem is None or ("went back in time" in str(problem) and not problem.may_have_executed)
    assert journal.check().went_back == (None if problem is None else str(problem))
    return problem is not None


def sequence(journal: Journal) -> tuple[int, int]:
    (row,) = execute(journal, "SELECT restored, sequence FROM momopay_accounts WHERE account = 'default'")
    return row[0], row[1]


def set_back(journal: Journal, number: int = 1) -> None:
    """Lose the newest payments, as a failover to an older standby does."""
    execute(journal, f"UPDATE momopay_accounts SET sequence = sequence - {number}")


def test_each_attempt_that_begins_is_counted(journal: Journal, url: str) -> None:
    for number in range(1, 4):
        put(journal, "r", REFUSED)
        assert sequence(journal) == (0, number)
    with Journal(url, account="another") as another:
        put(another, "r", REFUSED)
    with lease_of(journal) as lease:  # which read another row
        assert not begin(journal, lease, read=None)
    assert sequence(journal) == (0, 4), "another account has a number of its own"
    assert not is_refused(journal)


@pytest.mark.both_databases
def test_a_process_refuses_what_is_older_than_it_has_seen(journal: Journal, url: str) -> None:
    """Nothing is kept beside a server: a process that begins later cannot know."""
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
    with another_process(url) as later:
        assert is_refused(later) is url.startswith("sqlite")
    with another_process(url) as later:
        assert "momopay reconcile" in later.accept_restored(by="Njeri"), "a new process cannot know, and a person can"
        assert later.accept_restored(by="Njeri") == ""
    assert not is_refused(journal)


@pytest.mark.both_databases
def test_it_stays_refused_when_a_process_that_saw_less_raises_the_number(journal: Journal, other: Journal) -> None:
    put(journal, "a")
    put(journal, "b")
    set_back(journal)
    assert is_refused(journal)
    put(other, "c")
    put(other, "d")
    assert is_refused(journal)
    assert "momopay reconcile" in journal.accept_restored(by="Njeri")
    assert not is_refused(journal)


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


# Several processes


@pytest.mark.both_databases
def test_a_journal_without_its_row_is_a_journal_error(journal: Journal) -> None:
    put(journal)
    execute(journal, "DELETE FROM momopay_journal")
    with pytest.raises(JournalError, match="lost"):
        store_of(journal).open_call(HERE, PAYOUT, "r")


def test_a_payment_elsewhere_during_the_check_is_no_step_back(journal: Journal, other: Journal) -> None:
    put(journal)
    for pays in (lambda: put(other, "elsewhere"), lambda: in_threads(1, lambda: put(journal, "in a thread"))):
        with just_before("SELECT momopay_journal", journal, pays, "after"):
            check(journal)


def test_who_remembers_late_takes_nothing_back(journal: Journal, other: Journal, url: str, kept: Path) -> None:
    """This one's commit, a payment of another process or thread, and then what this one remembers."""
    put(journal, "a")
    with just_before("COMMIT", journal, lambda: (put(other, "b"), in_threads(1, lambda: put(journal, "c"))), "after"):
        put(journal, "d")
    set_back(journal)
    with another_process(url) as later:
        assert is_refused(later)
    kept.unlink()
    assert is_refused(journal)


# The file


@pytest.mark.parametrize("content", [None, b"", b"\0" * 80, b"damaged", b"0 x now", "\u0663".encode("utf-16")])
def test_a_lost_or_damaged_file_blocks_nothing_and_is_written_anew(url: str, kept: Path, content: bytes | None) -> None:
    with Journal(url) as journal:
        put(journal)
    if content is None:
        shutil.rmtree(kept.parent)
    else:
        kept.write_bytes(content)
    with Journal(url) as journal:
        assert not is_refused(journal)
        assert kept.exists(), "a check writes it too"
        put(journal, "s")
    with Journal(url) as journal:
        set_back(journal)
        assert is_refused(journal)


def test_two_that_note_at_once_take_nothing_back(
    journal: Journal, other: Journal, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads the file, another one notes more, then the first one writes."""
    put(journal)
    marks, noting = [store_of(each).watermark for each in (journal, other)], list[Thread]()
    read = guards._mark_in

    def interrupted(content: bytes) -> Mark:
        found = read(content)
        if not noting:
            noting.append(Thread(target=marks[1].note, args=(Mark(0, 11),)))
            noting[0].start()
            noting[0].join(0.2)
        return found

    monkeypatch.setattr(guards, "_mark_in", interrupted)
    marks[0].note(Mark(0, 10))
    noting[0].join()
    assert read(kept.read_bytes()) == Mark(0, 11)


def test_the_file_says_when_it_was_written_and_only_its_owner_reads_it(journal: Journal, kept: Path) -> None:
    put(journal)
    line = kept.read_text()
    assert len(line) == 80
    assert line.split()[:2] == ["0", "1"]
    if os.name != "nt":
        assert kept.stat().st_mode & 0o077 == 0


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


def test_what_was_accepted_all_use(
    journal: Journal, other: Journal, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(journal, "a")
    put(journal, "b")
    check(other)
    assert journal.accept_restored(by="Njeri") == "", "it lost nothing"
    set_back(journal)
    days = journal.accept_restored(by="Njeri")
    assert journal.accept_restored(by="Njeri") == ""
    (line,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "Njeri accepted" in line.getMessage()
    assert line.getMessage().endswith(days)
    assert "momopay reconcile --day 20" in days
    assert sequence(journal) == (1, 2)
    with another_process(url) as later:
        for each in (journal, other, later):
            assert not is_refused(each)
            put(each, f"by {id(each)}")


def test_a_copy_from_before_the_acceptance_is_refused_whatever_its_sequence(journal: Journal) -> None:
    """The count of restores decides first: what was accepted, and not what came further, is the journal."""
    for reference in ("a", "b", "c"):
        put(journal, reference)
    set_back(journal, 2)
    journal.accept_restored(by="Njeri")
    execute(journal, "UPDATE momopay_accounts SET restored = 0, sequence = 99")
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


def test_the_days_between_are_named_by_the_calendar_of_nairobi(journal: Journal, other: Journal, kept: Path) -> None:
    put(journal)
    execute(journal, "UPDATE momopay_payments SET sent_at = '2026-11-01T21:30:00.000000+00:00'")  # 00:30 of the 2nd
    set_back(journal)
    os.utime(kept, (1794340800, 1794340800))  # 2026-11-10, 20:00 UTC
    with pytest.raises(ConfigurationError, match="--day 2026-11-02 --last-day 2026-11-10"):
        check(journal)
    execute(journal, "DELETE FROM momopay_payments")
    with pytest.raises(ConfigurationError, match="--day 2026-11-10 --last-day 2026-11-10"):
        check(other)
