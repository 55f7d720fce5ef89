"""The journal in PostgreSQL, for many machines.

A process is alive while the server has a connection from it. Each connection has the id of its process as
``application_name``, which every role may read in ``pg_stat_activity``.

Every wait has a deadline, even if the server is frozen or unreachable. The server's own timeouts end a statement that
waits for a lock. As they do not work while the server does not run, the client checks its own clock, too. At the
deadline it closes the connection, whose state is then unknown.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

import psycopg
from psycopg.pq import Conninfo, TransactionStatus
from sqlalchemy import URL, Connection, event, func, select
from sqlalchemy.ext.compiler import compiles
from typing_extensions import override

from momopay._transport.clock import done_within
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import Database, bounded, seconds_left
from momopay.journal.schema import Now

T = TypeVar("T")

_SETUP_LOCK: Final = 0x6D6F6D6F70617931  # the advisory lock for creating the tables: "momopay1" in ASCII
_CONNECT_ARGS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds; keepalives are not sent while data is unacknowledged
}
_PING: Final = 5.0  # seconds for a pooled connection to answer before it is replaced

# Executed on each new connection. A commit returns only when it is on disk, also on that of synchronous standbys,
# whatever the server's default. A process that freezes in a transaction blocks others for ten seconds at most. A
# stricter isolation would fail payments that begin at the same time.
_SETTINGS: Final = """
    SELECT set_config('idle_in_transaction_session_timeout', '10s', false),
        set_config('default_transaction_isolation', 'read committed', false),
        set_config('synchronous_commit',
            CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)"""
_WARNING: Final = "01"  # the class of the SQLSTATE


class PostgresqlDatabase(Database):
    """A PostgreSQL database, for processes on many machines."""

    # Not SQLAlchemy's `inspect`, which looks in the schema that was current at the first connection.
    table_names: ClassVar[str] = (
        "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v') AND pg_table_is_visible(oid)"
    )

    def __init__(self, url: URL, *, create: bool) -> None:
        unknown = url.query.keys() - {option.keyword.decode() for option in Conninfo.get_defaults()}
        if unknown:
            raise ConfigurationError(f"the journal's URL has options that libpq does not know: {sorted(unknown)}")
        super().__init__(url.set(drivername="postgresql+psycopg"), create=create)

    @override
    def renew(self) -> None:
        super().renew()
        event.listen(self.engines[-1], "do_connect", _connect)

    @override
    def connect_args(self) -> dict[str, Any]:
        arguments = {name: value for name, value in _CONNECT_ARGS.items() if name not in self._url.query}
        # These replace what the URL has. Without an encoding, psycopg returns the texts of some databases as bytes.
        return arguments | {"application_name": self.sender, "client_encoding": "utf8"}

    @override
    def prepare(self, connection: Connection, driver: Any, *, begin: bool) -> Any:
        left = seconds_left()
        # Shorter than the client's deadline, which costs the connection. Locks end first, as their error is clearer.
        lock, statement = (max(1, int(left * share * 1000)) for share in (0.8, 0.9))
        # In one request, which also shows that the connection works.
        limits = f"SET lock_timeout = {lock}; SET statement_timeout = {statement}; {'BEGIN' if begin else ''}"
        try:
            with bounded(min(_PING, left / 2)):
                driver.execute(limits, prepare=False)  # several statements cannot be prepared
        except (psycopg.Error, JournalError):  # of a connection that was in the pool for long
            connection.invalidate()
            connection.exec_driver_sql(limits)
        return connection.connection.dbapi_connection

    @override
    @contextmanager
    def connect_for_setup(self) -> Generator[Connection]:
        with self.connection(seconds=self.setup_seconds, begin=True, for_setup=True) as connection:
            connection.execute(select(func.pg_advisory_xact_lock(_SETUP_LOCK)))
            yield connection

    @override
    def is_alive(self, sender: str, connection: Connection) -> bool:
        of_sender = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        return connection.exec_driver_sql(of_sender, (sender,)).scalar() != 0


@compiles(Now, "postgresql")  # type: ignore[no-untyped-call, untyped-decorator, unused-ignore]
def _now(_element: Now, _compiler: object, **_options: object) -> str:
    return "extract(epoch FROM clock_timestamp())::double precision"


class BoundedConnection(psycopg.Connection[Any]):
    """A connection whose waits end at the deadline of the waiting thread, and whose commits fail if there is a warning.

    It says that somebody cancelled the wait for a synchronous standby. If that takes over, the write is lost.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._process = os.getpid()
        notices = self._notices = list[str]()  # about the statement that was executed last
        # Without `self`: a cycle would keep a connection open that an interrupt loses.
        self.add_notice_handler(lambda notice: notices.append(f"{notice.sqlstate} {notice.message_primary}"))

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait for the server's answer, until the deadline."""
        self._notices.clear()
        try:
            answer = super().wait(_in_time(gen), *args, **kwargs)
        except BaseException as error:  # no answer in time, or an interrupt
            if isinstance(error, JournalError) or self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()
            raise
        warnings = [each for each in self._notices if each.startswith(_WARNING)]
        if warnings and self.pgconn.transaction_status == TransactionStatus.IDLE:  # the statement committed
            raise psycopg.OperationalError(warnings[0])
        return answer

    def rollback(self) -> None:
        """Roll back, unless the connection is closed: an error would hide the interrupt that closed it."""
        if not self.closed and self.pgconn.transaction_status != TransactionStatus.IDLE:
            super().rollback()

    def __del__(self, *_: Any) -> None:
        """Close a connection that was lost in an interrupt. A forked child must not close its parent's."""
        with suppress(AttributeError):  # it was never opened
            if self._process == os.getpid():
                self.close()


def _in_time(gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    # psycopg resumes the generator at least ten times a second, whether the socket is ready or not.
    ready = None
    seconds_left()
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
        seconds_left()
        ready = yield wanted


def _connect(_dialect: object, _record: object, arguments: Any, options: dict[str, Any]) -> BoundedConnection:
    connect = partial(BoundedConnection.connect, *arguments, **options, autocommit=True)
    try:
        connection = done_within(seconds_left(), connect, "momopay connects")
    except TimeoutError:
        raise JournalError("the journal's database took no connection in time") from None
    connection.execute(_SETTINGS)
    return connection
