"""Leases: which call may change a row, and whether that call is still alive.

A lease is three columns of a row: ``claim`` is the id of the lease, ``sender`` the process that holds it, and
``lease_until`` its latest end by the database's clock, in Unix seconds. It ends with the first of these:

- The call returns. Its own process knows this by `LeaseHolder`; other processes read the row's next state.
- The process dies. Each process holds a lock that the operating system or the database server then releases.
- Its time is over. This covers a process that is frozen, or a database server that does not notice a cut connection.

Invariant: the end of a lease sends nothing. A row in SENDING without a live lease reads as UNKNOWN, which only a search
or a person can change. A wrong belief about who is alive therefore costs time, or a search, but no second payment.

Thread safety: every thread may call everything here.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4


@dataclass(frozen=True)
class Lease:
    """The right of one call to change the row that carries this id."""

    id: str = field(default_factory=lambda: uuid4().hex)
    process: int = field(default_factory=os.getpid)

    @property
    def is_own(self) -> bool:
        """Whether this process took it. A forked child inherits its parent's leases, and must not use them."""
        return self.process == os.getpid()


class ProcessRegistry(Protocol):
    """How a database shows which processes are alive."""

    @property
    def sender(self) -> str:
        """The id of this process."""
        ...

    def register_process(self) -> str:
        """Register this process as live until it ends, however it ends; return its id."""
        ...

    def is_alive(self, sender: str) -> bool:
        """Return whether the process of that id is alive."""
        ...


class LeaseHolder:
    """The leases of this process's calls. `columns` and `has_ended` raise JournalError if the database failed."""

    def __init__(self, registry: ProcessRegistry) -> None:
        self._registry = registry
        # Changes of a set are atomic. A lock could be copied by a fork while another thread holds it.
        self._leases: set[str] = set()

    @contextmanager
    def lease(self) -> Generator[Lease]:
        """Yield a new lease, which ends with this context at the latest."""
        lease = Lease()
        self._leases.add(lease.id)
        try:
            yield lease
        finally:
            self._leases.discard(lease.id)

    def holds(self, lease: Lease) -> bool:
        """Return whether the lease has not ended and is this process's own."""
        return lease.is_own and lease.id in self._leases

    def end(self, lease: Lease) -> None:
        """End a lease before its context ends: the call gave up, and what it began must not stay."""
        self._leases.discard(lease.id)

    def columns(self, lease: Lease, seconds: float) -> dict[str, object]:
        """Return the parameters of `schema.TAKE_LEASE`: they give a row to the lease, for so many seconds."""
        return {"claim": lease.id, "sender": self._registry.register_process(), "lease_seconds": seconds}

    def has_ended(self, row: Mapping[Any, Any]) -> bool:
        """Return whether the lease on a row, which was read with `schema.lease_left`, has ended."""
        # In its own process a call is alive until it returns, however long that takes and whatever the clock says.
        if row["sender"] == self._registry.sender:
            return row["claim"] not in self._leases
        return row["lease_left"] <= 0 or not self._registry.is_alive(row["sender"])
