"""The journal in PostgreSQL, for many machines.

A process is alive while one connection of its own holds an advisory lock, which the server releases when it sees the
connection end.

The journal is in one schema, whoever connects: two users whose own schemas come first in their search paths must not
have a journal each, and pay everything twice. So each connection gets the schema in which the journal was found.

Thread safety: every thread may call everything here; two that register at once get the same id.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from secrets import randbits
from typing import Any, Final

from psycopg import Error
from psycopg.errors import InsufficientPrivilege
from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select, text
from sqlalchemy.exc import InvalidatePoolError, ProgrammingError, SQLAlchemyError

from momopay._redaction import clear_frames
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.bounds import bounded, holding, seconds_left
from momopay.journal.postgresql_connection import BoundedConnection, connect_in_time
from momopay.journal.prepared import Prepared, Result

# The advisory lock of whoever creates the tables: "momopay1".
_SETUP_LOCK: Final = 0x6D6F6D6F70617931
_CONNECT_ARGS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds; no keepalives are sent while something waits to be acknowledged
}
# How many threads use the database at once. The rest wait until their own bounds, which the pool does not know.
_CONNECTIONS: Final = 15
# Seconds for an idle connection to show that it works. Then another one is made.
_PING: Final = 5.0

# Executed whenever a connection is taken from the pool. It also shows that the connection works.
_PREPARE: Final = "SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false)"
# The first time: no commit returns before it is on disk, even where the server's default is synchronous_commit=off.
_PREPARE_NEW: Final = (
    _PREPARE
    + ", CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"
)
_PREPARE_NEW_IN_SCHEMA: Final = _PREPARE_NEW + ", set_config('search_path', %s, false)"
# A search path counts as named if the URL or PGOPTIONS has it, and not if it is the server's, the role's or the user's.
_NAMED_PATH: Final = text(
    "SELECT count(*) FROM pg_settings WHERE name = 'search_path' AND source = 'client' AND setting NOT LIKE '%$user%'"
)
_SCHEMAS: Final = text(
    "SELECT quote_ident(nspname) AS name, has_schema_privilege(n.oid, 'USAGE') AS may_use"
    " FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace AS n ON n.oid = relnamespace"
    " WHERE relname = 'momopay_journal' AND relkind IN ('r', 'p') AND relpersistence <> 't' ORDER BY 1"
)
_CURRENT: Final = text("SELECT quote_ident(current_schema()), quote_ident(current_user)")


class PostgresqlDatabase:
    """A database that many machines reach, as one process uses it."""

    def __init__(self, url: URL) -> None:
        self._registering = threading.Lock()
        self._registration: Connection | None = None
        self.sender: str | None = None
        # The schema of the journal and the user, once they are known, quoted; and whether the URL names the schema.
        self._schema = self._user = ""
        self._is_named = False
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        self.engine: Engine = create_engine(
            url,
            connect_args={name: value for name, value in _CONNECT_ARGS.items() if name not in url.query},
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
            max_overflow=-1,
        )
        event.listen(self.engine, "do_connect", _connect)
        event.listen(self.engine, "checkout", self._prepare)

    @contextmanager
    def connect(self) -> Generator[Connection]:
        """Yield a connection on which each statement commits by itself."""
        with holding(self._slots), self._naming_the_grant(), self.engine.connect() as connection:
            yield connection

    def execute(self, statement: Prepared, values: Mapping[str, object]) -> Result:
        """Execute one statement, which commits by itself."""
        with holding(self._slots), self._naming_the_grant():
            return statement.execute(self.engine, values)

    @contextmanager
    def connect_for_setup(self, *, create: bool) -> Generator[Connection]:  # noqa: ARG002  as `SqliteDatabase`
        """Yield a connection, within a transaction, while no other process has one from this method."""
        with (
            self._naming_the_grant(),
            self.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection,
            connection.begin(),
        ):
            connection.execute(select(func.pg_advisory_xact_lock(_SETUP_LOCK)))
            self._find_schema(connection)
            yield connection

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        with holding(self._registering):
            self.sender = self.sender or str(randbits(62))
            if self._registration is not None:
                try:
                    with bounded(min(_PING, seconds_left() / 2)):
                        registered: Any = self._registration.connection.dbapi_connection
                        registered.execute("SELECT 1")  # by the driver, as each payment asks
                except (Error, SQLAlchemyError):
                    self._unregister()
                else:
                    return self.sender
            self._registration = self.engine.connect()
            try:
                # It keeps no timeout of the server, which would be that of the first call.
                held = self._registration.scalar(
                    select(
                        func.pg_try_advisory_lock(int(self.sender)), func.set_config("statement_timeout", "0", False)
                    )
                )
            except BaseException:
                self._unregister()
                raise
            # Else this process's earlier connection holds it, which was cut. It shows the process as live until the
            # server notices the cut.
            if not held:
                self._unregister()
            return self.sender

    def is_alive(self, sender: str) -> bool:
        """Return whether the process of that id is alive."""
        # Shared and for one statement: two processes that ask at once must not take each other for the dead one.
        with self.connect() as connection:
            return not connection.scalar(select(func.pg_try_advisory_xact_lock_shared(int(sender))))

    def close(self) -> None:
        """End the registration of this process and close all connections."""
        with self._registering:
            self._unregister()
            self.sender = None
            self.engine.dispose()

    def _unregister(self) -> None:
        registration, self._registration = self._registration, None
        if registration is not None:
            registration.invalidate()  # a connection that went back to the pool would keep the lock
            registration.close()

    def _prepare(self, connection: BoundedConnection, record: Any, _proxy: object) -> None:
        """Set the server's timeouts; let the pool replace the connection if it does not work."""
        left = seconds_left()
        # Before the client's own bound, which costs the connection; a lock first, as it has the clearer error.
        timeouts = [f"{max(1, int(left * share * 1000))}ms" for share in (0.8, 0.9)]
        try:
            with bounded(min(_PING, left / 2)):
                if "prepared" in record.info:
                    connection.execute(_PREPARE, timeouts)
                elif self._is_named or not self._schema:
                    connection.execute(_PREPARE_NEW, timeouts)
                else:
                    connection.execute(_PREPARE_NEW_IN_SCHEMA, [*timeouts, self._schema])
        except Error as error:
            raise InvalidatePoolError from error
        record.info["prepared"] = True

    @contextmanager
    def _naming_the_grant(self) -> Generator[None]:
        """Raise a JournalError that says which rights are missing."""
        try:
            yield
        except ProgrammingError as error:
            if not isinstance(error.orig, InsufficientPrivilege):
                raise
            clear_frames(error)
            raise self._missing_right(str(error.orig.diag.message_primary)) from error

    def _missing_right(self, problem: str) -> JournalError:
        at, user = f"SCHEMA {self._schema}", self._user
        return JournalError(
            f"the journal cannot be read or written: {problem}. A user of the journal needs GRANT USAGE ON {at} TO"
            f" {user}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN {at} TO {user}; and, to create it, GRANT"
            f" CREATE ON {at} TO {user}. The tables of an older version change when their owner opens the journal"
        )

    def _find_schema(self, connection: Connection) -> None:
        """Let this and all later connections use the schema of the journal, or the current one for a new journal."""
        self._schema, self._user = connection.execute(_CURRENT).one()
        self._is_named = bool(connection.scalar(_NAMED_PATH))
        if self._is_named:
            return
        schemas = connection.execute(_SCHEMAS).all()
        if len(schemas) > 1:
            names = [each.name for each in schemas]
            raise ConfigurationError(
                f"the database has journals in several schemas, {', '.join(names)}: name the one to be used in the URL,"
                f" as in ?options=-csearch_path%3D{names[0]}"
            )
        for each in schemas:
            self._schema = each.name
            # Without this right the tables could not even be seen, and would seem to be missing.
            if not each.may_use:
                raise self._missing_right("its schema may not be used")
        connection.execute(select(func.set_config("search_path", self._schema, False)))


def _connect(_dialect: object, _record: object, arguments: Any, options: dict[str, Any]) -> BoundedConnection:
    return connect_in_time(lambda: BoundedConnection.connect(*arguments, **options))
