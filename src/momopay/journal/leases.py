"""The leases of calls: which call may change a row, and whether that call is alive."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Select

from momopay._transport import clock
from momopay.journal.sharing import OpenDatabase


@lru_cache(4096)
def first_read(_claim: str) -> float:
    """Return when this process first read a lease of another machine, by this machine's clock."""
    return clock.now()


@dataclass(frozen=True)
class Lease:
    """The right of one call to change the row that carries this id."""

    id: str
    process: int = field(default_factory=os.getpid)

    @property
    def is_own(self) -> bool:
        """Whether this process took it. A forked child inherits its parent's leases, and must not use them."""
        return self.process == os.getpid()


class LeaseHolder:
    """The leases of this process's calls.

    A lease is five columns of the row: ``claim`` is its id, ``sender`` the id of the process that holds it,
    ``lease_seconds`` its length, and ``lease_until`` its latest end by the clock of a ``machine``. It ends when one of
    these happens:

    - The call returns. This class knows that in its own process; other processes read the row's next state.
    - The process dies, and with it its lock on a file or its connections to a server.
    - Its time is over. This covers a frozen process, and a server that does not notice a cut connection.

    No clock that can be set counts that time. The processes of one machine share a clock that runs since it booted. A
    process of another machine, or after a reboot, counts the whole length from the moment when it first read the lease.

    Invariant: the end of a lease sends nothing. A row in SENDING without a live lease reads as UNKNOWN, which only a
    search or a person can change. A mistake about who is alive costs time or a search, but never a second payment.
    """

    def __init__(self, database: OpenDatabase) -> None:
        self._database, self._process = database, database.shared
        # Of all journals that share the database, and so the id of the sender. No lock: a fork could copy it while
        # another thread holds it. Changes of a set are atomic.
        self._leases = database.shared.leases

    @contextmanager
    def lease(self) -> Generator[Lease]:
        """Yield a new lease, which ends with this context at the latest."""
        lease = Lease(uuid4().hex)
        self._leases.add(lease.id)
        self._database.under_way.add(lease.id)
        try:
            yield lease
        finally:
            self._leases.discard(lease.id)
            self._database.under_way.discard(lease.id)

    def holds(self, lease: Lease) -> bool:
        """Return whether the lease has not ended and is this process's own."""
        return lease.is_own and lease.id in self._leases

    def end(self, lease: Lease) -> None:
        """End a lease before its context does: its call gave up, so a row that it begins must not stay in SENDING."""
        self._leases.discard(lease.id)

    def columns(self, lease: Lease, seconds: float) -> dict[str, object]:
        """Return the parameters of `schema.TAKE_LEASE`, which give a row to the lease for this many seconds."""
        sender = self._process.register_process()
        until = {"machine": clock.machine(), "lease_seconds": seconds, "lease_until": clock.now() + seconds}
        return {"claim": lease.id, "sender": sender, **until}

    def seconds_left(self, row: Mapping[Any, Any]) -> float:
        """Return after how many seconds the time of a row's lease is over; 0 or less if it is."""
        is_here = row["machine"] == clock.machine()
        until: float = row["lease_until"] if is_here else first_read(row["claim"]) + row["lease_seconds"]
        return until - clock.now()

    def read(
        self,
        connection: Connection,
        statement: Select[Any],
        held: tuple[str, object],
        parameters: Mapping[str, object] | None = None,
    ) -> tuple[Sequence[Mapping[Any, Any]], set[str]]:
        """Return the rows that a statement selects, and the ids of those of their leases that have ended.

        `held` is a column and its value in the rows that have a lease.
        """
        column, value = held
        found, ended = list(connection.execute(statement, parameters).mappings()), set[str]()
        for row in found:
            if row[column] == value and self._has_ended(row, connection):
                ended.add(row["claim"])
        if ended:  # read again: a call records its outcome before its lease ends, maybe after the first read
            found = list(connection.execute(statement, parameters).mappings())
        return found, ended

    def _has_ended(self, row: Mapping[Any, Any], connection: Connection) -> bool:
        # A call of this process is alive until it returns, however long that takes.
        if row["sender"] == self._process.sender:
            return row["claim"] not in self._leases
        # On the caller's connection: threads that each hold one and wait for a second one could deadlock.
        return self.seconds_left(row) <= 0 or not self._process.is_alive(row["sender"], connection)
