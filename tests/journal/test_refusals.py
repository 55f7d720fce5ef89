"""A PostgreSQL database that cannot be opened: each reason has its remedy, nothing is sent, and `doctor` fails."""

import re
from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from cli.kit import Shell
from drivers import Drive
from durable.kit import Service, pay, payout_record
from in_turn import some_by_default
from journal.constants import ACCEPTED
from journal.database_kit import another_process
from journal.kit import put, state_of
from momopay import ConfigurationError, Journal, JournalError
from momopay.sandbox import Sandbox
from postgresql import PostgresqlServer

pytestmark = pytest.mark.both_databases
SECRET = "hunter2hunter2"


class Admin:
    """The owner of a server, who makes a database of its own with a role that may nearly everything."""

    def __init__(self, server: PostgresqlServer) -> None:
        self.server = server
        self.url = make_url(server.new_database())
        # Some digits in a row would be masked as a phone.
        self.role = f"R-{uuid4().hex.translate(str.maketrans('0123456789', 'ghijklmnop'))}"
        self.does(f'CREATE ROLE "{self.role}" LOGIN')
        self.does(f'GRANT ALL ON SCHEMA public TO "{self.role}"')

    def does(self, *statements: str) -> None:
        with psycopg.connect(self.url.set(drivername="postgresql").render_as_string(), autocommit=True) as connection:
            for each in statements:
                connection.execute(each.encode())

    def cuts_all(self) -> None:
        """Let nobody in any more."""
        with psycopg.connect(self.server._conninfo, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{self.url.database}" ALLOW_CONNECTIONS false'.encode())
        self.server.disconnect_all()

    def guest(self, **parts: object) -> str:
        """Return the URL of the role, for tables in the schema of everybody."""
        changed = self.url.set(username=self.role, password=SECRET, query={"schema": "public"})
        return changed.set(**parts).render_as_string(hide_password=False)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def has_journal(self) -> None:
        with Journal(self.url.set(query={"schema": "public"}).render_as_string()) as journal:
            put(journal, "earlier")


@pytest.fixture(params=some_by_default(["blocking", "async"]))
def client_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def admin(postgresql: PostgresqlServer) -> Admin:
    return Admin(postgresql)


def refused(url: str, drive: Drive) -> str:
    """Return what a payment is refused with."""
    service = Service(payout_record())
    with Journal(url) as journal, pytest.raises(ConfigurationError) as caught:
        drive(transport=service.transport)(pay(journal))
    assert (service.sent, caught.value.may_have_executed) == (0, False)
    assert SECRET not in f"{caught.value!r}"
    return caught.value.message


def doctor_fails(url: str, sandbox: Sandbox) -> str:
    """Return what `doctor --journal` says of the journal."""
    shell = Shell({"MOMOPAY_API_KEY": "pk_test_doctor", "MOMOPAY_BASE_URL": sandbox.base_url})
    done = shell("doctor", "--journal", url, "--json")
    check = done.json["checks"][-1]
    assert (done.code, check["name"], check["verdict"]) == (3, "journal", "fail")
    assert SECRET not in done.out
    return str(check["found"])


def has_role(name: str) -> Callable[[Admin], str]:
    """Return what makes a role for which the server has a rule of its own."""

    def make(admin: Admin) -> str:
        admin.does(f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name} LOGIN PASSWORD 'the right one'")
        return admin.guest(username=name)

    return make


def without_password(admin: Admin) -> str:
    has_role("with_password")(admin)
    return admin.url.set(username="with_password").render_as_string()


def full(admin: Admin) -> str:
    admin.does(f'ALTER ROLE "{admin.role}" CONNECTION LIMIT 0')
    return admin.guest()


def without_connect(admin: Admin) -> str:
    admin.does(f'REVOKE CONNECT ON DATABASE "{admin.url.database}" FROM PUBLIC')
    return admin.guest()


def read_only(admin: Admin) -> str:
    admin.does(f'ALTER ROLE "{admin.role}" SET default_transaction_read_only = on')
    return admin.guest()


def read_only_with_journal(admin: Admin) -> str:
    admin.has_journal()
    admin.does(f'GRANT ALL ON ALL TABLES IN SCHEMA public TO "{admin.role}"')
    return read_only(admin)


REASONS: dict[str, tuple[Callable[[Admin], str], str]] = {
    "no such database": (lambda admin: admin.guest(database="nowhere"), 'CREATE DATABASE "nowhere"'),
    "no such role": (lambda admin: admin.guest(username="nobody"), 'CREATE ROLE "nobody"'),
    "wrong password": (has_role("with_password"), "correct the user or the password"),
    "no password": (without_password, "put the password into the URL"),
    "TLS required": (has_role("with_tls"), "sslmode=require"),
    "not let in": (has_role("nobody_here"), "pg_hba.conf"),
    "no TLS there": (lambda admin: admin.guest(query={"sslmode": "require"}), "the server has no TLS"),
    "no certificate": (
        lambda admin: admin.guest(query={"sslmode": "verify-full", "sslrootcert": "/nowhere"}),
        "sslrootcert|no TLS",
    ),
    "no server": (lambda admin: admin.guest(port=1), "check that the server runs"),
    "no such host": (lambda admin: admin.guest(host="nowhere.invalid"), "correct the host"),
    "no socket": (lambda admin: admin.guest(host=None, query={"host": "/nowhere"}), "check that the server runs"),
    "full": (full, "max_connections"),
    "no right to connect": (without_connect, "GRANT CONNECT ON DATABASE"),
    "read-only": (read_only, "it is read-only.*primary server"),
    "read-only, with a journal": (read_only_with_journal, "it is read-only.*primary server"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_payment_is_refused_with_the_remedy_and_doctor_fails(
    admin: Admin, drive: Drive, sandbox: Sandbox, reason: str
) -> None:
    make, remedy = REASONS[reason]
    url = make(admin)
    assert re.search(remedy, refused(url, drive))
    assert re.search(remedy, doctor_fails(url, sandbox))


def lock_the_schema(admin: Admin) -> None:
    admin.does("REVOKE ALL ON SCHEMA public FROM PUBLIC", f'REVOKE ALL ON SCHEMA public FROM "{admin.role}"')


def others_journal(admin: Admin) -> None:
    admin.has_journal()


def others_journal_in_a_locked_schema(admin: Admin) -> None:
    admin.has_journal()
    lock_the_schema(admin)


def may_only_read(admin: Admin) -> None:
    admin.has_journal()
    admin.does(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{admin.role}"')


def lacks_the_sequence(admin: Admin) -> None:
    may_only_read(admin)
    admin.does(f'GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{admin.role}"')


def may_not_create(admin: Admin) -> None:
    admin.does(
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        f'REVOKE ALL ON SCHEMA public FROM "{admin.role}"',
        f'GRANT USAGE ON SCHEMA public TO "{admin.role}"',
    )


@pytest.mark.parametrize(
    "lacks",
    [
        lock_the_schema,
        may_not_create,
        others_journal,
        others_journal_in_a_locked_schema,
        may_only_read,
        lacks_the_sequence,
    ],
)
def test_the_right_that_is_missing_is_given_word_for_word(
    admin: Admin, drive: Drive, sandbox: Sandbox, lacks: Callable[[Admin], None]
) -> None:
    lacks(admin)
    url = admin.guest()
    message = refused(url, drive)
    grants = re.findall(r"GRANT .*?;", message)
    assert grants
    assert re.findall(r"GRANT .*?;", doctor_fails(url, sandbox)) == grants
    admin.does(*grants)
    service = Service(payout_record())
    with Journal(url) as journal:
        drive(transport=service.transport)(pay(journal))
        assert state_of(journal) is ACCEPTED
    assert service.sent == 1


def test_a_right_that_is_granted_while_the_process_runs_is_seen(admin: Admin, drive: Drive) -> None:
    may_only_read(admin)
    service = Service(payout_record())
    with Journal(admin.guest()) as journal:
        assert state_of(journal, "earlier") is ACCEPTED, "who may read, reads"
        sdk = drive(transport=service.transport)
        with pytest.raises(ConfigurationError, match="GRANT") as caught:
            sdk(pay(journal))
        admin.does(*re.findall(r"GRANT .*?;", caught.value.message))
        sdk(pay(journal))
    assert service.sent == 1


def test_an_outage_after_the_first_use_is_no_refusal(admin: Admin, drive: Drive) -> None:
    """A payment may have been part of it, whichever journal of this process it was made with."""
    url, service = admin.guest(), Service(payout_record())
    with Journal(url) as journal:
        put(journal, "before")
        admin.cuts_all()
        with another_process(url) as new:
            for each in (journal, new):
                with pytest.raises(JournalError) as caught:
                    drive(transport=service.transport)(pay(each))
                assert caught.value.may_have_executed
    assert service.sent == 0
