"""The statements that change one row, and the clock that leases are measured by."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import select, update

from journal.kit import begin, found, lease_of, put
from momopay import Journal, JournalState
from momopay.journal.schema import insert_new, lease_left, payments, update_one

pytestmark = pytest.mark.both_databases


def test_statements_report_whether_they_changed_a_row(journal: Journal) -> None:
    put(journal, "r", JournalState.REFUSED)
    with journal._database.connection() as connection:
        row: dict[str, object] = dict(connection.execute(payments.select()).mappings().one())
        row["lease_seconds"] = row.pop("lease_until")
        assert not insert_new(connection, payments, row | {"state": "ACCEPTED"})
        assert insert_new(connection, payments, row | {"reference": "another"})
        change = update(payments).where(payments.c.reference == "r").values(state="UNKNOWN")
        assert not update_one(connection, change.where(payments.c.state == "SENDING"))
        assert update_one(connection, change.where(payments.c.state == "REFUSED"))
    assert found(journal).state is JournalState.UNKNOWN


def test_the_databases_clock_measures_a_lease(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, seconds=100)
        with journal._database.connection() as connection:
            until, left = connection.execute(select(payments.c.lease_until, lease_left(payments))).one()
    assert 99 < left <= 100
    assert abs(until - time.time() - left) < 1  # this machine is the database's
