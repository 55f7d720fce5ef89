"""The room where all waits on one client sit: one of them looks at a time, for everyone.

SPEC.md's guidance is a read each, every ten seconds; at 60 requests a minute that serves ten payments. Here whoever is
due first walks the list, newest first, and everyone takes the answer. Times are in seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple, Protocol

from momopay.errors import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    ProtocolError,
    ServerError,
    ThrottledError,
)
from momopay.models.enums import TransactionStatus
from momopay.models.transactions import Transaction, TransactionPage

logger = logging.getLogger("momopay")

PASSING = (APIConnectionError, BudgetExhaustedError, ProtocolError, ServerError, ThrottledError)
"""Failures that do not end a wait; its limit does."""


class Reader(Protocol):
    """How a wait looks; `until` is the monotonic time by which the look must be over."""

    async def read(self, transaction_id: str, until: float) -> Transaction:
        """Read one transaction."""
        ...

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        """Read a page of the newest."""
        ...


class News(NamedTuple):
    """What was read of a transaction: whole by a single read, or in part from the list."""

    transaction: Transaction
    whole: bool


class Waiter:
    """One transaction that is waited for, until `end`, and looked at when it is `due`."""

    def __init__(
        self, transaction_id: str, created_at: datetime | None, *, due: float, every: float, end: float
    ) -> None:
        self.transaction_id = transaction_id
        self.created_at = created_at
        self.due = due
        self.every = every
        self.end = end
        self.read_at = 0.0
        self.notified = False
        self.news: News | None = None
        self.last: Transaction | None = None
        self.judged: TransactionStatus | None = None
        self.failure: APIError | None = None

    def tell(self, news: News) -> None:
        """Hand over what was read."""
        self.created_at = news.transaction.created_at
        self.last = news.transaction
        self.news = news


class Party(Protocol):
    """Somebody in the waiting room, with one transaction or many."""

    def wake(self) -> None:
        """Let it look at what it was told."""
        ...

    def waiters(self) -> list[Waiter]:
        """Give those it still waits for."""
        ...


class WaitingRoom:
    """Everyone who waits on one client."""

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
            self._wake()

    async def look(self, reader: Reader, now: float, until: float) -> None:
        """Look for everyone who is due now, or would be before their next look."""
        waiting = [waiter for party in self._present() for waiter in party.waiters() if waiter.end > now]
        due = [waiter for waiter in waiting if waiter.due <= now + waiter.every]
        try:
            unseen = _by_id(due)
            if len(unseen) > 1:
                await _sweep(reader, _by_id(waiting), unseen, until)
                self._wake()
            await _read_each(reader, unseen, now, until)
        except PASSING as error:
            logger.info("a wait goes on: %s", error)
        for waiter in due:
            waiter.due = now + waiter.every

    def _present(self) -> list[Party]:
        with self._lock:
            return list(self._parties)

    def _wake(self) -> None:
        for party in self._present():
            party.wake()


def _by_id(waiters: Iterable[Waiter]) -> dict[str, list[Waiter]]:
    grouped: dict[str, list[Waiter]] = {}
    for waiter in waiters:
        grouped.setdefault(waiter.transaction_id, []).append(waiter)
    return grouped


async def _sweep(
    reader: Reader, waiting: dict[str, list[Waiter]], unseen: dict[str, list[Waiter]], until: float
) -> None:
    """Walk the list back to the oldest one looked for, taking those seen out of `unseen`.

    It stops where as many pages were walked as transactions are missing: reading those by id costs no more.
    """
    walked: set[str | None] = {None}
    cursor: str | None = None
    while True:
        page = await reader.page(cursor, until)
        for item in page.items:
            for waiter in waiting.get(item.transaction_id, ()):
                waiter.tell(News(Transaction.from_summary(item), whole=False))
            unseen.pop(item.transaction_id, None)
        cursor = page.next_cursor
        if len(unseen) <= len(walked) or cursor in walked or _is_older(page, unseen):
            return
        walked.add(cursor)


def _is_older(page: TransactionPage, unseen: dict[str, list[Waiter]]) -> bool:
    """Whether the list, walked this far, is already older than everything looked for."""
    if not page.items:
        return True
    oldest = page.items[-1].created_at
    missing = (waiter.created_at for waiters in unseen.values() for waiter in waiters)
    return all(created_at is not None and created_at > oldest for created_at in missing)


async def _read_each(reader: Reader, unseen: dict[str, list[Waiter]], now: float, until: float) -> None:
    """Read by id, longest unread first, so that one whose reads keep failing holds nobody else back."""
    for identity, waiters in sorted(unseen.items(), key=lambda entry: entry[1][0].read_at):
        for waiter in waiters:
            waiter.read_at = now
        try:
            news = News(await reader.read(identity, until), whole=True)
        except PASSING:
            raise
        except APIError as error:
            for waiter in waiters:
                waiter.failure = error
        else:
            for waiter in waiters:
                waiter.tell(news)
