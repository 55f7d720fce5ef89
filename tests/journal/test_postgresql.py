"""PostgreSQL: commits are on disk, an advisory lock shows who is alive, and a journal outlives an outage."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from journal import version_1
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


@pytest.mark.whole
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


class Users:
    """Two users of a new database, each with a schema of its own that comes first in the search path."""

    def __init__(self, postgresql: PostgresqlServer) -> None:
        self.url = make_url(postgresql.new_database())
        # Letters only: the redaction would take some digits in a row for a phone.
        self.names = [uuid4().hex.translate(str.maketrans("0123456789", "ghijklmnop")) for _ in range(2)]
        for name in self.names:
            self.execute(f"CREATE ROLE {name} LOGIN")
            self.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")

    def execute(self, *statements: str) -> list[Any]:
        with psycopg.connect(
            host=self.url.host, port=self.url.port, user="postgres", dbname=self.url.database, autocommit=True
        ) as connection:
            *first, last = [connection.execute(statement.encode()) for statement in statements]
            assert all(each.description is None for each in first)
            return last.fetchall() if last.description else []

    def url_of(self, number: int, schema: str | None = None) -> str:
        url = self.url.set(username=self.names[number])
        if schema is not None:
            url = url.update_query_dict({"options": f"-csearch_path={schema}"})
        return url.render_as_string()

    def share(self) -> None:
        """Let the second user write to the tables of the first."""
        first, second = self.names
        self.execute(f"GRANT USAGE ON SCHEMA {first} TO {second}")
        self.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {first} TO {second}")

    def schemas(self) -> list[str]:
        """Return the schemas that have a journal."""
        found = self.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'momopay_payments' ORDER BY 1")
        return [row[0] for row in found]


@pytest.fixture
def users(postgresql: PostgresqlServer) -> Users:
    return Users(postgresql)


def test_two_users_with_schemas_of_their_own_have_one_journal(users: Users) -> None:
    with Journal(users.url_of(0)) as first, Journal(users.url_of(1)) as second:
        put(first, "r", JournalState.ACCEPTED)
        assert users.schemas() == [users.names[0]]
        users.share()
        for _ in range(2):
            assert found(second).state is JournalState.ACCEPTED
        put(second, "of the second", JournalState.ACCEPTED)
        assert found(first, "of the second").state is JournalState.ACCEPTED
        # Each connection finds it, not only the first.
        with second._database.connection(), second._database.connection() as another:
            assert another.exec_driver_sql("SELECT count(*) FROM momopay_payments").scalar() == 2
    assert users.schemas() == [users.names[0]]


@pytest.mark.parametrize("path", ["{}", '"$user",{}'])
def test_a_default_of_the_role_names_no_journal(users: Users, path: str) -> None:
    with Journal(users.url_of(0)) as first:
        put(first, "r", JournalState.ACCEPTED)
    users.share()
    users.execute(f"ALTER ROLE {users.names[1]} SET search_path = {path.format(users.names[1])}")
    with Journal(users.url_of(1)) as second:
        assert found(second).state is JournalState.ACCEPTED


def test_a_schema_that_the_url_names_is_used(users: Users) -> None:
    first, second = users.names
    with Journal(users.url_of(0)) as journal:
        put(journal, "r", JournalState.ACCEPTED)
    with Journal(users.url_of(1, second)) as journal:
        assert journal.get("r") is None
    assert users.schemas() == sorted([first, second])
    users.share()
    with Journal(users.url_of(1, first)) as journal:
        assert found(journal).state is JournalState.ACCEPTED


def test_of_several_journals_one_must_be_named(users: Users) -> None:
    for number, name in enumerate(users.names):
        with Journal(users.url_of(number, name)) as journal:
            journal.get("r")
    with Journal(users.url_of(0)) as journal:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=", ".join(sorted(users.names))):
                journal.get("r")
    with Journal(users.url_of(0, users.names[0])) as journal:
        assert journal.get("r") is None


def test_a_schema_with_an_odd_name_is_found(users: Users) -> None:
    users.execute(f'CREATE SCHEMA "Pay; outs" AUTHORIZATION {users.names[0]}')
    users.execute(f"ALTER ROLE {users.names[0]} SET search_path = 'Pay; outs'")
    with Journal(users.url_of(0)) as journal:
        put(journal, "r", JournalState.ACCEPTED)
    assert users.schemas() == ["Pay; outs"]
    with Journal(users.url_of(0)) as journal:
        assert found(journal).state is JournalState.ACCEPTED


def test_a_right_that_is_missing_is_named_and_nothing_is_created(users: Users) -> None:
    first, second = users.names
    with Journal(users.url_of(0)) as journal:
        put(journal, "r", JournalState.REFUSED)
    with Journal(users.url_of(1)) as journal:
        with pytest.raises(JournalError, match=f"GRANT USAGE ON SCHEMA {first} TO {second}"):
            journal.get("r")
        users.execute(f"GRANT USAGE ON SCHEMA {first} TO {second}")
        with pytest.raises(JournalError, match=f"GRANT SELECT, .* ON ALL TABLES IN SCHEMA {first} TO {second}"):
            journal.get("r")
        users.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {first} TO {second}")
        assert found(journal).state is JournalState.REFUSED
        with pytest.raises(JournalError, match="GRANT SELECT, INSERT"), lease_of(journal) as lease:
            begin(journal, lease)
        users.share()
        with lease_of(journal) as lease:
            assert begin(journal, lease) is None
    assert users.schemas() == [first]


def test_a_user_who_may_create_no_journal_is_told_the_right(users: Users) -> None:
    users.execute(f"DROP SCHEMA {users.names[0]}", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with (
        Journal(users.url_of(0)) as journal,
        pytest.raises(JournalError, match=f"GRANT CREATE ON SCHEMA public TO {users.names[0]}"),
    ):
        journal.get("r")
    assert users.schemas() == []


def test_only_the_owner_migrates(users: Users) -> None:
    version_1.make(users.url_of(0))
    first, second = users.names
    users.execute(f"GRANT USAGE, CREATE ON SCHEMA {first} TO {second}")
    users.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {first} TO {second}")
    with Journal(users.url_of(1)) as journal, pytest.raises(JournalError, match="owner"):
        journal.get("paid")
    with Journal(users.url_of(0)) as journal:
        assert found(journal, "paid").state is JournalState.ACCEPTED


def test_without_create_nothing_is_created(users: Users) -> None:
    with Journal(users.url_of(0), create=False) as journal, pytest.raises(ConfigurationError, match="create=False"):
        journal.get("r")
    assert users.schemas() == []
    assert users.execute("SELECT 1 FROM pg_tables WHERE tablename LIKE 'momopay%'") == []
