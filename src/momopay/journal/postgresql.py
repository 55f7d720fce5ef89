"""The journal in PostgreSQL, for many machines.

A process is alive while the server has a connection from it. Each connection has the id of its process as
``application_name``, which every role may read in ``pg_stat_activity``.

Every wait has a deadline, even if the server is frozen or unreachable. The server's own timeouts end a statement that
waits for a lock. As they do not work while the server does not run, the client checks its own clock, too. At the
deadline it closes the connection, whose state is then unknown.

A database may be a continent away, so what counts is how often a call waits for it. Everything that has no result which
Python needs is sent in one round trip with the next statement: BEGIN, the settings of the transaction, what `defer` was
given, and the COMMIT. All settings end with their transaction, so that behind a pool of connections nobody inherits
them, however this process ends.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeVar, cast

import psycopg
from psycopg.pq import Conninfo, PipelineStatus, TransactionStatus
from psycopg.waiting import Ready
from sqlalchemy import URL, Connection, event, func
from sqlalchemy import select as select_
from sqlalchemy.ext.compiler import compiles
from typing_extensions import override

from momopay._transport.clock import done_within
from momopay.errors import ConfigurationError, JournalError
from momopay.journal import pooling, refusals
from momopay.journal.database import Database, bounded, seconds_left
from momopay.journal.schema import Now
from momopay.journal.schemas import Schemas

T = TypeVar("T")

_SETUP_LOCK: Final = 0x6D6F6D6F70617931  # the advisory lock for creating the tables: "momopay1" in ASCII
_CONNECT_ARGS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds; keepalives are not sent while data is unacknowledged
}
_FRESH: Final = 30.0  # seconds after its last answer in which a pooled connection is used without a question
_PING: Final = 5.0  # seconds for an older one to answer before it is replaced
_WARNING: Final = "01"  # the class of the SQLSTATE

# A stricter isolation, which a server may have as its default, would fail payments that begin at the same time.
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_COMMIT: Final = ("COMMIT", None)
# Of one transaction. A commit returns only when it is on disk, also on that of synchronous standbys, whatever the
# server's default. A process that freezes in a transaction blocks others for ten seconds at most.
_SETTINGS: Final = """
    SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true),
        set_config('idle_in_transaction_session_timeout', '10s', true),
        set_config('synchronous_commit',
            CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
        set_config('search_path', coalesce(%s::text, current_setting('search_path')), true)"""


class PostgresqlDatabase(Database):
    """A PostgreSQL database, for processes on many machines."""

    # Not SQLAlchemy's `inspect`, which looks in the schema that was current at the first connection.
    table_names: ClassVar[str] = (
        "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v') AND pg_table_is_visible(oid)"
    )

    def __init__(self, url: URL) -> None:
        self._schemas = Schemas(url)
        url = url.difference_update_query(["schema"])
        unknown = url.query.keys() - {option.keyword.decode() for option in Conninfo.get_defaults()}
        if unknown:
            raise ConfigurationError(f"the journal's URL has options that libpq does not know: {sorted(unknown)}")
        super().__init__(url.set(drivername="postgresql+psycopg"))

    @override
    def renew(self) -> None:
        self._search_path: str | None = None  # None: the connection's own
        super().renew()
        event.listen(self.engines[-1], "do_connect", _connect)

    @override
    def connect_args(self) -> dict[str, Any]:
        arguments = {name: value for name, value in _CONNECT_ARGS.items() if name not in self._url.query}
        # These replace what the URL has. Without an encoding, psycopg returns the texts of some databases as bytes.
        return arguments | {"application_name": self.sender, "client_encoding": "utf8"}

    @override
    def prepare(self, connection: Connection, driver: Any, *, begin: bool) -> Any:
        if not driver.is_fresh:
            try:
                with bounded(min(_PING, seconds_left() / 2)):
                    driver.execute("SELECT 1")
            except (psycopg.Error, JournalError):  # it was in the pool for long
                connection.invalidate()
                driver = connection.connection.dbapi_connection
        driver.begin_use(in_one_transaction=begin, search_path=self._search_path)
        return driver

    @override
    def set_search_path(self, connection: Connection) -> None:
        if self._search_path is not None:
            connection.execute(select_(func.set_config("search_path", self._search_path, True))).scalar()

    @override
    @contextmanager
    def connect_for_setup(self, *, create: bool) -> Generator[Connection]:
        another = partial(self.connection, seconds=self.setup_seconds, begin=True, for_setup=True)
        with self.connection(for_setup=True) as connection:
            pooling.check(connection, another)
        with another() as connection:
            connection.execute(select_(func.pg_advisory_xact_lock(_SETUP_LOCK)))
            self._search_path = self._schemas.search_path(connection, create=create)
            self.set_search_path(connection)
            yield connection
            self.refusal: ConfigurationError | None = refusals.why_not_writable(connection)

    @override
    def explain(self, error: JournalError) -> ConfigurationError | None:
        # In the schema that was chosen before the error, if one was.
        return refusals.explain(error, partial(self.connection, begin=True, for_setup=True))

    @property
    @override
    def name(self) -> str:
        wanted = self._schemas.wanted
        return f"{super().name}{'&' if self._url.query else '?'}schema={wanted}" if wanted else super().name

    @property
    @override
    def key(self) -> str:
        return f"{super().key} {self._schemas.wanted}"

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
        self.cursor_factory: type[psycopg.Cursor[Any]] = BatchCursor
        self._process = os.getpid()
        self._answered_at = time.monotonic()
        self._deferred: list[tuple[Any, Any]] = []  # statements to send with the next one
        self._each_commits: bool | None = None  # whether each statement is a transaction of its own
        self._search_path: str | None = None
        self.commits_next: bool = False  # whether to send a COMMIT with the next statement
        self.is_committed: bool = False  # whether that was done
        self._is_collecting = self._has_given_up = False
        notices = self._notices = list[str]()  # about the statements that were executed last
        # Without `self`: a cycle would keep a connection open that an interrupt loses.
        self.add_notice_handler(lambda notice: notices.append(f"{notice.sqlstate} {notice.message_primary}"))

    @property
    def is_fresh(self) -> bool:
        """Whether it answered a moment ago, and the server has not closed it since."""
        return not self.closed and time.monotonic() - self._answered_at < _FRESH and not _is_readable(self.fileno())

    def begin_use(self, *, in_one_transaction: bool, search_path: str | None) -> None:
        """Let the next statement begin a transaction, or each be one of its own."""
        self._search_path = search_path
        self._deferred = [(_BEGIN, None), self._settings()] if in_one_transaction else []
        self._each_commits = not in_one_transaction
        self.commits_next = self.is_committed = False

    def defer(self, query: str, values: Any) -> bool:
        """Keep a statement for the next round trip; return False if each statement commits by itself."""
        if self._each_commits is False:
            self._deferred.append((query, values))
        return self._each_commits is False

    def around(self, query: object) -> tuple[Sequence[tuple[Any, Any]], Sequence[tuple[Any, Any]]]:
        """Return what to send before a statement, and what after it."""
        if self._each_commits and self.pgconn.transaction_status == TransactionStatus.IDLE and self.autocommit:
            # Some callers begin a transaction by themselves.
            return ([], [self._settings()]) if query == "BEGIN" else ([(_BEGIN, None), self._settings()], [_COMMIT])
        before, self._deferred = self._deferred, []
        return before, [_COMMIT] if self.commits_next else []

    def _settings(self) -> tuple[str, Any]:
        # Shorter than the client's deadline, which costs the connection. Locks end first, as their error is clearer.
        left = seconds_left()
        return _SETTINGS, [*(str(max(1, int(left * share * 1000))) for share in (0.8, 0.9)), self._search_path]

    def send(self, query: Any, values: Any = None) -> None:
        """Execute a statement that has no result, apart from what was deferred."""
        psycopg.Cursor(self).execute(query, values)

    @contextmanager
    def one_round_trip(self) -> Generator[None]:
        """Send what is executed in the context together, and wait once for all of it at its end."""
        self._notices.clear()
        try:
            with self.pipeline():
                self._is_collecting = True
                try:
                    yield
                except BaseException:
                    # psycopg would wait for what was sent. Nothing of it was committed: a COMMIT comes last.
                    self._has_given_up = True
                    self.close()
                    raise
                finally:
                    self._is_collecting = False
        except BaseException:
            if self.pgconn.pipeline_status != PipelineStatus.OFF:
                self.close()
            raise
        self._check_commit()

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait for the server's answer, until the deadline."""
        if self._has_given_up:
            gen.close()
            return cast("T", None)
        if self._is_collecting:
            return _send_only(gen)
        is_single = self.pgconn.pipeline_status == PipelineStatus.OFF
        if is_single:
            self._notices.clear()
        try:
            answer = super().wait(_in_time(gen), *args, **kwargs)
        except BaseException as error:  # no answer in time, or an interrupt
            if isinstance(error, JournalError) or self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()
                with suppress(Exception):  # else psycopg prints that it cannot go on when the garbage is collected
                    gen.close()
            raise
        self._answered_at = time.monotonic()
        if is_single:
            self._check_commit()
        return answer

    def _check_commit(self) -> None:
        warnings = [each for each in self._notices if each.startswith(_WARNING)]
        if warnings and self.pgconn.transaction_status == TransactionStatus.IDLE:  # the statement committed
            raise psycopg.OperationalError(warnings[0])

    def rollback(self) -> None:
        """Roll back, unless the connection is closed: an error would hide the interrupt that closed it."""
        self._deferred, self._each_commits = [], False
        if self.pgconn.pipeline_status != PipelineStatus.OFF:  # an interrupt came before psycopg could end it
            self.close()
        if not self.closed and self.pgconn.transaction_status != TransactionStatus.IDLE:
            super().rollback()

    def __del__(self, *_: Any) -> None:
        """Close a connection that was lost in an interrupt. A forked child must not close its parent's."""
        with suppress(AttributeError):  # it was never opened
            if self._process == os.getpid():
                self.close()


class BatchCursor(psycopg.Cursor[Any]):
    """A cursor that sends what was deferred in one round trip with its statement."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Execute a statement."""
        connection = cast("BoundedConnection", self.connection)
        before, after = connection.around(query)
        if not before and not after:
            return self.execute_alone(query, params, **options)
        with connection.one_round_trip():
            for each in before:
                connection.send(*each)
            self.execute_alone(query, params, **options)
            for each in after:
                connection.send(*each)
        connection.is_committed = _COMMIT in after
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], **_options: Any) -> None:
        """Execute a statement with each of several values; the first one brings what was deferred."""
        values = iter(params_seq)
        for params in values:
            self.execute(query, params)
            if self.connection.info.transaction_status == TransactionStatus.INTRANS:
                super().executemany(query, [*values])  # the rest, in one round trip

    def execute_alone(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Execute a statement as psycopg does."""
        return super().execute(query, params, **options)


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


def _send_only(gen: Generator[Any, Any, T]) -> T:
    """Let psycopg send without waiting, and without reading what comes back for the statements before."""
    ready = None
    while True:
        try:
            gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
        ready = Ready.W


def _is_readable(descriptor: int) -> bool:
    """Return whether a socket has something to read. Of an idle connection, that is most often its end."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _connect(_dialect: object, _record: object, arguments: Any, options: dict[str, Any]) -> BoundedConnection:
    connect = partial(BoundedConnection.connect, *arguments, **options, autocommit=True)
    try:
        return done_within(seconds_left(), connect, "momopay connects")
    except TimeoutError as error:
        raise JournalError("the journal's database took no connection in time") from error
