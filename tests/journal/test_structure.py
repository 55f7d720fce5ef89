"""A journal that lost an index, or has one of another version, says so and gets it back."""

import logging

import pytest
import sqlalchemy as sa

from journal.database_kit import execute, store_of
from journal.kit import put
from momopay import Journal
from momopay.journal.structure import differing_indexes
from momopay.journal.upgrade import VERSION

STALE = "CREATE INDEX momopay_transactions_to_check ON momopay_transactions (account, ended_at) WHERE status = 'FAILED'"


@pytest.mark.both_databases
def test_a_check_finds_an_index_that_is_missing_or_has_another_condition(journal: Journal, url: str) -> None:
    put(journal)
    assert (journal.check().differing, journal.check().needs_attention) == ((), False)
    execute(journal, "CREATE INDEX momopay_index_of_ours ON momopay_payments (amount)")  # somebody's own
    execute(journal, "CREATE TABLE momopay_orders (id INTEGER)")
    assert journal.check().differing == ()
    execute(journal, "DROP INDEX momopay_payments_by_phone")
    execute(journal, "DROP INDEX momopay_transactions_to_check")
    execute(journal, STALE)
    checked = journal.check()
    assert checked.differing == ("momopay_payments_by_phone", "momopay_transactions_to_check")
    assert checked.needs_attention
    to_do = Journal.migrate(url, check=True)
    assert to_do == "make these indexes anew: momopay_payments_by_phone, momopay_transactions_to_check"
    assert journal.check().differing == checked.differing
    assert Journal.migrate(url) == "made" + to_do.removeprefix("make")
    assert (journal.check().differing, Journal.migrate(url, check=True)) == ((), "")


@pytest.mark.both_databases
def test_the_indexes_of_a_newer_journal_are_not_judged(journal: Journal) -> None:
    put(journal)
    execute(journal, f"UPDATE momopay_journal SET version = {VERSION + 1}")
    execute(journal, f"INSERT INTO momopay_versions VALUES ({VERSION + 1}, {VERSION}, 'then')")
    execute(journal, "DROP INDEX momopay_payments_by_phone")
    with store_of(journal).database.transaction() as connection:
        assert differing_indexes(connection) == {}


@pytest.mark.both_databases
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_an_index_that_was_not_built_to_the_end_differs(journal: Journal) -> None:
    put(journal)
    execute(journal, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'momopay_payments_by_phone'::regclass")
    assert journal.check().differing == ("momopay_payments_by_phone",)


@pytest.mark.both_databases
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_without_the_right_to_compare_a_check_says_so(
    journal: Journal, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(journal)
    execute(journal, "DROP INDEX momopay_payments_by_phone")
    with store_of(journal).database.transaction() as connection:
        name = connection.execute(sa.select(sa.func.current_schema())).scalar_one()
        role = f"r{name}"
        for statement in (
            f"CREATE ROLE {role}",
            f"GRANT USAGE ON SCHEMA {name} TO {role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {role}",
            "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
        ):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"SET LOCAL ROLE {role}")
        with caplog.at_level(logging.WARNING, "momopay"):
            assert differing_indexes(connection) == {}
        assert "indexes were not compared" in caplog.text
        connection.exec_driver_sql("RESET ROLE")
        connection.exec_driver_sql("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")
    assert journal.check().differing == ("momopay_payments_by_phone",)
