"""The database as a process uses it: bounded waits, connections, errors that show no secret, and forks."""

import gc
import os
import pickle
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

import psycopg
import pytest
from sqlalchemy import Enum, bindparam, select
from sqlalchemy.exc import OperationalError

from forked import in_a_fork
from journal.constants import ACCEPTED, NOT_SENT, PHONE, SENDING, UNKNOWN
from journal.database_kit import BOUND, MUCH, engine_of, execute, in_threads, just_before, refused_in_time, store_of
from journal.kit import begin, found, lease_of, put, record, state_of
from momopay import ConfigurationError, Journal, JournalError
from momopay.journal.database import LONGEST_WAIT, ConnectionQueue, bounded, seconds_left
from momopay.journal.sharing import OpenDatabase
from test_redaction import chain, shown

CONNECTIONS = 15


def database_of(journal: Journal) -> OpenDatabase:
    return store_of(journal).database


def test_what_strikes_while_sqlalchemy_prepares_a_statement_is_raised_as_it_came(journal: Journal) -> None:
    """As an interrupt does; here a type refuses a value. SQLAlchemy wraps it as an error of its own."""
    with pytest.raises(LookupError), database_of(journal).connection() as connection:
        connection.execute(select(bindparam("x", "no", Enum("yes", validate_strings=True))))


# Bounds


def test_the_shortest_bound_of_a_thread_counts() -> None:
    assert seconds_left() == LONGEST_WAIT
    with bounded(50), bounded(100):
        assert 49 < seconds_left() <= 50
        with bounded(10):
            assert 9 < seconds_left() <= 10
            assert in_threads(1, seconds_left) == [LONGEST_WAIT]
        assert seconds_left() > 49
    assert seconds_left() == LONGEST_WAIT


def test_nothing_begins_after_the_bound(journal: Journal) -> None:
    journal.get("r")
    with bounded(0):
        with pytest.raises(JournalError, match="in time"):
            journal.get("r")
        with pytest.raises(JournalError, match="in time"):
            put(journal)
    assert journal.get("r") is None


def interrupt_the_exit(frame: FrameType, event: str, _argument: object) -> None:
    """Raise as soon as a context begins to end, as an interrupt does that came just before."""
    if event == "call" and frame.f_code.co_name == "__exit__":
        raise KeyboardInterrupt


def test_an_interrupt_leaves_no_bound_behind() -> None:
    tracer = sys.gettrace()
    try:
        with bounded(BOUND):
            sys.settrace(interrupt_the_exit)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(tracer)
    gc.collect()
    assert seconds_left() == LONGEST_WAIT


# Connections


def pool_of(journal: Journal) -> ConnectionQueue:
    pool = engine_of(journal).pool
    assert isinstance(pool, ConnectionQueue)
    return pool


def count_in(pool: ConnectionQueue) -> tuple[int, int]:
    """Return how many connections there are, and how many of them are idle."""
    return len(pool._alive), pool._idle.qsize()


@pytest.mark.both_databases
def test_when_all_connections_are_in_use_the_next_one_waits_for_its_bound(journal: Journal) -> None:
    pool = pool_of(journal)
    with ExitStack() as stack:
        held = [stack.enter_context(database_of(journal).connection()) for _ in range(CONNECTIONS)]
        assert len({id(each.connection.dbapi_connection) for each in held}) == CONNECTIONS
        assert count_in(pool) == (CONNECTIONS, 0)
        begun = time.monotonic()
        with refused_in_time("in time"):
            journal.get("r")
        assert time.monotonic() - begun >= BOUND
        threading.Timer(BOUND, held[0].close).start()
        assert journal.get("r") is None
    assert journal.get("r") is None


def test_connections_that_are_lost_make_room_for_others(journal: Journal) -> None:
    for _ in range(2 * CONNECTIONS):
        with database_of(journal).connection() as connection:
            connection.detach()  # as an interrupt within SQLAlchemy does: the pool forgets it
            connection.close()
        del connection
    gc.collect()
    with bounded(MUCH):
        assert journal.get("r") is None
    assert count_in(pool_of(journal)) == (1, 1)


def test_connections_that_cannot_be_made_take_no_place() -> None:
    kept = list[ConfigurationError]()
    with Journal("postgresql+psycopg://me@127.0.0.1:1/d") as journal:
        for _ in range(CONNECTIONS + 1):
            with pytest.raises(ConfigurationError, match="refused") as caught, bounded(MUCH):
                journal.get("r")
            kept.append(caught.value)


def test_one_connection_is_used_again_and_again_and_closed_with_the_journal(journal: Journal) -> None:
    put(journal)
    seen = set[int]()
    for _ in range(10):
        with database_of(journal).connection() as connection:
            seen.add(id(connection.connection.dbapi_connection))
    pool = pool_of(journal)
    assert (len(seen), *count_in(pool)) == (1, 1, 1)
    in_threads(3, lambda: journal.get("r"))
    assert pool.recreate() is pool, "an engine uses it again after `dispose`"
    for _ in range(2):
        journal.close()
        assert count_in(pool)[1] == 0
        with pytest.raises(ConfigurationError, match="closed"):
            journal.get("r")


