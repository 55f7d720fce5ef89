"""Connections that end every wait in time, and what becomes of those that come too late."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest
from sqlalchemy import make_url

from journal.test_bounds import BOUND, MUCH
from momopay.journal.bounds import bounded
from momopay.journal.postgresql_connection import BoundedConnection, TooLateError, connect_in_time
from patience import until
from postgresql import PostgresqlServer


@pytest.fixture
def connected(postgresql: PostgresqlServer) -> BoundedConnection:
    at = make_url(postgresql.new_database())
    return BoundedConnection.connect(host=at.host, port=at.port, user=at.username, dbname=at.database, autocommit=True)


def test_a_statement_without_an_answer_ends_in_time_and_with_it_the_connection(connected: BoundedConnection) -> None:
    begun = time.monotonic()
    with bounded(BOUND), pytest.raises(TooLateError):
        connected.execute("SELECT pg_sleep(60)")
    assert time.monotonic() - begun < BOUND + MUCH
    assert connected.closed


def test_nothing_is_sent_when_the_time_is_over(connected: BoundedConnection) -> None:
    with bounded(0), pytest.raises(TooLateError, match="no time left"):
        connected.execute("SELECT 1")


def test_an_answer_in_time_leaves_the_connection_open(connected: BoundedConnection) -> None:
    with bounded(MUCH):
        assert connected.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.errors.UndefinedTable), bounded(MUCH):
        connected.execute("SELECT * FROM missing")
    assert not connected.closed
    connected.close()


def test_a_connection_that_comes_too_late_is_closed(connected: BoundedConnection) -> None:
    later = threading.Event()

    def connect() -> BoundedConnection:
        later.wait(MUCH)
        return connected

    with bounded(0.05), pytest.raises(TooLateError, match="no connection"):
        connect_in_time(connect)
    assert not connected.closed
    later.set()
    until(lambda: bool(connected.closed), "the late connection was closed")


def test_what_connecting_raises_is_raised() -> None:
    def connect() -> BoundedConnection:
        raise psycopg.OperationalError("refused")

    with pytest.raises(psycopg.OperationalError, match="refused"):
        connect_in_time(connect)
