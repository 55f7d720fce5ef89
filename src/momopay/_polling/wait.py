"""The two kinds of callers: a wait for one transaction or many, and the confirmation of a callback.

Invariants:
- A caller ends by its own deadline, whatever others do: it never sleeps past it, and never blocks for the turn.
- Only the owner of a wait judges its transactions, so the user's `until` runs in the user's own thread or task.
- An end without success is returned with its result code, or without it after `RESULT_POLLS` intervals: learning late
  that a payment failed costs more than not learning why.
- A page may confirm a callback but never contradict it. The list may lag, so a mismatch needs a read by id.

Times are in seconds, on the backend's monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final

from momopay._core.operation import OperationIterator, as_operation
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._polling.poll_round import Caller, Coordinator, Observation, Waiter
from momopay._polling.schedule import PollSchedule, is_transient
from momopay.callbacks import check_agreement
from momopay.errors import APIConnectionError, CallbackMismatchError, MomoPayError, WaitTimeoutError
from momopay.models.callbacks import Callback
from momopay.models.transactions import Transaction

logger = logging.getLogger("momopay")

# Poll intervals to wait for a failure's result code.
RESULT_POLLS: Final = 3


class Coordinators:
    """The coordinators of one key. A client shares them with its copies for the same key."""

    def __init__(self) -> None:
        self.waits: Coordinator = Coordinator()
        # The service waits 30 s for the answer to a callback, so it must not queue behind a walk down the list.
        self.confirmations: Coordinator = Coordinator()


class TransactionWait(Caller):
    """A wait. `wanted` maps transaction ids to what the user passed: an id, or a record that carries one."""

    def __init__(
        self,
        coordinator: Coordinator,
        session: Session[Any],
        wanted: Mapping[str, object],
        until: Callable[[Transaction], bool],
        schedule: PollSchedule,
    ) -> None:
        now = session.backend.now()
        super().__init__(coordinator, session, now + schedule.limit)
        self._until = until
        self._started = now
        self._schedule = schedule
        # After a failed round, it leaves polling to other callers for one interval.
        self._no_poll_before = now
        for identity, given in wanted.items():
            waiter = Waiter(identity, self.signal, schedule.every, self._deadline, next_poll_at=now + schedule.first)
            if isinstance(given, Transaction) and until(given):
                waiter.record(Observation(given, is_full=True), now)  # it has ended already: no request
            self.pending[identity] = waiter

    async def next(self) -> list[Transaction] | None:
        """Return the next transaction as `end` does, with the events of an operation of its own."""
        ended = await as_operation(self.session, "transactions.wait_all", self.end) if self.pending else None
        return None if ended is None else [ended]

    async def end(self, session: Session[Any]) -> Transaction | None:
        """Return the next transaction that has ended, or None if all have been returned. Report how each wait ends.

        Raises `WaitTimeoutError` at the schedule's limit, `ProtocolError` after two malformed answers in a row, and
        `APIError` for a refusal that is not transient.
        """
        self.session = session
        try:
            return await self._next()
        except Exception as error:
            for waiter in self.pending.values():  # the wait for each of them is over
                self._report(waiter, _last_seen(waiter), error)
            raise

    async def _next(self) -> Transaction | None:
        while self.pending:
            now = self.now()
            waiters = list(self.pending.values())
            for waiter in waiters:
                ended = self._judge(waiter, now)
                if ended is not None:
                    del self.pending[waiter.transaction_id]
                    self._report(waiter, ended, None)
                    return ended
            if now >= self._deadline:
                raise self._timeout()
            answers_by = min(waiter.answers_by for waiter in waiters)
            at_once = any(waiter.notified or waiter.needs_full_read for waiter in waiters)
            poll_at = now if at_once else min(waiter.next_poll_at for waiter in waiters)
            poll_at = max(poll_at, self._no_poll_before)
            if poll_at > now:
                await self.signal.wait(min(poll_at, answers_by) - now)
                continue
            try:
                await self.poll(answers_by)
            except MomoPayError as error:
                if not is_transient(error):
                    raise
                logger.info("a wait continues: %s", error)
                self._no_poll_before = now + self._schedule.every
        return None

    def _judge(self, waiter: Waiter, now: float) -> Transaction | None:
        """Return the transaction if the wait for it has ended."""
        if waiter.failure is not None:
            raise waiter.failure
        observation = waiter.observation
        if observation is None or observation is waiter.judged:
            return waiter.ended if now >= waiter.answers_by else None
        # The observation is not cleared, because that could drop one that is recorded at the same moment.
        waiter.judged = observation
        seen = observation.transaction
        ended = seen if self._until(seen) else None
        if observation.is_full:
            return ended or waiter.ended
        if not seen.status.ended_without_success:
            return ended
        # A list row has no result code. A full read follows even if the row ends no wait: `until` may need the code.
        if waiter.ended is None and (ended is not None or seen.status != waiter.full_read_status):
            waiter.full_read_status = seen.status
            waiter.ended = ended
            waiter.result_deadline = min(waiter.deadline, now + RESULT_POLLS * waiter.every)
            waiter.needs_full_read = True
        return None

    def _timeout(self) -> WaitTimeoutError:
        pending = list(self.pending)
        who = f"transaction {pending[0]} has" if len(pending) == 1 else f"{len(pending)} transactions have"
        return WaitTimeoutError(
            f"{who} not ended after {self._schedule.limit:g} s, and may still succeed: read again later",
            last=_last_seen(self.pending[pending[0]]),
            pending=pending,
        )

    def _report(self, waiter: Waiter, seen: Transaction | None, error: Exception | None) -> None:
        events = self.session.events
        if events is not None:  # the client has an observer
            events.wait_ended(waiter.transaction_id, self.now() - self._started, waiter.reads, seen, error)


def _last_seen(waiter: Waiter) -> Transaction | None:
    return None if waiter.observation is None else waiter.observation.transaction


class Confirmation(Caller):
    """Reads the service's own record of a callback's transaction.

    A confirmation alone is read by id. Those that come meanwhile wait for the turn and share pages of the list: a read
    for each would halve what a key can settle, because initiating the payment cost a request, too. If the pages do not
    confirm a callback, its own caller reads by id, outside of the turn, so that nobody else waits for it.
    """

    confirms = True

    def __init__(self, coordinator: Coordinator, session: Session[Any], callback: Callback) -> None:
        now = session.backend.now()
        super().__init__(coordinator, session, now + session.limits.deadline)
        self._callback = callback
        self._waiter = Waiter(
            callback.transaction_id, self.signal, every=inf, deadline=self._deadline, next_poll_at=now
        )
        self.pending[callback.transaction_id] = self._waiter

    async def read(self) -> Transaction:
        """Return the service's record, which may differ from the callback.

        Raises `APIConnectionError` if its turn did not come before the deadline, and what a read by id raises.
        """
        waiter = self._waiter
        while waiter.is_due(self.now()):
            if self.now() >= self._deadline:
                raise APIConnectionError("the callback was not confirmed in time: other reads took too long; not sent")
            await self.poll(self._deadline)
        if waiter.failure is not None:
            raise waiter.failure
        seen = waiter.observation
        if seen is not None and seen.is_full:
            return seen.transaction
        # Of a list row, only an end counts. An open payment may have ended since the list was made.
        if seen is not None and self._callback.transaction.status.is_terminal:
            with suppress(CallbackMismatchError):
                check_agreement(self._callback, seen.transaction)
                return seen.transaction
        return await self.read_by_id(self._callback.transaction_id, self._deadline)


class WaitIterator(OperationIterator[BackendT, Transaction]):
    """Transactions, each as it ends. Each loop is a new wait."""
