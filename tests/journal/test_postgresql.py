"""PostgreSQL: commits are on disk, connections show who is alive, and every wait ends in time."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import cast
from unittest.mock import patch
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from drivers import Drive
from durable.kit import Service, pay, payout_record
from forked import in_a_fork
from journal.constants import ACCEPTED, NOT_SENT, SENDING, UNKNOWN
from journal.database_kit import (
    BOUND,
    MUCH,
    another_process,
    before_each,
    execute,
    in_threads,
    refused_in_time,
    stopped_clock,
    store_of,
)
from journal.kit import begin, found, lease_of, put, record, sender, state_of
from journal.records import callback
from momopay import ConfigurationError, Journal, JournalError
from momopay.journal import postgresql as driver
from momopay.journal.database import bounded
from momopay.journal.postgresql import BoundedConnection
from patience import beside, until
from postgresql import PostgresqlServer
from strikes import Striker

pytestmark = pytest.mark.both_databases


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    return postgresql.new_schema()


@pytest.fixture
def database(postgresql: PostgresqlServer) -> str:
    """The URL of a database of its own, for what is set or refused in a whole one."""
    return postgresql.new_database()


def test_an_option_that_libpq_does_not_know_is_named_and_no_value_is_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"libpq does not know: \['nope'\]"):
        Journal("postgresql://user@127.0.0.1:1/d?nope=secret&connect_timeout=5")


def connect_to(url: str) -> BoundedConnection:
    at, options = make_url(url), make_url(url).query.get("options", "")
    return BoundedConnection.connect(
        host=at.host, port=at.port, user=at.username, dbname=at.database, options=str(options), autocommit=True
    )


def test_commits_wait_for_the_disk_whatever_the_servers_default(database: str) -> None:
    """Nor does another default change what the journal does."""
    kept, raised = ("on", "remote_apply"), ("off", "local", "remote_write")
    for commit, expected in [*zip(kept, kept, strict=True), *((each, "on") for each in raised)]:
        with Journal(database) as journal:
            for default in (
                f"synchronous_commit = {commit}",
                "default_transaction_isolation = serializable",
                "client_encoding = sql_ascii",
            ):
                execute(journal, f'ALTER DATABASE "{database.rpartition("/")[2]}" SET {default}')
        with Journal(database) as journal:
            assert execute(journal, "SHOW synchronous_commit") == [(expected,)]
            assert execute(journal, "SHOW transaction_isolation") == [("read committed",)]
            assert put(journal, f"Njambĩ-{commit}").reference == f"Njambĩ-{commit}"
            assert execute(journal, "SHOW idle_in_transaction_session_timeout") == [("10s",)]


@pytest.fixture
def standby(postgresql: PostgresqlServer) -> Generator[Callable[[bool], None]]:
    """Return what makes each commit wait for a standby that does not exist, until somebody cancels the wait."""
    over = threading.Event()

    def wait_for_it(is_needed: bool) -> None:
        with psycopg.connect(postgresql._conninfo, autocommit=True) as connection:
            connection.execute(
                f"ALTER SYSTEM SET synchronous_standby_names = '{'nobody' if is_needed else ''}'".encode()
            )
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("SET synchronous_commit = on")  # the tests' server has it off
            noticed = list[object]()
            connection.add_notice_handler(noticed.append)

            def waits() -> bool:
                """Commit a change of the catalog, and return whether the commit waited, until it was cancelled."""
                noticed.clear()
                connection.execute("COMMENT ON DATABASE postgres IS 'changed'")
                return bool(noticed)

            until(lambda: waits() is is_needed, "each process of the server read its settings")

    def cancel() -> None:
        waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        with psycopg.connect(postgresql._conninfo, autocommit=True) as connection:
            while not over.wait(0.05):
                connection.execute(waiting)

    with beside(cancel):
        try:
            yield wait_for_it
        finally:
            wait_for_it(False)
            over.set()


@pytest.mark.parametrize("default", ["on", "local"])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_commit_that_may_not_be_on_the_standby_is_not_known(
    database: str, standby: Callable[[bool], None], drive: Drive, default: str, is_noticed: bool
) -> None:
    """Nothing is sent after it. The control: without a look at the server's warning, it would be."""
    service, before = Service(payout_record()), Service(payout_record(transactionId="t-0"))
    with Journal(database) as journal:
        drive(transport=before.transport)(pay(journal, "before"))
        execute(journal, f'ALTER DATABASE "{database.rpartition("/")[2]}" SET synchronous_commit = {default}')
    with Journal(database) as journal, nullcontext() if is_noticed else patch.object(driver, "_WARNING", "none"):
        journal.get("r")
        standby(True)
        with pytest.raises(JournalError, match="synchronous replication") if is_noticed else nullcontext():
            drive(transport=service.transport, deadline=8.0)(pay(journal))
        standby(False)
        assert service.sent == (not is_noticed)
        assert state_of(journal) in ({NOT_SENT, UNKNOWN} if is_noticed else {ACCEPTED})


