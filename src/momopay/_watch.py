"""One wait, for a transaction or for many: when it looks, what it makes of the news, how it ends."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Generic

from momopay._colours import IO, carry, finish
from momopay._io.blocking import BlockingIO
from momopay._io.suspending import AsyncIO
from momopay._schedule import PollSchedule
from momopay._waiting import PASSING, Reader, Waiter, WaitingRoom
from momopay.errors import WaitTimeoutError
from momopay.models.transactions import Transaction

logger = logging.getLogger("momopay")


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
        self._signal = io.signal()

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
            for waiter in self.waiters():
                ended = await self._ended(waiter)
                if ended is not None:
                    del self._pending[waiter.transaction_id]
                    return ended
            now = self._io.now()
            if now >= self._end:
                raise self._timeout()
            due = min(waiter.due for waiter in self._pending.values())
            if now < due:
                await self._signal.wait(min(due, self._end) - now)
            else:
                await self._look(now)
        return None

    async def _look(self, now: float) -> None:
        with self._room.turn() as mine:
            if mine:
                await self._room.look(self._reader, now, self._end)
        if not mine:
            await self._signal.wait(max(0.0, self._end - now))

    async def _ended(self, waiter: Waiter) -> Transaction | None:
        """Give the transaction if what is known of it ends the wait; an end without success is read in full."""
        if waiter.failure is not None:
            raise waiter.failure
        if waiter.notified:
            waiter.notified = False
            return await self._read(waiter)
        news, waiter.news = waiter.news, None
        if news is None:
            return None
        seen = news.transaction
        done = self._until(seen)
        failed = seen.status.ended_without_success
        if news.whole or (done and not failed):
            return seen if done else None
        if done:
            return await self._read(waiter) or seen
        if failed and seen.status != waiter.judged:
            waiter.judged = seen.status
            return await self._read(waiter)
        return None

    async def _read(self, waiter: Waiter) -> Transaction | None:
        try:
            transaction = await self._reader.read(waiter.transaction_id, self._end)
        except PASSING as error:
            waiter.judged = None
            logger.info("a wait goes on: %s", error)
            return None
        waiter.last = transaction
        return transaction if self._until(transaction) else None

    def _timeout(self) -> WaitTimeoutError:
        waiting = self.waiters()
        return WaitTimeoutError(
            f"{len(waiting)} still without an end after {self._limit:g} s; that they failed is"
            " likely and no fact: read them again later",
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
