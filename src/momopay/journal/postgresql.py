"""The journal in PostgreSQL, for many machines.

A process is alive while one connection of its own holds an advisory lock, which the server releases when it sees the
connection end.

Every wait ends in time, also for a server that is frozen or that nothing reaches. The server's own timeouts end a
statement that waits for a lock. They do nothing while the server does not run, so the client looks at its clock, too.
It then closes the connection, whose state is not known.

Thread safety: every thread may call everything here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from secrets import randbits
from typing import Any, ClassVar, Final, TypeVar

import psycopg
from sqlalchemy import URL, Connection, case, event, func, select
from sqlalchemy.exc import InvalidatePoolError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from typing_extensions import override

from momopay.journal.database import Backend, begun, bounded, is_over, seconds_left
from momopay.journal.schema import Now

T = TypeVar("T")

# The advisory lock of whoever creates the tables: "momopay1".
_SETUP_LOCK: Final = 0x6D6F6D6F70617931
_CONNECT_ARGS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds; no keepalives are sent while something waits to be acknowledged
}
# Seconds for an idle connection to show that it works. Then another one is made.
_PING: Final = 5.0

# Executed whenever a connection is taken from the pool. It also shows that the connection works. No commit returns
# before it is on disk, even where the server's default is synchronous_commit=off; and a process that is frozen within a
# transaction keeps the others out for ten seconds at most.
_PREPARE: Final = """
    SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false),
        set_config('idle_in_transaction_session_timeout', '10s', false),
        CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"""


class PostgresqlBackend(Backend):
    """A database that many machines reach."""

    # SQLAlchemy's `inspect` would look into the schema that was the current one at the first connection.
    table_names: ClassVar[str] = (
        "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v') AND pg_table_is_visible(oid)"
    )

    def __init__(self, url: URL) -> None:
        arguments = {name: value for name, value in _CONNECT_ARGS.items() if name not in url.query}
        super().__init__(url.set(drivername="postgresql+psycopg"), str(randbits(62)), arguments)
        event.listen(self.engine, "do_connect", _connect)
        event.listen(self.engine, "checkout", _prepare)
        self._registration: Connection | None = None

    @override
    @contextmanager
    def connect_for_setup(self, *, create: bool) -> Generator[Connection]:
        with self.engine.connect() as connection, begun(connection):
            connection.execute(select(func.pg_advisory_xact_lock(_SETUP_LOCK)))
            yield connection

    @override
    def register_process(self) -> None:
        known = self._registration  # another thread may replace it
        if known is not None and _works(known):
            return
        self._registration = None
        registration = self.engine.connect()
        try:
            # It keeps no timeout of the server, which would be that of the first call.
            held = registration.scalar(
                select(func.pg_try_advisory_lock(int(self.sender)), func.set_config("statement_timeout", "0", False))
            )
        except BaseException:
            _discard(registration)
            raise
        if held:
            self._registration = registration
        else:
            # Another thread's connection holds it, or this process's earlier one, which was cut. That one shows the
            # process as live until the server notices the cut.
            _discard(registration)

    @override
    def is_alive(self, sender: str, connection: Connection) -> bool:
        # Shared and for one statement: two processes that ask at once must not take each other for the dead one.
        taken, given_back = func.pg_try_advisory_lock_shared(int(sender)), func.pg_advisory_unlock_shared(int(sender))
        return not connection.scalar(select(case((taken, given_back), else_=False)))

    @override
    def close(self) -> None:
        if self._registration is not None:
            _discard(self._registration)
            self._registration = None
        super().close()


@compiles(Now, "postgresql")  # type: ignore[no-untyped-call, untyped-decorator, unused-ignore]
def _now(_element: Now, _compiler: object, **_options: object) -> str:
    return "extract(epoch FROM clock_timestamp())::double precision"


class TooLateError(psycopg.OperationalError):
    """The server did not answer within the bound of the thread."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection whose waits end at the bound of the thread that waits."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait for an answer of the server."""
        try:
            return super().wait(_in_time(gen), *args, **kwargs)
        except TooLateError:
            self.close()
            raise

    def __del__(self, *_: Any) -> None:
        """Close the connection: one that was lost in an interrupt."""
        with suppress(AttributeError):  # it was never opened
            self.close()


def _in_time(gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    # psycopg resumes the generator at least ten times a second, whether the socket is ready or not.
    ready = None
    if is_over():
        raise TooLateError("no time left to ask")
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
        if is_over():
            raise TooLateError("no answer in time")
        ready = yield wanted


def connect_in_time(connect: Callable[[], BoundedConnection]) -> BoundedConnection:
    """Return a new connection, made in a thread of its own, as looking up a host has no timeout."""
    # A connection that comes when nobody waits any more is closed with the queue, to which nothing else refers.
    outcome: SimpleQueue[BoundedConnection | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(connect())
        except BaseException as error:  # noqa: BLE001  the waiting thread raises it
            outcome.put(error)

    threading.Thread(target=run, name="momopay-connect", daemon=True).start()
    try:
        made = outcome.get(timeout=seconds_left())
    except Empty:
        raise TooLateError("no connection in time") from None
    if isinstance(made, BaseException):
        raise made
    return made


def _connect(_dialect: object, _record: object, arguments: Any, options: dict[str, Any]) -> BoundedConnection:
    return connect_in_time(lambda: BoundedConnection.connect(*arguments, **options))


def _prepare(connection: BoundedConnection, _record: object, _proxy: object) -> None:
    """Set the server's timeouts; let the pool replace the connection if it does not work."""
    left = seconds_left()
    # Before the client's own bound, which costs the connection; a lock first, as it has the clearer error.
    timeouts = [f"{max(1, int(left * share * 1000))}ms" for share in (0.8, 0.9)]
    try:
        with bounded(min(_PING, left / 2)):
            connection.execute(_PREPARE, timeouts)
    except psycopg.Error as error:
        raise InvalidatePoolError from error


def _works(registration: Connection) -> bool:
    """Return whether the connection of a registration answers."""
    try:
        with bounded(min(_PING, seconds_left() / 2)):
            driver: Any = registration.connection.dbapi_connection
            driver.execute("SELECT 1")
    except (psycopg.Error, SQLAlchemyError):
        _discard(registration)
        return False
    return True


def _discard(connection: Connection) -> None:
    with suppress(SQLAlchemyError):  # another thread discarded it
        connection.invalidate()  # one that went back to the pool would keep its lock
        connection.close()
