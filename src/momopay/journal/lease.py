"""Who holds a row: one claim at a time, for as long as its process lives and its lease lasts."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4
from weakref import WeakSet

from sqlalchemy import URL, Connection, RowMapping

from momopay.errors import ConfigurationError
from momopay.journal.postgresql import PostgresqlDatabase
from momopay.journal.schema import Database, create_schema, database_errors
from momopay.journal.sqlite import SqliteDatabase


@dataclass(frozen=True)
class Lease:
    """One call's claim to a row."""

    id: str = field(default_factory=lambda: uuid4().hex)


_holdings: WeakSet[LeaseHolder] = WeakSet()


class LeaseHolder:
    """The claims of this process, and its way to the database."""

    def __init__(self, url: URL) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._of_parents: list[Database] = []
        self._claims: set[str] = set()
        self._closed = False
        self._set_up = False
        self._database = _database_at(url)
        self._url = self._database.engine.url  # whole: a child that changes its folder has the same journal
        _holdings.add(self)

    def unlock_in_a_child(self) -> None:
        """Forget a lock that a thread of the parent held while it forked: nobody here would ever let go of it."""
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """Give a connection on which each statement commits by itself.

        Raises:
            JournalError: The database failed.
        """
        with database_errors(), self._ready().engine.connect() as connection:
            yield connection

    @contextmanager
    def claim(self) -> Generator[Lease]:
        """Make a claim that lasts no longer than this context."""
        with self._lock:
            self._heed_a_fork()
        claim = Lease()
        self._claims.add(claim.id)
        try:
            yield claim
        finally:
            self._claims.discard(claim.id)

    def holds(self, claim: Lease) -> bool:
        """Tell whether the claim is this process's; a fork's child holds none of its parent's."""
        with self._lock:
            self._heed_a_fork()
            return claim.id in self._claims

    def mark(self, claim: Lease, lease: float) -> dict[str, object]:
        """Give the columns of a row that the claim holds for so many seconds.

        Raises:
            JournalError: The database failed.
        """
        with database_errors():
            sender = self._ready().register_process()
        return {"claim": claim.id, "sender": sender, "lease_until": _now() + lease}

    def is_over(self, row: RowMapping) -> bool:
        """Tell whether nobody holds the row any more: its process died, gave up, or took too long.

        Raises:
            JournalError: The database failed.
        """
        database = self._ready()
        if row["sender"] == database.sender:
            return row["claim"] not in self._claims
        with database_errors():
            return row["lease_until"] <= _now() or not database.is_alive(row["sender"])

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._closed = True
            if self._process == os.getpid():  # else all there is belongs to the parent
                self._database.close()

    def _ready(self) -> Database:
        with self._lock:
            if self._closed:
                raise ConfigurationError("this journal is closed; open another")
            self._heed_a_fork()
            if not self._set_up:
                with database_errors():
                    create_schema(self._database)
                self._set_up = True
            return self._database

    def _heed_a_fork(self) -> None:
        """Start anew in a fork's child: what it inherited is its parent's, and closing it here would close it there."""
        if self._process != os.getpid():
            self._of_parents.append(self._database)
            self._database = _database_at(self._url)
            self._process = os.getpid()
            self._claims = set()


def _database_at(url: URL) -> Database:
    match url.drivername:
        case "sqlite" | "sqlite+pysqlite":
            return SqliteDatabase(url)
        case "postgresql" | "postgresql+psycopg":
            return PostgresqlDatabase(url.set(drivername="postgresql+psycopg"))
        case other:
            raise ConfigurationError(f"a journal is kept in sqlite:/// or postgresql+psycopg://, not in {other}://")


def _now() -> float:
    return datetime.now(UTC).timestamp()


def _unlock_in_a_child() -> None:
    for holding in _holdings:
        holding.unlock_in_a_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_a_child)
