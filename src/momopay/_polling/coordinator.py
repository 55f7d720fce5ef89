"""All waits on one client. At most one of them polls at a time, and it polls for all; see `Turns`.

Thread safety: all methods may be called from any thread on a blocking client, and from the event loop of an
asynchronous one.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

from momopay._polling.turns import Turns
from momopay._polling.waiter import Waiter

if TYPE_CHECKING:
    from momopay._polling.confirmation import Confirmation


class Wait(Protocol):
    """A registered wait, for one transaction or many."""

    def wake(self) -> None:
        """Make it examine its waiters. Their state is written first, so no wake-up is lost."""
        ...

    def waiters(self) -> list[Waiter]:
        """Return the transactions that it still waits for."""
        ...


class WaitCoordinator(Turns[Wait]):
    """Registers waits, wakes them, and grants the turn to poll."""

    def __init__(self) -> None:
        super().__init__()
        # What one poll round leaves to the next. Only the wait that has the turn uses them.
        self.full_read_next: bool = False
        self.next_deep_scan_at: float = -inf
        # Confirmations take turns of their own. They are here because all copies of a client share this object.
        self.confirmations: Turns[Confirmation] = Turns()

    def notify(self, transaction_id: str, *, failed: bool = False) -> None:
        """Have a transaction polled for at once, or read in full if it is said to have failed."""
        for wait in self.registered():
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
        return [waiter for wait in self.registered() for waiter in wait.waiters() if waiter.deadline > now]
