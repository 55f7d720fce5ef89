"""PgBouncer: pools that share connections are refused by name, and nobody inherits a setting of the journal."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from cli.kit import Shell
from drivers import Drive
from durable.kit import Service, pay, payout_record
from in_turn import some_by_default
from journal.constants import ACCEPTED, UNKNOWN
from journal.database_kit import store_of
from journal.kit import put, sender, state_of
from journal.records import callback
from momopay import ConfigurationError, Journal
from momopay.journal import pooling
from momopay.sandbox import Sandbox
from patience import LONGEST, beside, until
from pgbouncer import running_pgbouncer
from postgresql import PostgresqlServer

pytestmark = pytest.mark.both_databases

SETTINGS = """
    SELECT name, setting FROM pg_settings
    WHERE source IN ('session', 'client')
        AND name NOT IN ('client_encoding', 'DateStyle', 'TimeZone', 'application_name')"""


@pytest.fixture
def database(postgresql: PostgresqlServer) -> str:
    return postgresql.new_database()


@pytest.fixture
def behind(database: str) -> Generator[Callable[..., str]]:
    """Return what starts a PgBouncer in a mode, and gives the URL of the database behind it."""
    with ExitStack() as stack:

        def start(mode: str, **options: Any) -> str:
            port = stack.enter_context(running_pgbouncer(make_url(database).port or 0, mode, **options))
            return make_url(database).set(port=port).render_as_string()

        yield start


def connected(url: str) -> "psycopg.Connection[Any]":
    return psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(), autocommit=True)


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("more", ["", "server_round_robin = 1"])
def test_a_pool_that_shares_connections_is_refused(
    behind: Callable[..., str], drive: Drive, sandbox: Sandbox, mode: str, more: str
) -> None:
    url, service = behind(mode, more=more), Service(payout_record())
    with Journal(url) as journal:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=rf"{mode} mode.*pool_mode=session") as caught:
                drive(transport=service.transport)(pay(journal))
            assert not caught.value.may_have_executed
    assert service.sent == 0
    shell = Shell({"MOMOPAY_API_KEY": "pk_test_doctor", "MOMOPAY_BASE_URL": sandbox.base_url})
    assert shell("doctor", "--journal", url).prints(3, f"{mode} mode")


def test_a_pool_that_others_use_at_the_same_time_is_refused(
    behind: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it shows by whom a connection serves, or by a prepared statement that is another client's."""
    url, is_over = behind("transaction", size=5, more="query_wait_timeout = 60"), threading.Event()
    # On a busy machine, it takes long to give one more connection, as a pool in session mode does that has none.
    monkeypatch.setattr(pooling, "_TIMEOUT", LONGEST)

    def use() -> None:
        with connected(url) as other:
            while not is_over.is_set():
                other.execute("SELECT pg_sleep(0.001)", prepare=False)

    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(beside(use))
        try:
            for _ in range(10):
                with Journal(url) as journal, pytest.raises(ConfigurationError, match="transaction mode"):
                    journal.get("r")
        finally:
            is_over.set()


@pytest.mark.parametrize("size", some_by_default([1, 20]))
def test_a_pool_in_session_mode_serves_a_journal(behind: Callable[..., str], drive: Drive, size: int) -> None:
    service = Service(payout_record())
    with Journal(behind("session", size=size)) as journal:
        drive(transport=service.transport)(pay(journal))
        assert state_of(journal) is ACCEPTED
    assert service.sent == 1


DIE = """
import os, signal, sys
from momopay import Journal
sys.path.insert(0, sys.argv[2])
from journal.database_kit import store_of
from journal.kit import put
with Journal(sys.argv[1]) as journal:
    put(journal, "of the dead")
    with store_of(journal).database.transaction() as connection:
        connection.exec_driver_sql("SELECT 1")
        if "in a transaction" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
    if "closed" not in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.whole
@pytest.mark.parametrize("where", ["closed", "idle", "in a transaction"])
def test_nobody_inherits_a_setting_however_the_process_ended(behind: Callable[..., str], where: str) -> None:
    """Not even where the pool resets nothing. The control: what is set for a whole connection is inherited."""
    url = behind("session", size=1, more="server_reset_query =")
    done = subprocess.run([sys.executable, "-c", DIE, url, sys.path[0], where], check=False)
    assert done.returncode == (0 if where == "closed" else -signal.SIGKILL)
    with connected(url) as next_one:
        assert next_one.execute(SETTINGS).fetchall() == []
        next_one.execute("SET statement_timeout = 27000")
    with connected(url) as next_one:
        assert next_one.execute(SETTINGS).fetchall() == [("statement_timeout", "27000")]


def test_no_setting_is_left_on_a_connection(database: str) -> None:
    """What any pool would give to the next client."""
    with Journal(database) as journal:
        put(journal)
        with journal.handling(callback()):
            pass
        with store_of(journal).database.connection() as connection:
            raw: Any = connection.connection.dbapi_connection
            assert psycopg.Cursor(raw).execute(SETTINGS).fetchall() == []


def test_a_dead_process_behind_a_pool_does_not_look_alive(behind: Callable[..., str]) -> None:
    url = behind("session")
    with Journal(url) as journal:
        with sender(url):
            pass  # it holds a payout, and is killed
        until(lambda: state_of(journal) is UNKNOWN, "the pool reset the dead one's connection")
