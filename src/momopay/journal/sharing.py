"""The databases that this process has open. All its journals with one URL share one, and so its connections.

Each account of a database has a `Journal` of its own. With connections of their own, a platform of a hundred accounts
would need more than a server has.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from functools import partial, partialmethod
from typing import Final
from weakref import ReferenceType, ref

from sqlalchemy import URL, Connection

from momopay._core.journal_url import SQLITE, check_name
from momopay._core.wiring import load
from momopay.errors import ConfigurationError
from momopay.journal.database import LONGEST_WAIT, Database

_open: Final[dict[str, list[ReferenceType[Database]]]] = {}  # by URL


class OpenDatabase:
    """One journal's use of a `Database` that all journals of this process with its URL share."""

    def __init__(self, shared: Database, *, create: bool) -> None:
        self.shared = shared
        self._may_create = create
        self._is_closed = False
        self.under_way: set[str] = set()  # the leases of this journal's calls that have begun and not returned
        shared.users.add(self)

    def connection(self, *, seconds: float = LONGEST_WAIT, begin: bool = False) -> AbstractContextManager[Connection]:
        """Return a context with a connection: see `Database.connection`."""
        if self._is_closed and not self.under_way:
            raise ConfigurationError("this journal is closed: make another Journal. Nothing was sent")
        return self.shared.connection(seconds=seconds, begin=begin, create=self._may_create)

    # In a transaction, the context must not wait for anything else: it blocks other writers.
    transaction: partialmethod[AbstractContextManager[Connection]] = partialmethod(connection, begin=True)

    def close(self) -> None:
        """Close the database for this journal. Its calls that are under way can still use it."""
        self._is_closed = True
        self.shared.users.discard(self)
        if not self.shared.users:
            made = _open.get(self.shared.key, [])
            made[:] = [each for each in made if each() is not self.shared]  # the next journal opens it anew
            self.shared.close()


def _shared(made: Database) -> Database:
    """Return the database that this process has open for a URL, or the one that was just made if there is none."""
    # Without a lock, which an interrupt could leave held. Of threads that come here at the same time, all take the
    # first in the list.
    opened = _open.setdefault(made.key, [])
    opened.append(ref(made, partial(_forget, opened)))
    return next(found for each in list(opened) if (found := each()) is not None)


def _forget(opened: list[ReferenceType[Database]], dead: ReferenceType[Database]) -> None:
    with suppress(ValueError):
        opened.remove(dead)


def open_database(url: URL, *, create: bool = True) -> OpenDatabase:
    """Return the database of a URL; raise ConfigurationError if a journal cannot be in it."""
    check_name(url.drivername)
    # Imported when needed, because each module imports its driver. It also compiles `schema.Now` to its database's SQL.
    is_sqlite = url.drivername in SQLITE
    kind = load("journal.sqlite.SqliteDatabase" if is_sqlite else "journal.postgresql.PostgresqlDatabase")
    made: Database = kind(url)
    return OpenDatabase(_shared(made), create=create)