def test_a_journal_outlives_an_outage_of_its_server(postgresql: PostgresqlServer, database: str) -> None:
    def allow(word: str) -> None:
        with psycopg.connect(postgresql._conninfo, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{database.rpartition("/")[2]}" ALLOW_CONNECTIONS {word}'.encode())

    with Journal(database) as journal, another_process(database) as elsewhere, lease_of(journal) as lease:
        begin(journal, lease, "before")
        allow("false")
        postgresql.disconnect_all()
        for _ in range(2):
            with pytest.raises(JournalError, match="OperationalError"):
                put(journal, "during", NOT_SENT)
        allow("true")
        # It looks as if its process had died.
        until(lambda: state_of(elsewhere, "before") is UNKNOWN, "the server saw the cut")
        assert begin(journal, lease, "after")
        assert state_of(elsewhere, "after") is SENDING
        record(journal, lease, ACCEPTED, "before")
        assert state_of(elsewhere, "before") is ACCEPTED


def test_more_threads_than_connections_do_not_wait_for_each_other(url: str) -> None:
    """They register their process, and ask whether the sender of a row lives."""

    def use() -> None:
        with bounded(MUCH), journal.handling(callback(identity=uuid4().hex)):
            assert state_of(journal) is SENDING

    with sender(url), Journal(url) as journal:
        in_threads(40, use)


def test_no_account_waits_for_another(url: str) -> None:
    """Not while a payment of it begins. The control: another payment of the same account waits."""
    with Journal(url) as journal, Journal(url, account="another") as another, another_process(url) as same:
        for each in (journal, another):
            put(each, "before")
        store = store_of(journal)
        with store.database.transaction() as connection:
            store.watermark.raise_sequence(connection)
            with bounded(MUCH):
                put(another, "meanwhile")
            with lease_of(same) as lease, refused_in_time():
                begin(same, lease, "meanwhile", read=None)
        assert state_of(another, "meanwhile") is ACCEPTED
        assert journal.get("meanwhile") is None


def test_without_create_nothing_is_created(url: str) -> None:
    with Journal(url, create=False) as journal:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="create=False"):
                journal.get("r")
    with connect_to(url) as connection:
        tables = connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = current_schema()")
        assert tables.fetchall() == []


def test_a_schema_that_the_url_names_is_used(postgresql: PostgresqlServer, url: str) -> None:
    with Journal(url) as journal, Journal(postgresql.new_schema()) as other:
        put(journal)
        assert other.get("r") is None
        put(other, "s")
        assert journal.get("s") is None
        # Each connection finds it, not only the first.
        with store_of(other).database.connection():
            assert found(other, "s").reference == "s"
    own = make_url(url).update_query_dict({"keepalives_idle": "7"}).render_as_string()
    with Journal(own) as journal, store_of(journal).database.connection() as connection:
        parameters = cast("BoundedConnection", connection.connection.dbapi_connection).info.get_parameters()
    assert (parameters["keepalives_idle"], parameters["keepalives_interval"]) == ("7", "10"), "what it says counts"


def test_no_transaction_is_idle_while_the_disk_takes_a_backup(url: str, tmp_path: Path) -> None:
    """The server would end it after ten seconds."""
    idle = list[object]()

    def look(text: str) -> None:
        if text == "COMMIT":
            with connect_to(url) as other:
                of_sender = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND state LIKE 'idle in %%'"
                idle.append(other.execute(of_sender, [store_of(journal).database.shared.sender]).fetchall())

    with Journal(url) as journal:
        put(journal)
        with before_each(look):
            journal.backup(tmp_path / "copy.db")
    assert idle == [[]]


# Waits


def backends(url: str) -> list[int]:
    """Return the processes that serve the connections to a database."""
    # Not the server's own workers, which come and go.
    of_others = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    with connect_to(url) as connection:
        rows = connection.execute(f"SELECT pid FROM pg_stat_activity WHERE {of_others} ORDER BY pid".encode())
        return [int(row[0]) for row in rows]


