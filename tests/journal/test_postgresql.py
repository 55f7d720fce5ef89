"""PostgreSQL: commits are on disk, an advisory lock shows who is alive, and a journal outlives an outage."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from journal.kit import PHONE, begin, execute, found, lease_of, put, record
from momopay import AsyncClient, ConfigurationError, Journal, JournalError, JournalState, Payout
from momopay.journal.journal import payments_of
from momopay.sandbox import Sandbox
from postgresql import PostgresqlServer


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    return postgresql.new_database()


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u@h/d",
        "postgresql+asyncpg://u@h/d",
        "postgresql+psycopg_async://u@h/d",
        "postgresql+pg8000://u@h/d",
        "postgresql+psycopg://u@h:x/d",
    ],
)
def test_a_url_for_another_driver_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Journal(url)


def test_commits_wait_for_the_disk_whatever_the_servers_default(url: str) -> None:
    with Journal(url) as journal:
        execute(journal, f'ALTER DATABASE "{url.rpartition("/")[2]}" SET synchronous_commit = off')
    with Journal(url) as journal, journal._database.connection() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_a_process_whose_connections_were_cut_registers_again(postgresql: PostgresqlServer, url: str) -> None:
    with Journal(url) as journal, Journal(url) as elsewhere, lease_of(journal) as lease:
        begin(journal, lease, "before")
        postgresql.disconnect_all()
        assert found(elsewhere, "before").state is JournalState.UNKNOWN  # it looks as if its process had died
        assert begin(journal, lease, "after") is None
        assert found(elsewhere, "after").state is JournalState.SENDING
        record(journal, lease, JournalState.ACCEPTED, "before")
    with Journal(url) as later:
        assert found(later, "before").state is JournalState.ACCEPTED


def test_a_journal_outlives_an_outage_of_its_server(postgresql: PostgresqlServer, url: str) -> None:
    name = url.rpartition("/")[2]

    def allow(word: str) -> None:
        with psycopg.connect(postgresql._conninfo, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {word}'.encode())

    with Journal(url) as journal, Journal(url) as elsewhere:
        put(journal, "before", JournalState.NOT_SENT)
        allow("false")
        postgresql.disconnect_all()
        for _ in range(2):
            with pytest.raises(JournalError, match="OperationalError"):
                put(journal, "during", JournalState.NOT_SENT)
        allow("true")
        with lease_of(journal) as lease:
            assert begin(journal, lease, "after") is None
            assert found(elsewhere, "after").state is JournalState.SENDING


def test_processes_that_ask_about_a_dead_one_at_once_do_not_take_each_other_for_it(url: str) -> None:
    with Journal(url) as dead, lease_of(dead) as lease:
        begin(dead, lease)
    with Journal(url) as one, Journal(url) as other:
        row = payments_of(one)._row("r")
        assert row is not None
        with one._database.connection() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_lock_shared(%s)", (int(row["sender"]),))
            assert found(other).state is JournalState.UNKNOWN


def test_two_hundred_payments_at_once_do_not_starve_for_connections(url: str, sandbox: Sandbox, key: str) -> None:
    sandbox.account(key).rate_limit = None

    async def main() -> list[Any]:
        async with AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            pay = client.payouts.pay_once
            calls = [pay(journal=journal, reference=f"r{number}", amount=10, phone=PHONE) for number in range(200)]
            return list(await asyncio.gather(*calls))

    with Journal(url) as journal:
        results = asyncio.run(main())
    assert {type(each) for each in results} == {Payout}
    paid = [movement.reference for movement in sandbox.ledger if movement.kind == "payout"]
    assert sorted(map(str, paid)) == sorted(f"r{number}" for number in range(200))
