"""The journal in PostgreSQL, for many machines.

A connection that holds an advisory lock shows that a process lives: the server lets go of it when the connection ends.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from secrets import randbits
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import SQLAlchemyError

_SET_UP = 0x6D6F6D6F70617931
"""The advisory lock of those who set up: "momopay1"."""
_CONNECTING = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds; keepalives are not sent while something waits to be acknowledged
}


class PostgresqlDatabase:
    """A database that many machines reach."""

    def __init__(self, url: URL) -> None:
        self._lock = threading.Lock()
        self._presence: Connection | None = None
        self.sender: str | None = None
        self.engine: Engine = create_engine(
            url,
            connect_args={name: value for name, value in _CONNECTING.items() if name not in url.query},
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
            pool_pre_ping=True,
        )
        event.listen(self.engine, "connect", _make_durable)

    @contextmanager
    def set_up_alone(self) -> Generator[Connection]:
        """Keep other processes from setting up at the same time."""
        with (
            self.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection,
            connection.begin(),
        ):
            connection.execute(select(func.pg_advisory_xact_lock(_SET_UP)))
            yield connection

    def register_process(self) -> str:
        """Be known as alive until this process ends; give the name for it."""
        with self._lock:
            self.sender = self.sender or str(randbits(62))
            if self._presence is not None:
                try:
                    self._presence.execute(select(1))
                except SQLAlchemyError:
                    self._vanish()
                else:
                    return self.sender
            self._presence = self.engine.connect()
            try:
                held = self._presence.scalar(select(func.pg_try_advisory_lock(int(self.sender))))
            except BaseException:
                self._vanish()
                raise
            if not held:  # the server has not noticed yet that an earlier connection was cut; until then that one shows
                self._vanish()
            return self.sender

    def is_alive(self, sender: str) -> bool:
        """Tell whether the process of that name still lives."""
        with self.engine.connect() as connection:
            return not connection.scalar(select(func.pg_try_advisory_xact_lock_shared(int(sender))))

    def close(self) -> None:
        """Disappear and let go of all connections."""
        with self._lock:
            self._vanish()
            self.sender = None
            self.engine.dispose()

    def _vanish(self) -> None:
        """End the connection that shows that this process lives."""
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.invalidate()
            presence.close()


def _make_durable(connection: Any, _record: object) -> None:
    """Let no commit return before it is on disk, wherever the server's default is to say so earlier."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()
