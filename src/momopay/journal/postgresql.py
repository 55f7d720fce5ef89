"""The journal in PostgreSQL, for many machines.

A process is alive while one connection of its own holds an advisory lock, which the server releases when it sees the
connection end.

Thread safety: every thread may call everything here; two that register at once get the same id.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from secrets import randbits
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import SQLAlchemyError

# The advisory lock of whoever creates the tables: "momopay1".
_SETUP_LOCK: Final = 0x6D6F6D6F70617931
_CONNECT_ARGS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds; no keepalives are sent while something waits to be acknowledged
}


class PostgresqlDatabase:
    """A database that many machines reach, as one process uses it."""

    def __init__(self, url: URL) -> None:
        self._registering = threading.Lock()
        self._registration: Connection | None = None
        self.sender: str | None = None
        self.engine: Engine = create_engine(
            url,
            connect_args={name: value for name, value in _CONNECT_ARGS.items() if name not in url.query},
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
            pool_pre_ping=True,
        )
        event.listen(self.engine, "connect", _make_durable)

    @contextmanager
    def connect_for_setup(self) -> Generator[Connection]:
        """Yield a connection, within a transaction, while no other process has one from this method."""
        with (
            self.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection,
            connection.begin(),
        ):
            connection.execute(select(func.pg_advisory_xact_lock(_SETUP_LOCK)))
            yield connection

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        with self._registering:
            self.sender = self.sender or str(randbits(62))
            if self._registration is not None:
                try:
                    self._registration.execute(select(1))
                except SQLAlchemyError:
                    self._unregister()
                else:
                    return self.sender
            self._registration = self.engine.connect()
            try:
                held = self._registration.scalar(select(func.pg_try_advisory_lock(int(self.sender))))
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
        with self.engine.connect() as connection:
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


def _make_durable(connection: Any, _record: object) -> None:
    """Let no commit return before it is on disk, even where the server's default is ``synchronous_commit=off``."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()