def test_a_locked_table_is_refused_in_time_and_nothing_is_written_later(url: str) -> None:
    """By the server, whose timeouts are shorter: the client's clock stands still, so that it is never the first."""
    with Journal(url) as journal:
        put(journal, "before", UNKNOWN)
        before = backends(url)
        with connect_to(url) as other, other.transaction():
            other.execute("LOCK TABLE momopay_payments IN ACCESS EXCLUSIVE MODE")
            uses: list[Callable[[], object]] = [lambda: journal.get("before"), lambda: put(journal, "locked")]
            for use in uses:
                with stopped_clock(), refused_in_time("lock timeout"):
                    use()
        until(lambda: backends(url) == before, "the other connection went, and no other one: a lock costs none")
        assert journal.get("locked") is None
        assert state_of(journal, "before") is UNKNOWN


@contextmanager
def frozen(url: str, *, server: bool) -> Generator[None]:
    """Stop the processes that serve the connections to a database, or also the server that takes new ones."""
    stopped = backends(url)
    assert stopped
    if server:  # their parent
        stopped.append(int(Path(f"/proc/{stopped[0]}/stat").read_text().rpartition(")")[2].split()[1]))
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it finds the server's processes under /proc")
@pytest.mark.parametrize("server", [True, False])
def test_a_frozen_server_is_refused_in_time(url: str, *, server: bool) -> None:
    """Where only the connections are frozen, a new one may do."""
    with Journal(url) as journal:
        put(journal, "before", UNKNOWN)
        uses: list[Callable[[], object]] = [lambda: journal.get("before"), lambda: put(journal, "new", UNKNOWN)]
        for use in uses:
            with frozen(url, server=server):
                if server:
                    with refused_in_time():
                        use()
                    with another_process(url) as new, refused_in_time():
                        new.get("before")
                else:
                    begun = time.monotonic()
                    with suppress(JournalError), bounded(BOUND):
                        use()
                    assert time.monotonic() - begun < BOUND + MUCH
            assert state_of(journal, "before") is UNKNOWN
        put(journal, "after", NOT_SENT)


def test_an_address_that_never_answers_is_refused_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"postgresql+psycopg://me@127.0.0.1:{deaf.getsockname()[1]}/d"
        begun = time.monotonic()
        with Journal(url) as journal, pytest.raises(ConfigurationError, match="did not answer"), bounded(BOUND):
            journal.get("r")
        assert time.monotonic() - begun < BOUND + MUCH


def test_a_set_up_that_another_machine_makes(url: str) -> None:
    with Journal(url) as journal:
        with connect_to(url) as other, other.transaction():
            other.execute("SELECT pg_advisory_xact_lock(%s)", [0x6D6F6D6F70617931])
            with refused_in_time():
                journal.get("r")
        assert journal.get("r") is None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no interval timer")
def test_an_interrupt_during_a_wait_is_raised_as_it_came(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Journal(url) as journal:
        put(journal)
        with connect_to(url) as other, other.transaction(), Striker(1, BOUND) as striker:
            other.execute("LOCK TABLE momopay_payments IN ACCESS EXCLUSIVE MODE")
            striker.strike(lambda: journal.get("r"))
        assert state_of(journal) is ACCEPTED
    assert caplog.messages == []


def test_a_short_bound_does_not_stay_with_the_connection(url: str) -> None:
    with Journal(url) as journal:
        with bounded(MUCH):
            journal.get("r")
        timeouts = "SELECT setting FROM pg_settings WHERE name IN ('lock_timeout', 'statement_timeout')"
        assert min(int(row[0]) for row in execute(journal, timeouts)) > 20_000


# Single connections


def test_a_statement_without_an_answer_ends_in_time_and_with_it_the_connection(url: str) -> None:
    connection = connect_to(url)
    with bounded(MUCH):
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.errors.UndefinedTable), bounded(MUCH):
        connection.execute("SELECT * FROM missing")
    assert not connection.closed
    begun = time.monotonic()
    with bounded(BOUND), pytest.raises(JournalError):
        connection.execute("SELECT pg_sleep(60)")
    assert time.monotonic() - begun < BOUND + MUCH
    assert connection.closed


def test_a_child_that_ends_closes_no_connection_of_its_parent(url: str) -> None:
    with connect_to(url) as connection:
        assert in_a_fork(connection.__del__) == 0
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_comes_too_late_is_closed(url: str) -> None:
    later, made = threading.Event(), list[psycopg.pq.abc.PGconn]()

    def connect(*_arguments: object, **_options: object) -> BoundedConnection:
        later.wait(MUCH)
        connection = connect_to(url)
        made.append(connection.pgconn)
        return connection

    with (
        patch.object(BoundedConnection, "connect", connect),
        Journal(url) as journal,
        bounded(0.5),
        pytest.raises(ConfigurationError, match="in time"),
    ):
        journal.get("r")
    later.set()
    until(lambda: made and made[0].status == psycopg.pq.ConnStatus.BAD, "the late connection was closed")
