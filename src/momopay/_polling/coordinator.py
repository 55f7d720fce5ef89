"""All waits on one client. At most one of them polls at a time, and it polls for all.

Why not a poller of its own, in a thread or task: a client would have to start it, stop it and survive its failures.
Here the requests are made by a caller that waits anyway. If that caller is cancelled or gives up, its turn ends and
another wait takes the next.

Thread safety: all methods may be called from any thread on a blocking client, and from the event loop of an
asynchronous one.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from math import inf
from typing import Protocol

from momopay._polling.waiter import Waiter


class Wait(Protocol):
    """A registered wait, for one transaction or many."""

    def wake(self) -> None:
        """Make it examine its waiters. Their state is written first, so no wake-up is lost."""
        ...

    def waiters(self) -> list[Waiter]:
        """Return the transactions that it still waits for."""
        ...


class WaitCoordinator:
    """Registers waits, wakes them, and grants the turn to poll."""

    def __init__(self) -> None:
        self._waits: list[Wait] = []
        self._waits_lock = threading.Lock()
        self._turn = threading.Lock()
        # What one poll round leaves to the next. Only the wait that has the turn uses them.
        self.full_read_next: bool = False
        self.next_deep_scan_at: float = -inf

    @contextmanager
    def register(self, wait: Wait) -> Generator[None]:
        with self._waits_lock:
            self._waits.append(wait)
        try:
            yield
        finally:
            with self._waits_lock:
                self._waits.remove(wait)

    @contextmanager
    def take_turn(self) -> Generator[bool]:
        """Take the turn to poll if nobody has it, and yield whether it was taken."""
        # Never blocks: whoever does not get the turn waits for its own signal, so that it still ends at its deadline.
        taken = self._turn.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken:
                self._turn.release()
                # Whatever ended the turn, cancellation included, the others must see that it is free.
                self.wake()

    def notify(self, transaction_id: str, *, failed: bool = False) -> None:
        """Have a transaction polled for at once, or read in full if it is said to have failed."""
        for wait in self._registered():
            for waiter in wait.waiters():
                if waiter.transaction_id == transaction_id:
                    if failed:
                        # Only a read by id has the result code, so a page would cost a request for nothing.
                        waiter.needs_full_read = True
                    else:
                        waiter.notified = True
                    wait.wake()

    def waiters(self, now: float) -> list[Waiter]:
        """Return the waiters of all waits that have not reached their deadline."""
        return [waiter for wait in self._registered() for waiter in wait.waiters() if waiter.deadline > now]

    def wake(self) -> None:
        for wait in self._registered():
            wait.wake()

    def _registered(self) -> list[Wait]:
        with self._waits_lock:
            return list(self._waits)
