"""One wait, for a transaction or for many: when it looks, what it makes of the news, how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Generic

from momopay._core.backend import BackendT
from momopay._core.operation import run_async, run_sync
from momopay._polling.coordinator import Observation, TransactionReader, WaitCoordinator, Waiter
from momopay._polling.poll_round import poll
from momopay._polling.schedule import PollSchedule
from momopay.errors import WaitTimeoutError
from momopay.models.transactions import Transaction

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

__all__ = ["WaitIterator"]


class TransactionWait:
    """A wait for one transaction or many: `next` gives each as it ends."""

    def __init__(
        self,
        coordinator: WaitCoordinator,
        reader: TransactionReader,
        backend: SyncBackend | AsyncBackend,
        wanted: dict[str, datetime | None],
        until: Callable[[Transaction], bool],
        schedule: PollSchedule,
    ) -> None:
        self._coordinator = coordinator
        self._reader = reader
        self._backend = backend
        self._until = until
        self._limit = schedule.limit
        now = backend.now()
        self._end = now + schedule.limit
        self._pending = {
            identity: Waiter(identity, created_at, due=now + schedule.first, every=schedule.every, end=self._end)
            for identity, created_at in wanted.items()
        }
        self._resting = now
        """Until when it leaves looking to others, having found no slot."""
        self._signal = backend.signal()

    def know(self, ended: Iterable[Transaction]) -> None:
        """Take the ends that were known before the wait began; they cost no poll."""
        for transaction in ended:
            self._pending[transaction.transaction_id].tell(Observation(transaction, whole=True), self._backend.now())

    def wake(self) -> None:
        """Let the wait poll at what it was told."""
        self._signal.set()

    def waiters(self) -> list[Waiter]:
        """Give those still waited for."""
        return list(self._pending.values())

    def seated(self) -> AbstractContextManager[None]:
        """Wait among the others, as a context."""
        return self._coordinator.seat(self)

    async def next(self) -> Transaction | None:
        """Wait for the next one to end; None when all have.

        Raises:
            WaitTimeoutError: The schedule's limit passed.
        """
        while self._pending:
            now = self._backend.now()
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
        with self._coordinator.turn() as mine:
            if mine and not await poll(self._coordinator, self._reader, self._backend.now, self._end):
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


class WaitIterator(Generic[BackendT]):
    """Transactions, each as it ends. Each `for`, or `async for`, waits anew."""

    def __init__(self, start: Callable[[], TransactionWait]) -> None:
        self._start = start

    def __iter__(self: WaitIterator[SyncBackend]) -> Iterator[Transaction]:
        watch = self._start()
        with watch.seated():
            while (ended := run_sync(watch.next())) is not None:
                yield ended

    async def __aiter__(self: WaitIterator[AsyncBackend]) -> AsyncIterator[Transaction]:
        watch = self._start()
        with watch.seated():
            while (ended := await run_async(watch.next())) is not None:
                yield ended