@pytest.mark.both_databases
def test_journals_of_one_url_share_their_connections(url: str) -> None:
    """A platform has a journal for each account. What one closes, the others go on using."""
    opened = in_threads(8, lambda: Journal(url))
    (shared,) = {id(database_of(each).shared): database_of(each).shared for each in opened}.values()
    first, *others = opened
    for number, each in enumerate(others):
        put(each, f"r{number}")
    idle = pool_of(first)
    first.close()
    assert count_in(idle)[1] > 0
    with pytest.raises(ConfigurationError, match="closed"):
        first.get("r0")
    for each in others:
        assert each.get("r0") is not None
    for each in others:
        each.close()
    assert count_in(idle)[1] == 0
    with Journal(url) as again:
        assert database_of(again).shared is not shared, "it is opened anew"
        assert again.get("r0") is not None


# Transactions


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_transaction_that_raises_blocks_nobody(journal: Journal, other: Journal, error: type[BaseException]) -> None:
    put(journal)

    def change(failure: BaseException | None = None) -> None:
        with database_of(journal).transaction() as connection:
            connection.exec_driver_sql("UPDATE momopay_payments SET phone = ''")
            if failure is not None:
                raise failure

    with pytest.raises(error):
        change(error())
    with bounded(MUCH):
        put(other, "s")
    assert found(journal).phone == PHONE
    change()
    assert found(other).phone == ""


@pytest.mark.parametrize(
    "statement",
    ["BEGIN", "UPDATE momopay_accounts", "INSERT", pytest.param("COMMIT", marks=pytest.mark.both_databases)],
)
def test_an_interrupt_within_a_transaction_blocks_nobody(journal: Journal, other: Journal, statement: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), just_before(statement, journal, interrupt):
        put(journal)
    assert journal.get("r") is None
    for each in (other, journal):
        with bounded(MUCH):
            put(each, f"by {id(each)}")


# Errors


def test_a_database_that_is_away_is_reported_without_password_or_phone() -> None:
    with (
        Journal("postgresql+psycopg://me:secret@127.0.0.1:1/d") as journal,
        lease_of(journal) as lease,
        pytest.raises(ConfigurationError, match="check that the server runs") as caught,
    ):
        begin(journal, lease, read=None)
    error = caught.value
    kinds = [type(each) for each in chain(error)]
    assert kinds[:4] == [ConfigurationError, JournalError, OperationalError, psycopg.OperationalError]
    # The frames of this test and of its helper hold the phone; a user's would hold what the user wrote.
    assert "secret" not in shown(error)
    assert PHONE not in "".join(f"{each!r} {each}" for each in chain(error))
    assert not error.may_have_executed
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.both_databases
def test_a_statement_that_fails_is_chained_without_its_values(journal: Journal) -> None:
    put(journal, PHONE, UNKNOWN)
    execute(journal, "ALTER TABLE momopay_payments RENAME TO hidden")
    with pytest.raises(JournalError) as caught:
        journal.get(PHONE)
    links = list(chain(caught.value))
    assert len(links) >= 3
    assert PHONE not in "".join(f"{each!r} {each}" for each in links)
    assert "SELECT" not in str(caught.value)
    frames = [frame for each in links[1:] for frame, _line in walk_tb(each.__traceback__)]
    inside = [frame for frame in frames if "sqlalchemy" in frame.f_code.co_filename]
    assert inside
    assert PHONE not in "".join(str(frame.f_locals) for frame in inside)


@pytest.mark.both_databases
def test_text_that_no_database_holds_is_a_journal_error(journal: Journal) -> None:
    journal.get("r")
    with pytest.raises(JournalError, match="text that no database holds") as caught:
        put(journal, f"{PHONE}\ud800")
    assert isinstance(caught.value.__cause__, UnicodeError)
    assert PHONE not in "".join(f"{each!r} {each}" for each in chain(caught.value))


# Forks


@pytest.mark.both_databases
def test_a_forked_child_is_a_process_of_its_own(journal: Journal, other: Journal) -> None:
    def child() -> None:
        with lease_of(journal) as own:
            assert begin(journal, own, "of the child")
            assert state_of(journal, "of the parent") is SENDING
            record(journal, own, ACCEPTED, "of the child")
        journal.close()

    with lease_of(journal) as lease:
        begin(journal, lease, "of the parent")
        assert in_a_fork(child) == 0
        assert state_of(other, "of the parent") is state_of(journal, "of the parent") is SENDING
        record(journal, lease, ACCEPTED, "of the parent")
    for reference in ("of the child", "of the parent"):
        assert state_of(journal, reference) is ACCEPTED


def test_a_child_records_nothing_of_its_parents_call(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)

        def child() -> None:
            assert not record(journal, lease, NOT_SENT)
            assert record(journal, lease, ACCEPTED), "its parent records it"

        assert in_a_fork(child) == 0
        assert state_of(journal) is SENDING
    record(journal, lease, NOT_SENT)
    assert state_of(journal) is NOT_SENT, "a call that gave up records it after the end of its lease"


def test_a_child_in_another_folder_has_its_parents_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Journal("sqlite:///payouts.db") as journal:

        def child() -> None:
            os.chdir(tmp_path / "there")
            put(journal, "of the child", ACCEPTED)

        assert in_a_fork(child) == 0
        assert state_of(journal, "of the child") is ACCEPTED
    assert list((tmp_path / "there").iterdir()) == []


def test_the_threads_of_a_child_open_the_journal_once(journal: Journal) -> None:
    put(journal)

    def child() -> None:
        (own,) = set(in_threads(4, database_of(journal).shared.register_process))
        assert own == database_of(journal).shared.sender != of_the_parent

    of_the_parent: Any = database_of(journal).shared.register_process()
    assert in_a_fork(child) == 0
    with database_of(journal).connection() as connection:
        assert database_of(journal).shared.is_alive(of_the_parent, connection)
