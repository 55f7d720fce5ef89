"""The versions of the tables: their frozen SQL, and the upgrade of what they made."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Table, delete, insert, select

from journal.constants import ACCEPTED, COLLECTION, PAYOUT, UNKNOWN
from journal.database_kit import another_process, before_each, execute, in_threads, store_of
from journal.kit import found, put, statuses_of
from journal.records import callback
from journal.versions import version_1
from journal.versions.kit import EARLIER, connected, fingerprint, load, structure_of
from momopay import ConfigurationError, Journal, JournalError, RequestValidationError
from momopay.journal import upgrade
from momopay.journal.journal import internals
from momopay.journal.schema import metadata
from momopay.journal.structure import columns_of
from momopay.journal.upgrade import VERSION

ACCOUNTS: Final = ("default", "second shop")
SQL = Path(upgrade.__file__).with_name("versions")
# Of the file of each version. One that a release has may not change any more: write the next version instead.
FROZEN: Final = {
    "1.postgresql.sql": "ddd366b8718f88d7",
    "1.sqlite.sql": "33a24ee7edf59f58",
    "2.postgresql.sql": "1eb1f2464e2cee89",
    "2.sqlite.sql": "1eb1f2464e2cee89",
}


def structure(url: str) -> Mapping[str, str]:
    """Return what tables and indexes a journal has."""
    with Journal(url, create=False) as journal, store_of(journal).database.connection() as connection:
        return structure_of(connection)


def test_the_sql_of_a_version_is_frozen() -> None:
    assert {path.name: fingerprint(path) for path in sorted(SQL.iterdir())} == FROZEN, (
        "a version that was released may not change: add the next one (contributing.md, 'Add a column')"
    )


@pytest.mark.both_databases
def test_the_definitions_are_those_of_the_newest_version(url: str) -> None:
    """A definition that changes without a version fails here: of a table, an index or the condition of one."""
    with connected(url) as connection:
        metadata.create_all(connection)
        described = structure_of(connection)
        metadata.drop_all(connection)
    with Journal(url.replace("payouts.db", "other.db")) as journal:
        journal.get("r")
    assert described == structure(url.replace("payouts.db", "other.db"))
    assert len(described) > 20


# Upgrades


@pytest.mark.both_databases
@pytest.mark.parametrize("version", EARLIER)
def test_an_upgraded_journal_has_what_a_new_one_has(url: str, tmp_path: Path, version: int) -> None:
    load(url, version)
    with Journal(url, create=False) as journal:
        assert journal.check().version == VERSION
    upgraded = structure(url)
    with connected(url) as connection:
        for table in metadata.sorted_tables:
            connection.exec_driver_sql(f"DROP TABLE {table.name}")
    if url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path / 'new.db'}"
    with Journal(url) as journal:
        journal.get("r")
    assert upgraded == structure(url)


@pytest.mark.parametrize("version", EARLIER)
def test_an_upgraded_journal_behaves_as_a_new_one_with_the_same_rows(url: str, tmp_path: Path, version: int) -> None:
    """Every reading method, for every entry of two accounts; and what is written afterwards."""
    load(url, version)
    new = f"sqlite:///{tmp_path / 'new.db'}"
    with Journal(url) as journal:
        said = {account: everything(url, account) for account in ACCOUNTS}
        rows = {table: [dict(row) for row in select_all(journal, table)] for table in metadata.sorted_tables}
    assert {entry.reference for entry in said["default"]["entries"]} > {"order", "twice", "sending", "told", "released"}
    assert said["default"]["check"].paid_twice == ("twice",)
    with Journal(new) as journal, store_of(journal).database.transaction() as connection:
        for table in metadata.sorted_tables:
            connection.execute(delete(table))
            if rows[table]:
                connection.execute(insert(table), rows[table])
    for account, known in said.items():
        again = everything(new, account)
        assert [name for name, value in known.items() if again[name] != value] == []
    for database in (url, new):
        with Journal(database) as journal:
            pay_in_every_way(journal)
    assert everything(url, "default", with_times=False) == everything(new, "default", with_times=False)


def select_all(journal: Journal, table: Table) -> list[Any]:
    with store_of(journal).database.connection() as connection:
        return list(connection.execute(select(table)).mappings())


def everything(url: str, account: str, *, with_times: bool = True) -> dict[str, Any]:
    """Return what every reading method of a journal returns."""
    with Journal(url, account=account, create=False) as journal:
        entries = list(journal.entries())
        histories = [journal.history(each.reference, each.kind) for each in entries]
        if not with_times:
            return {
                "entries": [(e.reference, e.kind, e.state, statuses_of(e), e.attempts, e.revision) for e in entries]
            }
        return {
            "entries": entries,
            "histories": histories,
            "open": journal.open(),
            "unresolved": journal.unresolved(),
            "check": journal.check(),
            "activity": journal.activity(3),
            "receipt": journal.by_receipt("SGR7XYZ123"),
            "refunded": [store_of(journal).refunded(each) for each in entries],
            "due": [sorted(map(without_age, each)) for each in internals(journal).queue.due(has_handler=True)[:4]],
        }


def without_age(due: Any) -> str:
    return re.sub(r"known_for=[0-9.]+", "", repr(due))


def pay_in_every_way(journal: Journal) -> None:
    """Begin, refuse, refund, release and deliver, also what the version before began."""
    put(journal, "new")
    put(journal, "refused", transaction_id="after a refusal", status="SUCCESS")
    put(journal, "order-R4", amount=5, refund_of="order")
    with pytest.raises(RequestValidationError):
        put(journal, "order-R5", amount=100, refund_of="order")
    assert store_of(journal).release(found(journal, "sending", PAYOUT), "Njeri")
    put(journal, "third time", ACCEPTED, COLLECTION, transaction_id="prompt 3", status="SUCCESS")
    for reference, is_new in (("told", False), ("failed to be told", True)):
        with journal.handling(callback(reference, f"t-{reference}")) as may_handle:
            assert may_handle is is_new
    assert journal.check().differing == ()


@pytest.mark.both_databases
@pytest.mark.parametrize("version", EARLIER)
def test_processes_that_come_at_once_upgrade_a_journal_once(url: str, version: int) -> None:
    load(url, version)
    with contextlib.ExitStack() as stack:
        journals = iter([stack.enter_context(another_process(url, create=number % 2 == 0)) for number in range(6)])
        assert None not in in_threads(6, lambda: next(journals).get("told"))
    with connected(url) as connection:
        noted = connection.exec_driver_sql("SELECT version FROM momopay_versions ORDER BY 1").scalars().all()
        assert noted == list(range(2, VERSION + 1))
        assert connection.exec_driver_sql("SELECT version FROM momopay_journal").scalars().all() == [VERSION]


@pytest.mark.both_databases
@pytest.mark.parametrize("version", EARLIER)
def test_an_upgrade_that_fails_changes_nothing_and_is_done_by_the_next(url: str, version: int) -> None:
    load(url, version)
    with connected(url) as connection:
        before = columns_of(connection)
        failing = before_each(fail_at("UPDATE momopay_journal SET version"))
        with Journal(url) as journal, failing, pytest.raises(JournalError):
            journal.get("told")
        assert columns_of(connection) == before
        with Journal(url) as journal:
            assert journal.get("told")


def fail_at(statement: str) -> Callable[[str], None]:
    def fail(text: str) -> None:
        if text.startswith(statement):
            raise OSError("the disk is full")

    return fail


@pytest.mark.both_databases
def test_a_process_of_version_1_goes_on_beside_newer_ones(url: str) -> None:
    """It has the journal open during the upgrade. Each sees what the other paid, and none pays the same twice."""
    load(url, 1)
    with connected(url) as old:
        before = 0
        for number in range(7):  # so many times that PostgreSQL has plans for its statements
            before = version_1.begin(old, f"old-{number}")
            assert version_1.state_of(old, f"old-{number}") == "SENDING"
        with Journal(url) as journal:
            assert found(journal, "old-0").state is UNKNOWN  # of a process that is not known to live
            put(journal, "new-0")
            for number in range(7, 14):
                assert version_1.state_of(old, f"new-{number - 7}") == "ACCEPTED"
                assert version_1.begin(old, f"old-{number}") > before
                assert found(journal, f"old-{number}").attempts == 1
                put(journal, f"new-{number - 6}")
            old.exec_driver_sql(version_1.BIND.format(account="a third"))
        with Journal(url, account="a third") as third:
            put(third)


@pytest.mark.both_databases
def test_payments_of_version_1_and_of_this_one_exclude_each_other(url: str) -> None:
    """What a payment has checked, such as the sum of refunds, stays true until it is committed."""
    load(url, 1)
    with Journal(url) as journal, connected(url) as old:
        journal.get("r")
        version_1.begin(old, "old", commit=False)
        with ThreadPoolExecutor(1) as pool:
            beginning = pool.submit(put, journal, "new")
            with pytest.raises(TimeoutError):
                beginning.result(0.3)
            old.exec_driver_sql("COMMIT")
            assert beginning.result(20).state is ACCEPTED
        began, go_on = threading.Event(), threading.Event()

        def stop(text: str) -> None:
            if text.startswith("INSERT INTO momopay_payments"):
                began.set()
                assert go_on.wait(20)

        with before_each(stop, journal), ThreadPoolExecutor(2) as pool:
            beginning = pool.submit(put, journal, "newer")
            assert began.wait(20)
            older = pool.submit(version_1.begin, old, "older")
            with pytest.raises(TimeoutError):
                older.result(0.3)
            go_on.set()
            assert beginning.result(20).state is ACCEPTED
            assert older.result(20) > 0


@pytest.mark.both_databases
def test_a_copy_that_version_1_made_of_an_upgraded_journal_is_upgraded(url: str) -> None:
    """It knows nothing of the new tables and columns, and copies the number of the version."""
    load(url, 1)
    with connected(url) as connection:
        connection.exec_driver_sql("UPDATE momopay_journal SET version = 2")
    with Journal(url) as journal:
        assert journal.check().version == VERSION
        put(journal)


# Journals that cannot be upgraded


@pytest.mark.both_databases
def test_a_newer_journal_is_used_only_if_it_allows_that(journal: Journal, url: str) -> None:
    put(journal)
    execute(journal, "UPDATE momopay_journal SET version = 99")
    for oldest_writer in (None, VERSION + 1, 99):
        if oldest_writer:
            execute(journal, "DELETE FROM momopay_versions WHERE version = 99")
            execute(journal, f"INSERT INTO momopay_versions VALUES (99, {oldest_writer}, '2027-01-01')")
        for create in (True, False):
            with (
                another_process(url, create=create) as later,
                pytest.raises(ConfigurationError, match="version 99") as caught,
            ):
                later.get("r")
            assert "Update momopay on this machine" in str(caught.value)
            assert not caught.value.may_have_executed
    execute(journal, f"UPDATE momopay_versions SET oldest_writer = {VERSION} WHERE version = 99")
    with another_process(url, create=False) as later:
        put(later, "s")
        assert later.check().version == 99
    assert found(journal, "s").attempts == 1
    assert execute(journal, "SELECT version FROM momopay_journal") == [(99,)]


def test_a_journal_from_before_version_1_is_refused_and_left_as_it_is(journal: Journal, url: str) -> None:
    put(journal)
    execute(journal, "ALTER TABLE momopay_journal RENAME COLUMN sequence TO something")
    with another_process(url) as later, pytest.raises(ConfigurationError, match="a journal of an earlier version"):
        later.get("r")
    assert execute(journal, "SELECT version, something FROM momopay_journal") == [(VERSION, 0)]
