"""The calls that poll: a wait for one transaction or many, by a schedule, and the confirmation of a callback.

Invariants:
- A call ends by its own deadline, whatever others do: it never sleeps past it, and never blocks for the lock.
- Only the owner of a wait judges its transactions, so the user's `until` runs in the user's own thread or task.
- What ends one wait of a call does not end the others.
- A page may confirm a callback but never contradict it. The list may lag, so a mismatch needs a read by id.

Times are in seconds, on the backend's monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any, Final
from uuid import UUID

from momopay._core.operation import OperationIterator, as_operation
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._polling.loop import PollingCall, PollLoop, Wait, is_transient
from momopay.callbacks import check_agreement
from momopay.errors import (
    APIConnectionError,
    CallbackMismatchError,
    ConfigurationError,
    MomoPayError,
    WaitTimeoutError,
)
from momopay.models.callbacks import Callback
from momopay.models.enums import has_settled
from momopay.models.transactions import Transaction

logger = logging.getLogger("momopay")

# Transactions that the message of one error names.
_MOST_NAMED: Final = 5
# Seconds. A thread cannot wait much longer.
_LONGEST: Final = 1e9
# Seconds in which the service may not find a transaction whose id it has just given.
_NOT_FOUND_GRACE: Final = 60.0


@dataclass(frozen=True)
class PollSchedule:
    """When to poll; the defaults are the service's guidance (service page, "GET /transactions/{id}").

    Args:
        first: Seconds from the start of the wait to the first poll.
        every: Seconds between polls.
        limit: Seconds after which the wait gives up.

    Raises:
        ConfigurationError: A time is not finite (or over 1e9), or negative, or there is no pause between polls.
    """

    first: float = 15.0
    every: float = 10.0
    limit: float = 300.0

    def __post_init__(self) -> None:
        times = (self.first, self.every, self.limit)
        are_finite = all(isinstance(time, int | float) and 0 <= time <= _LONGEST for time in times)
        if not are_finite or self.every <= 0 or self.limit <= 0:
            raise ConfigurationError("a PollSchedule needs finite seconds: first >= 0, every > 0, limit > 0")


def terminal(transaction: Transaction) -> bool:
    """Return whether the transaction has ended."""
    return transaction.status.is_terminal


def settled(transaction: Transaction) -> bool:
    """Return whether the money is where it will stay: a payout that FAILED is settled once it is REVERSED."""
    return has_settled(transaction.type, transaction.status)


class PollLoops:
    """The loops of one key. A client shares them with its copies for the same key."""

    def __init__(self) -> None:
        self.waits: PollLoop = PollLoop()
        # The service waits 30 s for the answer to a callback, so it must not queue behind a walk down the list. Three
        # pages show every payment of the last five minutes, even if a key spends its whole rate limit on payments.
        # Callbacks are not signed, and a forged one must not cost a walk of the list.
        self.confirmations: PollLoop = PollLoop(most_pages=3)


class WaitCall(PollingCall):
    """A call of `wait` or `wait_all`. `wanted` maps transaction ids to what the user passed: an id, or a record."""

    def __init__(
        self,
        loop: PollLoop,
        session: Session[Any],
        wanted: Mapping[str, object],
        until: Callable[[Transaction], bool],
        schedule: PollSchedule,
    ) -> None:
        super().__init__(loop, session)
        self._until = until
        self._limit = schedule.limit
        self._started = now = self.now()
        self._errors: dict[str, MomoPayError] = {}  # what ended waits, by transaction id
        for identity, given in wanted.items():
            wait = Wait(identity, self.signal, now + schedule.first, schedule.every, now + schedule.limit)
            wait.known, known = given, getattr(given, "transaction", given)  # a payment may have the service's record
            if identity in session.given_ids or not isinstance(given, str | UUID):  # else somebody may have typed it
                wait.not_found_until = now + _NOT_FOUND_GRACE
            # A record that has ended needs no request. A payment's may be older than its status, by a callback.
            if isinstance(known, Transaction) and known.status == getattr(given, "status", None) and until(known):
                wait.show(known, now, by_id=True)
            self.waits[identity] = wait

    async def next(self) -> list[Transaction] | None:
        """Return the next transaction as `end` does, with the events of an operation of its own."""
        if not self.waits and not self._errors:
            return None
        ended = await as_operation(self.session, "transactions.wait_all", self.end)
        return None if ended is None else [ended]

    async def end(self, session: Session[Any]) -> Transaction | None:
        """Return the next transaction that has ended, or None after the last one. Report how each wait ends.

        If waits ended otherwise, raise one error that names them after the last one: `WaitTimeoutError` at the
        schedule's limit, `ProtocolError` after two malformed responses in a row, and `APIError` for a refusal that is
        not transient.
        """
        self.session = session
        try:
            while self.waits:
                for wait in list(self.waits.values()):
                    if self._is_over(wait):
                        return wait.seen
                if self.waits:
                    await self._poll()
        except Exception as error:
            for wait in self.waits.values():  # the wait for each of them is over
                self._report(wait, error)
            raise
        if self._errors:
            errors, self._errors = self._errors, {}
            raise _combined(errors)
        return None

    def _is_over(self, wait: Wait) -> bool:
        """Return whether a transaction has ended. Note what else ends its wait."""
        now = self.now()
        wait.give_up_row(now)
        if wait.is_new:
            wait.is_new = False
            if wait.seen is not None and self._until(wait.seen):
                self._report(self.waits.pop(wait.transaction_id), None)
                return True
        if wait.error is None and now >= wait.deadline:
            text = f"transaction {wait.transaction_id} has not ended after {self._limit:g} s, and may still succeed"
            wait.error = WaitTimeoutError(f"{text}: read again later", last=wait.seen, pending=[wait.transaction_id])
        if wait.error is not None:
            self._errors[wait.transaction_id] = wait.error
            self._report(self.waits.pop(wait.transaction_id), wait.error)
        return False

    async def _poll(self) -> None:
        """Read for all if something is due; else sleep until then, or until another call has read something."""
        now = self.now()
        read_at = min(wait.next_read_at for wait in self.waits.values())
        if read_at > now:
            await self.signal.wait(min(read_at, self.answers_by) - now)
            return
        try:
            await self.loop.read_or_wait(self)
        except MomoPayError as error:
            if not is_transient(error):
                raise
            logger.info("a wait continues: %s", error)
            # There is no time for a request. Another call may have more.
            answers_by = self.answers_by
            for wait in self.waits.values():
                wait.give_up_row(answers_by)
            # It tries no more: two calls without a slot would wake each other, again and again.
            while self.is_waiting():
                await self.signal.wait(max(0.0, self.answers_by - self.now()))

    def _report(self, wait: Wait, error: Exception | None) -> None:
        events = self.session.events
        if events is not None:  # the client has an observer
            events.wait_ended(wait.transaction_id, self.now() - self._started, wait.reads, wait.seen, error)


def _combined(errors: Mapping[str, MomoPayError]) -> MomoPayError:
    """Return one error for waits that failed, by transaction id: of the class of a timeout, or else of the first."""
    timeouts = [each for each in errors.values() if isinstance(each, WaitTimeoutError)]
    texts = [each.message if each in timeouts else f"transaction {of}: {each.message}" for of, each in errors.items()]
    count = f"{len(texts)} transactions have not ended: " if len(texts) > 1 else ""
    error = copy([*timeouts, *errors.values()][0])  # a copy, because calls share what one of them has read
    MomoPayError.__init__(error, count + "; ".join(texts[:_MOST_NAMED]))
    error.pending = tuple(errors)
    return error


class ConfirmCall(PollingCall):
    """Reads the service's own record of a callback's transaction.

    A confirmation alone is read by id. Those that come meanwhile wait for the lock and share pages of the list: a read
    for each would halve what a key can settle, because initiating the payment cost a request, too. If the pages do not
    confirm a callback, its own call reads by id, without the lock, so that nobody else waits for it.
    """

    def __init__(self, loop: PollLoop, session: Session[Any], callback: Callback) -> None:
        super().__init__(loop, session)
        now = self.now()
        self._callback = callback
        self._wait = Wait(callback.transaction_id, self.signal, now, inf, now + session.limits.deadline)
        self.waits[callback.transaction_id] = self._wait

    async def read(self) -> Transaction:
        """Return the service's record, which may differ from the callback.

        Raise `APIConnectionError` if the lock was not free before the deadline, and what a read by id raises.
        """
        wait = self._wait
        while self.is_waiting():
            await self.loop.read_or_wait(self)
        if wait.error is not None:
            raise wait.error
        if wait.seen is not None and (wait.status_by_id is not None or self._is_confirmed_by(wait.seen)):
            return wait.seen
        if self.now() >= wait.deadline:
            raise APIConnectionError("the callback was not confirmed in time: other reads took too long; not sent")
        return await self.read_by_id(self._callback.transaction_id, wait.deadline)

    def _is_confirmed_by(self, row: Transaction) -> bool:
        # Of a list row, only an end counts: an open payment may have ended since the list was made. A read by id may
        # show the reference that a row lacks.
        stated = self._callback.transaction
        is_end = stated.status is not None and stated.status.is_terminal
        if is_end and (row.account_reference or not stated.account_reference):
            with suppress(CallbackMismatchError):
                check_agreement(self._callback, row)
                return True
        return False


async def confirm(loop: PollLoop, session: Session[Any], callback: Callback) -> Transaction:
    """Return the service's record of a callback's transaction. Raise CallbackMismatchError if they disagree."""
    transaction = await ConfirmCall(loop, session, callback).read()
    check_agreement(callback, transaction)
    return transaction


class WaitIterator(OperationIterator[BackendT, Transaction]):
    """Transactions, each as it ends. Each loop is a new wait."""
