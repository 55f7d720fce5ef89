"""Recognise a pool of connections, such as PgBouncer, that gives one connection of the server to several clients.

The journal needs connections of its own: a process counts as alive while the server has one from it, and an outcome
that only the wrong process can read would be no outcome. A pool in session mode gives each client its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

from sqlalchemy import Connection

from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import bounded

_ROUNDS: Final = 3
_LOOKS: Final = 8  # in each round, as other clients may happen to leave the same connection to this one
_TIMEOUT: Final = 2.0  # seconds for a pool in session mode to have one more connection
_MIXED_UP: Final = {"26000", "42P05"}  # a prepared statement is another connection's: it is missing, or there already
_STATEMENT_MODE: Final = "statement pooling"  # words of PgBouncer's refusal of BEGIN


def check(first: Connection, connect: Callable[[], AbstractContextManager[Connection]]) -> None:
    """Raise ConfigurationError if two clients can get the same connection of the server.

    `connect` returns a context with another connection, in a transaction.
    """
    driver: Any = first.connection.dbapi_connection
    own = _backend(first)
    if driver.info.backend_pid == own:  # a pool tells its clients another number, to cancel statements by
        return
    try:
        with ExitStack() as held:
            for _ in range(_ROUNDS):
                with bounded(_TIMEOUT):
                    other = _backend(held.enter_context(connect()))
                if other == own or any(_backend(first) != own for _ in range(_LOOKS)):
                    raise refused("transaction")
    except JournalError as error:
        refusal = explain(getattr(error.__cause__, "orig", None))
        if refusal is not None:
            raise refusal from error
        return  # the pool has no further connection, because each client keeps its own


def explain(reason: Any) -> ConfigurationError | None:
    """Return the refusal for an error of the driver that only such a pool brings."""
    if _STATEMENT_MODE in str(reason):
        return refused("statement")
    return refused("transaction") if getattr(reason, "sqlstate", None) in _MIXED_UP else None


def refused(mode: str) -> ConfigurationError:
    """Return the error for a pool in this mode."""
    return ConfigurationError(
        f"the journal's PostgreSQL is behind a pool (PgBouncer or another one) in {mode} mode, which gives a connection"
        " to another client while this process counts on it; nothing was sent. Give the journal the URL of the server"
        " itself, which hosting companies call direct, or of a pool in session mode. In pgbouncer.ini, under"
        " [databases], an entry of its own does: momopay = host=... dbname=... pool_mode=session"
    )


def _backend(connection: Connection) -> int:
    """Return the process of the server that serves a connection."""
    pid: int = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return pid
