"""One wait, for one transaction or many: when it polls, what it concludes from what was read, and how it ends.

Invariants:
- A wait ends by its own deadline, whatever others do: it never sleeps past it, and never waits for the turn.
- Only the owner of a wait judges its transactions, so the caller's `until` runs in the caller's own thread or task.
- An end without success is returned with its result code, or without it after `RESULT_POLLS` intervals: a caller
  that learns late that a payment failed loses more than one that does not learn why.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from momopay._core.backend import BackendT
from momopay._core.operation import OperationIterator
from momopay._core.session import Session
from momopay._polling.coordinator import WaitCoordinator
from momopay._polling.poll_round import PollRound, TransactionReader
from momopay._polling.schedule import PollSchedule
from momopay._polling.waiter import Observation, Waiter
from momopay.errors import WaitTimeoutError
from momopay.models.transactions import Transaction

if TYPE_CHECKING:  # a blocking client must not load the other backend, and one without an observer no events
    from momopay._core.events import OperationEvents
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

__all__ = ["WaitIterator"]


class TransactionWait:
    """A wait. It belongs to one thread or task; others call only `wake` and `waiters`.

    `wanted` maps transaction ids to what the caller gave: an id, or a record that carries one.
    """

    def __init__(
        self,
        coordinator: WaitCoordinator,
        reader: TransactionReader,
        backend: SyncBackend | AsyncBackend,
        wanted: Mapping[str, object],
        until: Callable[[Transaction], bool],
        schedule: PollSchedule,
    ) -> None:
        self._coordinator = coordinator
        self.reader = reader
        self.operation: OperationEvents | None = None
        """What reports the ends, if the client has an observer."""
        self._backend = backend
        self._until = until
        self._limit = schedule.limit
        now = self._started = backend.now()
        first_poll_at = now + schedule.first
        self._deadline = now + schedule.limit
        # Only the owner removes from it, and others copy it in one step, so it needs no lock.
        self._pending: dict[str, Waiter] = {}
        for identity, given in wanted.items():
            waiter = Waiter(
                identity, _created_at(given), every=schedule.every, deadline=self._deadline, next_poll_at=first_poll_at
            )
            if isinstance(given, Transaction) and until(given):
                waiter.record(Observation(given, is_full=True), now)  # it has ended already: no request
            self._pending[identity] = waiter
        # After it found no slot before its deadline, it leaves polling to waits that have more time.
        self._no_poll_before = now
        self._signal = backend.signal()

    def wake(self) -> None:
        self._signal.set()

    def waiters(self) -> list[Waiter]:
        return list(self._pending.values())

    def registered(self) -> AbstractContextManager[None]:
        """Return a context in which the wait takes part in polling."""
        return self._coordinator.register(self)

    async def next(self) -> Transaction | None:
        """Return the next transaction that has ended, or None if all have been returned; report how waits end.

        Raises `WaitTimeoutError` at the schedule's limit, `ProtocolError` after two malformed answers in a row,
        and `APIError` for a refusal that waiting does not change.
        """
        try:
            return await self._next()
        except Exception as error:
            for waiter in self.waiters():  # none of them is waited for any more
                self._report(waiter, waiter.last, error)
            raise

    async def _next(self) -> Transaction | None:
        while self._pending:
            now = self._backend.now()
            for waiter in self.waiters():
                ended = self._judge(waiter, now)
                if ended is not None:
                    del self._pending[waiter.transaction_id]
                    self._report(waiter, ended, None)
                    return ended
            if now >= self._deadline:
                raise self._timeout()
            waiters = self.waiters()
            answers_by = min(waiter.answers_by for waiter in waiters)
            at_once = any(waiter.notified or waiter.needs_full_read for waiter in waiters)
            poll_at = now if at_once else min(waiter.next_poll_at for waiter in waiters)
            poll_at = max(poll_at, self._no_poll_before)
            if poll_at > now:
                await self._signal.wait(min(poll_at, answers_by) - now)
            elif not await self._poll(now):
                await self._signal.wait(max(0.0, answers_by - now))
        return None

    async def _poll(self, now: float) -> bool:
        """Make a poll round for all waits; return False if another wait is polling."""
        with self._coordinator.take_turn() as taken:
            if taken:
                poll_round = PollRound(self._coordinator, self.reader, self._backend.now, self._deadline)
                if not await poll_round.run():
                    self._no_poll_before = now + min(waiter.every for waiter in self.waiters())
            return taken

    def _judge(self, waiter: Waiter, now: float) -> Transaction | None:
        """Return the transaction if what is known of it ends the wait."""
        if waiter.failure is not None:
            raise waiter.failure
        observation = waiter.take_observation()
        if observation is None:
            return waiter.ended if now >= waiter.answers_by else None
        seen = observation.transaction
        ended = seen if self._until(seen) else None
        if observation.is_full:
            return ended or waiter.ended
        if not seen.status.ended_without_success:
            return ended
        # A list row has no result code. It is read even if it does not end the wait: `until` may depend on it.
        if waiter.ended is None and (ended is not None or seen.status != waiter.full_read_status):
            waiter.request_full_read(seen.status, ended, now)
        return None

    def _timeout(self) -> WaitTimeoutError:
        pending = list(self._pending)
        who = f"transaction {pending[0]} has" if len(pending) == 1 else f"{len(pending)} transactions have"
        return WaitTimeoutError(
            f"{who} not ended after {self._limit:g} s, and may still succeed: read again later",
            last=self._pending[pending[0]].last,
            pending=pending,
        )

    def _report(self, waiter: Waiter, seen: Transaction | None, error: Exception | None) -> None:
        if self.operation is not None:
            seconds = self._backend.now() - self._started
            self.operation.wait_ended(waiter.transaction_id, seconds, waiter.reads, seen, error)


Step: TypeAlias = Callable[[TransactionWait], Coroutine[Any, Any, Transaction | None]]
"""Calls `TransactionWait.next`, as an operation."""


class WaitIterator(OperationIterator[BackendT, Transaction]):
    """Transactions, each as it ends. Each ``for``, or ``async for``, is a new wait."""

    def __init__(self, session: Session[BackendT], start: Callable[[], TransactionWait], step: Step) -> None:
        super().__init__(session, lambda: _Ends(start(), step))


class _Ends:
    """The ends of one wait, which takes part in polling until it is closed."""

    def __init__(self, wait: TransactionWait, step: Step) -> None:
        self._wait = wait
        self._step = step
        registration = ExitStack()
        registration.enter_context(wait.registered())
        self.close = registration.close

    async def next(self) -> Transaction | None:
        return await self._step(self._wait) if self._wait.waiters() else None


def _created_at(given: object) -> datetime | None:
    when = getattr(given, "created_at", None)
    return when if isinstance(when, datetime) and when.tzinfo is not None else None
