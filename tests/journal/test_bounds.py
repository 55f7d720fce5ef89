"""Every wait on the database ends: each test holds or freezes something all the time, and looks at the clock."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import psycopg
import pytest
from filelock import FileLock
from sqlalchemy import make_url

from journal import version_1
from journal.kit import begin, found, lease_of, put
from momopay import Journal, JournalError, JournalState
from momopay.journal.bounds import LONGEST_WAIT, bounded, holding, is_over, seconds_left
from momopay.journal.postgresql import PostgresqlDatabase
from momopay.journal.sqlite import SqliteDatabase
from postgresql import PostgresqlServer

pytestmark = pytest.mark.both_databases
BOUND = 0.2
"""Seconds for which the tests wait."""
MUCH = 8.0
"""Seconds that a busy machine may need more. Whatever does not end takes longer."""


@contextmanager
def refused_in_time() -> Generator[None]:
    """Expect a JournalError when the time is over, and no later."""
    begun = time.monotonic()
    with pytest.raises(JournalError):
        yield
    assert time.monotonic() - begun < BOUND + MUCH


def interrupt_the_exit(frame: FrameType, event: str, _argument: object) -> None:
    """Raise as soon as a context begins to end, as an interrupt does that came just before."""
    if event == "call" and frame.f_code.co_name == "__exit__":
        raise KeyboardInterrupt


def bound(journal: Journal) -> AbstractContextManager[None]:
    return journal._database.bounded(BOUND)


def test_an_interrupt_leaves_nothing_held() -> None:
    lock = threading.Lock()
    for enter in (partial(bounded, BOUND), partial(holding, lock)):
        tracer = sys.gettrace()
        try:
            with enter():
                sys.settrace(interrupt_the_exit)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
    gc.collect()
    assert not lock.locked()
    assert seconds_left() == LONGEST_WAIT


def test_the_shortest_bound_of_a_thread_counts() -> None:
    assert seconds_left() == LONGEST_WAIT
    with bounded(50), bounded(100):
        assert 49 < seconds_left() <= 50
        with bounded(10):
            assert 9 < seconds_left() <= 10
            elsewhere: list[float] = []
            thread = threading.Thread(target=lambda: elsewhere.append(seconds_left()))
            thread.start()
            thread.join()
            assert elsewhere == [LONGEST_WAIT]
        assert seconds_left() > 49
    assert seconds_left() == LONGEST_WAIT


def test_nothing_begins_after_the_bound(journal: Journal) -> None:
    journal.get("r")
    with bounded(0):
        assert is_over()
        with pytest.raises(JournalError, match="in time"):
            journal.get("r")
        with pytest.raises(JournalError, match="in time"):
            put(journal, "r", JournalState.NOT_SENT)
    assert not is_over()
    assert journal.get("r") is None


def test_a_lock_of_another_thread_is_waited_for_in_time() -> None:
    lock = threading.Lock()
    with lock, bounded(0.01), pytest.raises(JournalError), holding(lock):
        pytest.fail("it was held twice")
    with holding(lock):
        assert lock.locked()
    assert not lock.locked()


def test_a_journal_whose_connections_are_all_in_use(journal: Journal) -> None:
    journal.get("r")
    with ExitStack() as stack:
        for _ in range(15):
            stack.enter_context(journal._database.connection())
        with refused_in_time(), bound(journal):
            journal.get("r")
    assert journal.get("r") is None


def test_a_set_up_that_another_thread_makes(journal: Journal) -> None:
    with journal._database._own.lock, refused_in_time(), bound(journal):
        journal.get("r")


# SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "payouts.db"


@pytest.fixture
def in_a_file(path: Path) -> Generator[Journal]:
    with Journal(f"sqlite:///{path}") as journal:
        yield journal


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold SQLite's lock for writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def test_a_locked_file_is_refused_in_time_and_written_when_it_is_free(path: Path, in_a_file: Journal) -> None:
    in_a_file.get("r")
    with exclusive(path):
        with refused_in_time(), bound(in_a_file):
            put(in_a_file, "locked", JournalState.UNKNOWN)
        assert in_a_file.get("locked") is None  # who only reads does not wait
    assert in_a_file.get("locked") is None
    put(in_a_file, "free", JournalState.UNKNOWN)


def test_a_connection_waits_longer_again_after_a_short_bound(path: Path, in_a_file: Journal) -> None:
    in_a_file.get("r")
    with exclusive(path), refused_in_time(), bound(in_a_file):
        put(in_a_file, "locked", JournalState.UNKNOWN)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        timer = threading.Timer(2 * BOUND, other.execute, ["COMMIT"])
        timer.start()
        put(in_a_file, "free", JournalState.UNKNOWN)
        timer.join()


def test_a_file_that_is_locked_when_it_is_created_or_migrated(path: Path) -> None:
    url = f"sqlite:///{path}"
    version_1.make(url)
    with exclusive(path), Journal(url) as journal, refused_in_time(), bound(journal):
        journal.get("r")
    with Journal(url) as journal:
        assert found(journal, "paid").state is JournalState.ACCEPTED


def test_a_file_in_another_journal_mode_that_is_locked(path: Path, in_a_file: Journal) -> None:
    """Without the write-ahead log, a lock stops readers and new connections, too."""
    in_a_file.get("r")
    in_a_file._database._own.database.engine.dispose()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN EXCLUSIVE")
        with refused_in_time(), bound(in_a_file):
            in_a_file.get("r")
        with Journal(f"sqlite:///{path}") as new, refused_in_time(), bound(new):
            new.get("r")


def test_a_set_up_that_another_process_makes(path: Path, in_a_file: Journal) -> None:
    folder = path.with_name("payouts.db-senders")
    folder.mkdir()
    with FileLock(folder / "set-up.lock"), refused_in_time(), bound(in_a_file):
        in_a_file.get("r")


def test_a_registration_that_another_thread_makes(journal: Journal) -> None:
    journal.get("r")
    database = journal._database._own.database
    assert isinstance(database, SqliteDatabase | PostgresqlDatabase)
    with database._registering, lease_of(journal) as lease, refused_in_time(), bound(journal):
        begin(journal, lease)


# PostgreSQL


@pytest.fixture
def server_url(postgresql: PostgresqlServer) -> str:
    return postgresql.new_database()


@pytest.fixture
def on_a_server(server_url: str) -> Generator[Journal]:
    with Journal(server_url) as journal:
        yield journal


@contextmanager
def connected(url: str) -> Generator[psycopg.Connection]:
    at = make_url(url)
    with psycopg.connect(host=at.host, port=at.port, user=at.username, dbname=at.database) as connection:
        yield connection


@contextmanager
def frozen(url: str, *, server: bool) -> Generator[None]:
    """Stop the processes that serve the connections to a database, or also the server that takes new ones."""
    with connected(url) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
        backends = [int(row[0]) for row in rows]
        parent = int(Path(f"/proc/{connection.info.backend_pid}/stat").read_text().rpartition(")")[2].split()[1])
    stopped = [*backends, parent] if server else backends
    assert stopped
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def linux() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("it finds the server's processes under /proc")


def test_a_locked_table_is_refused_in_time_and_nothing_is_written_later(server_url: str, on_a_server: Journal) -> None:
    put(on_a_server, "before", JournalState.UNKNOWN)
    with connected(server_url) as other:
        other.execute("LOCK TABLE momopay_payments IN ACCESS EXCLUSIVE MODE")
        with refused_in_time(), bound(on_a_server):
            on_a_server.get("before")
        with refused_in_time(), bound(on_a_server):
            put(on_a_server, "locked", JournalState.UNKNOWN)
    assert on_a_server.get("locked") is None
    assert found(on_a_server, "before").state is JournalState.UNKNOWN


def test_a_lock_that_is_waited_for_costs_no_connection(server_url: str, on_a_server: Journal) -> None:
    def backends() -> set[int]:
        with connected(server_url) as other:
            rows = other.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()").fetchall()
            return {row[0] for row in rows} - {other.info.backend_pid}

    put(on_a_server, "before", JournalState.UNKNOWN)
    before = backends()
    with connected(server_url) as other:
        other.execute("LOCK TABLE momopay_payments IN ACCESS EXCLUSIVE MODE")
        with refused_in_time(), bound(on_a_server):
            on_a_server.get("before")
    assert backends() == before


USES: dict[str, Callable[[Journal], object]] = {
    "read": lambda journal: journal.get("before"),
    "write": lambda journal: put(journal, "new", JournalState.UNKNOWN),
    "register": lambda journal: journal._database.register_process(),
    "ask": lambda journal: journal._database.is_alive("1"),
}


@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize(("use", "server"), [*((use, True) for use in USES), ("write", False)])
def test_a_frozen_server_is_refused_in_time(server_url: str, on_a_server: Journal, use: str, *, server: bool) -> None:
    put(on_a_server, "before", JournalState.UNKNOWN)
    with ExitStack() as stack:
        stack.enter_context(frozen(server_url, server=server))
        begun = time.monotonic()
        try:
            with bound(on_a_server):
                USES[use](on_a_server)
        except JournalError:
            pass
        else:
            assert not server  # where only the connections are frozen, a new one may do
        assert time.monotonic() - begun < BOUND + MUCH
        if server:
            with Journal(server_url) as new, refused_in_time(), bound(new):
                new.get("before")
    assert found(on_a_server, "before").state is JournalState.UNKNOWN
    put(on_a_server, "after", JournalState.NOT_SENT)


@pytest.mark.whole
@pytest.mark.usefixtures("linux")
def test_idle_connections_that_are_frozen_are_replaced_within_the_bound(server_url: str, on_a_server: Journal) -> None:
    put(on_a_server, "before", JournalState.UNKNOWN)
    with frozen(server_url, server=False), on_a_server._database.bounded(MUCH / 2):
        put(on_a_server, "after", JournalState.UNKNOWN)


def test_an_address_that_never_answers_is_refused_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"postgresql+psycopg://me@127.0.0.1:{deaf.getsockname()[1]}/d"
        with Journal(url) as journal, refused_in_time(), bound(journal):
            journal.get("r")


def test_a_set_up_that_another_machine_makes(server_url: str, on_a_server: Journal) -> None:
    with connected(server_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x6D6F6D6F70617931])
        with refused_in_time(), bound(on_a_server):
            on_a_server.get("r")
    assert on_a_server.get("r") is None


def test_a_short_bound_does_not_stay_with_the_connection(on_a_server: Journal) -> None:
    with on_a_server._database.bounded(MUCH):
        on_a_server.get("r")
    with on_a_server._database.connection() as connection:
        timeouts = "SELECT setting FROM pg_settings WHERE name IN ('lock_timeout', 'statement_timeout')"
        assert min(int(each) for each in connection.exec_driver_sql(timeouts).scalars()) > 20_000
