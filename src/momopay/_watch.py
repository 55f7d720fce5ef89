"""One wait, for a transaction or for many: when it looks, what it makes of the news, how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Generic

from momopay._colours import IO, carry, finish
from momopay._io.blocking import BlockingIO
from momopay._io.suspending import AsyncIO
from momopay._looks import look
from momopay._schedule import PollSchedule
from momopay._waiting import News, Reader, Waiter, WaitingRoom
from momopay.errors import WaitTimeoutError
from momopay.models.transactions import Transaction


class Watch:
    """A wait for one transaction or many: `next` gives each as it ends."""

    def __init__(
        self,
        room: WaitingRoom,
        reader: Reader,
        io: BlockingIO | AsyncIO,
        wanted: dict[str, datetime | None],
        until: Callable[[Transaction], bool],
        schedule: PollSchedule,
    ) -> None:
        self._room = room
        self._reader = reader
        self._io = io
        self._until = until
        self._limit = schedule.limit
        now = io.now()
        self._end = now + schedule.limit
        self._pending = {
            identity: Waiter(identity, created_at, due=now + schedule.first, every=schedule.every, end=self._end)
            for identity, created_at in wanted.items()
        }
        self._resting = now
        """Until when it leaves looking to others, having found no slot."""
        self._signal = io.signal()

    def know(self, ended: Iterable[Transaction]) -> None:
        """Take the ends that were known before the wait began; they cost no look."""
        for transaction in ended:
            self._pending[transaction.transaction_id].tell(News(transaction, whole=True), self._io.now())

    def wake(self) -> None:
        """Let the wait look at what it was told."""
        self._signal.set()

    def waiters(self) -> list[Waiter]:
        """Give those still waited for."""
        return list(self._pending.values())

    def seated(self) -> AbstractContextManager[None]:
        """Wait among the others, as a context."""
        return self._room.seat(self)

    async def next(self) -> Transaction | None:
        """Wait for the next one to end; None when all have.

        Raises:
            WaitTimeoutError: The schedule's limit passed.
        """
        while self._pending:
            now = self._io.now()
            for waiter in self.waiters():
                ended = self._ended(waiter, now)
                if ended is not None:
                    del self._pending[waiter.transaction_id]
                    return ended
            if now >= self._end:
                raise self._timeout()
            due = min(now if waiter.notified or waiter.owed else waiter.due for waiter in self.waiters())
            due = max(due, self._resting)
            if now < due:
                await self._signal.wait(min(due, *(waiter.answers_by for waiter in self.waiters())) - now)
            else:
                await self._look(now)
        return None

    async def _look(self, now: float) -> None:
        with self._room.turn() as mine:
            if mine and not await look(self._room, self._reader, self._io.now, self._end):
                self._resting = now + min(waiter.every for waiter in self.waiters())
        if not mine:
            await self._signal.wait(max(0.0, min(waiter.answers_by for waiter in self.waiters()) - now))

    def _ended(self, waiter: Waiter, now: float) -> Transaction | None:
        """Give the transaction if what is known of it ends the wait; an end without success waits for its reason."""
        if waiter.failure is not None:
            raise waiter.failure
        news, waiter.news = waiter.news, None
        if news is None:
            return waiter.ended if now >= waiter.answers_by else None
        seen = news.transaction
        done = self._until(seen)
        failed = seen.status.ended_without_success
        if news.whole:
            return seen if done else waiter.ended
        if done and not failed:
            return seen
        if failed and (waiter.ended is None if done else seen.status != waiter.judged):
            waiter.owe(now, seen if done else None)
        return None

    def _timeout(self) -> WaitTimeoutError:
        waiting = self.waiters()
        who = (
            f"transaction {waiting[0].transaction_id} has" if len(waiting) == 1 else f"{len(waiting)} transactions have"
        )
        return WaitTimeoutError(
            f"{who} not ended after {self._limit:g} s, and may still succeed: read again later",
            last=waiting[0].last,
            pending=[waiter.transaction_id for waiter in waiting],
        )


class Ends(Generic[IO]):
    """Transactions, each as it ends. Each `for`, or `async for`, waits anew."""

    def __init__(self, start: Callable[[], Watch]) -> None:
        self._start = start

    def __iter__(self: Ends[BlockingIO]) -> Iterator[Transaction]:
        watch = self._start()
        with watch.seated():
            while (ended := finish(watch.next())) is not None:
                yield ended

    async def __aiter__(self: Ends[AsyncIO]) -> AsyncIterator[Transaction]:
        watch = self._start()
        with watch.seated():
            while (ended := await carry(watch.next())) is not None:
                yield ended
