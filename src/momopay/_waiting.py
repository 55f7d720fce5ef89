"""Waiting for transactions to end, and sharing what is read among all who wait.

SPEC.md's guidance is a read each, every ten seconds; at 60 requests a minute that serves ten payments. Here
whoever is due first walks the list, newest first, and everyone takes the answer. Times are in seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from momopay.errors import MomoPayError, TransactionNotFoundError
from momopay.models.enums import TransactionStatus
from momopay.models.transactions import Transaction, TransactionPage


class Reader(Protocol):
    """How a wait looks; `until` is the monotonic time by which the look must be over."""

    async def read(self, transaction_id: str, until: float) -> Transaction:
        """Read one transaction."""
        ...

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        """Read a page of the newest."""
        ...


class Waiter:
    """One transaction that is waited for."""

    def __init__(self, transaction_id: str, created_at: datetime | None, due: float) -> None:
        self.transaction_id = transaction_id
        self.created_at = created_at
        self.due = due
        self.notified = False
        self.last: Transaction | None = None
        self.news: Transaction | None = None
        self.news_is_whole = False
        self.judged: TransactionStatus | None = None
        self.failure: MomoPayError | None = None

    def tell(self, transaction: Transaction, *, whole: bool) -> None:
        """Hand over what was read, whole by a single read or in part from the list."""
        self.created_at = transaction.created_at
        self.last = transaction
        self.news_is_whole = whole
        self.news = transaction


class Party(Protocol):
    """Somebody in the waiting room, with one transaction or many."""

    def wake(self) -> None:
        """Let it look at what it was told."""
        ...

    def waiters(self) -> list[Waiter]:
        """Give those it still waits for."""
        ...


class WaitingRoom:
    """Everyone who waits on one client. One looks at a time, for all."""

    def __init__(self) -> None:
        self._parties: list[Party] = []
        self._lock = threading.Lock()
        self._someone_looks = False

    @contextmanager
    def seat(self, party: Party) -> Generator[None]:
        """Let a party wait among the others."""
        with self._lock:
            self._parties.append(party)
        try:
            yield
        finally:
            with self._lock:
                self._parties.remove(party)

    def notify(self, transaction_id: str) -> None:
        """Wake whoever waits for that transaction."""
        for party in self._present():
            for waiter in party.waiters():
                if waiter.transaction_id == transaction_id:
                    waiter.notified = True
                    party.wake()

    def _present(self) -> list[Party]:
        with self._lock:
            return list(self._parties)

    @contextmanager
    def turn(self) -> Generator[bool]:
        """Take the turn to look, if nobody has it; everyone is woken when it ends."""
        with self._lock:
            mine = not self._someone_looks
            self._someone_looks = True
        if not mine:
            yield False
            return
        try:
            yield True
        finally:
            self._someone_looks = False
            for party in self._present():
                party.wake()

    async def look(self, reader: Reader, now: float, every: float, until: float) -> None:
        """Look for everyone who is due now, or would be before the next look."""
        everyone = [waiter for party in self._present() for waiter in party.waiters()]
        due = [waiter for waiter in everyone if waiter.due <= now + every]
        for waiter in due:
            waiter.due = now + every
        unseen = due
        if len({waiter.transaction_id for waiter in due}) > 1:
            unseen = await self._sweep(reader, everyone, due, until)
        for waiter in unseen:
            try:
                waiter.tell(await reader.read(waiter.transaction_id, until), whole=True)
            except TransactionNotFoundError as error:
                waiter.failure = error

    async def _sweep(self, reader: Reader, everyone: list[Waiter], due: list[Waiter], until: float) -> list[Waiter]:
        """Walk the list back to the oldest one due; give those that a read each finds sooner."""
        wanted: dict[str, list[Waiter]] = {}
        for waiter in everyone:
            wanted.setdefault(waiter.transaction_id, []).append(waiter)
        unseen = {waiter.transaction_id: waiter for waiter in due}
        cursors: set[str | None] = {None}
        cursor: str | None = None
        while True:
            page = await reader.page(cursor, until)
            for item in page.items:
                for waiter in wanted.get(item.transaction_id, ()):
                    waiter.tell(Transaction.from_summary(item), whole=False)
                unseen.pop(item.transaction_id, None)
            cursor = page.next_cursor
            if len(unseen) <= len(cursors) or cursor in cursors or _is_before(page, unseen.values()):
                return [waiter for waiter in due if waiter.transaction_id in unseen]
            cursors.add(cursor)


def _is_before(page: TransactionPage, unseen: Iterable[Waiter]) -> bool:
    """Whether the list, walked this far, is already older than everything looked for."""
    if not page.items:
        return True
    oldest = page.items[-1].created_at
    return all(waiter.created_at is not None and waiter.created_at > oldest for waiter in unseen)
