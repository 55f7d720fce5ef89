"""Statements that go to the driver without SQLAlchemy's `Connection`, on both databases."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, bindparam, select, text, update
from sqlalchemy.exc import OperationalError, ProgrammingError

from journal.kit import found, put
from momopay import Journal, JournalState
from momopay.journal.bounds import bounded
from momopay.journal.prepared import Prepared
from momopay.journal.schema import payments

_row = payments.c
_IS_IT = _row.account == "default", _row.reference == bindparam("the_reference")
READ = Prepared(select(_row.reference, _row.attempts, _row.code.label("why")).where(*_IS_IT))
CHANGE = Prepared(update(payments).where(*_IS_IT, _row.state == "UNKNOWN").values(code=bindparam("new_code")))


@pytest.fixture
def engine(journal: Journal) -> Engine:
    put(journal, "r", JournalState.UNKNOWN)
    return journal._database._own.database.engine


def connection_of(engine: Engine, *, interrupted: bool = False) -> Any:
    """Return the driver's connection that a statement uses."""
    seen: list[Any] = []

    def before(cursor: Any) -> None:
        seen.append(cursor.connection)
        if interrupted:
            raise KeyboardInterrupt

    with bounded(30), suppress(KeyboardInterrupt):
        READ.execute(engine, {"the_reference": "r"}, before)
    return seen[0]


def test_rows_come_with_their_names(engine: Engine) -> None:
    with bounded(30):
        assert READ.execute(engine, {"the_reference": "r"}).rows == [{"reference": "r", "attempts": 1, "why": None}]
        assert READ.execute(engine, {"the_reference": "another"}).rows == []


def test_what_it_changes_is_counted_and_committed(engine: Engine, journal: Journal) -> None:
    with bounded(30):
        assert CHANGE.execute(engine, {"the_reference": "r", "new_code": "a"}).rowcount == 1
        assert CHANGE.execute(engine, {"the_reference": "another", "new_code": "b"}).rowcount == 0
    assert found(journal).code == "a"


def test_a_refused_statement_keeps_its_connection(engine: Engine) -> None:
    refused = Prepared(text("SELECT no_such_column FROM momopay_payments"))
    first = connection_of(engine)
    with bounded(30), pytest.raises(ProgrammingError if engine.name == "postgresql" else OperationalError) as caught:
        refused.execute(engine, {})
    assert caught.value.hide_parameters
    assert connection_of(engine) is first


def test_an_interrupt_costs_the_connection(engine: Engine) -> None:
    first = connection_of(engine)
    assert connection_of(engine, interrupted=True) is first
    assert connection_of(engine) is not first
