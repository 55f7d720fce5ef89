"""Waiters, the turn to poll, and the poll round that one caller runs for all.

For all, because a key has 60 requests a minute. The service advises to read each payment every ten seconds, which that
limit allows for ten payments. A page of the list costs one request, too, and shows the newest hundred.
A caller runs it, and not a worker that a client would have to start, stop and recover. A caller waits anyway, and if it
is cancelled or gives up, another one takes the turn.

Invariants:
- Only the caller that has the turn runs a round. So at most one request is in flight for all waits on a key, and one
  for all confirmations, which have a turn of their own.
- No waiter is forgotten: after a round, each waiter that was due has been read, or is due again after its interval. A
  confirmation is never due again: its own caller reads by id what the round did not read.
- A notification stays pending if no slot was free or the round was cancelled.
- If a request fails because the polling caller has no time left, no other caller fails.
- An exception from a signal handler, at any instruction, leaves no turn taken and no caller behind: the turn is a lock
  in C that ``with`` holds, and the coordinator has only weak references to callers.

Times are in seconds, on the backend's monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from momopay._core.reads import EVERYTHING, read_page, read_transaction
from momopay._core.session import Session
from momopay._fork import renew_in_child
from momopay._polling.schedule import is_transient
from momopay._ratelimit.budget import Lane
from momopay.errors import APIError, BudgetExhaustedError, MomoPayError, ProtocolError
from momopay.models.transactions import Transaction, TransactionPage, transaction_from

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncSignal
    from momopay._transport.sync_backend import SyncSignal

logger = logging.getLogger("momopay")

# Polls have a floor. As reads, confirmations would starve on a key that pays without a pause.
_LANE: Final = Lane.POLL
# The most pages that a round reads for confirmations. They show every payment of the last five minutes, even if a key
# spends its whole rate limit on payments. Callbacks are not signed, and a forged one must not cost a walk of the list.
_CONFIRMATION_PAGES: Final = 3
# Seconds until a caller that found the turn taken tries again, even if nobody woke it: an exception from a signal
# handler may have ended the caller with the turn just before it woke the others.
_RETRY_TURN: Final = 30.0


class Observation(NamedTuple):
    """A transaction as one request showed it, with all its fields or only those of a list row."""

    transaction: Transaction
    is_full: bool


@dataclass(eq=False, slots=True)
class Waiter:
    """One transaction that one caller, its owner, waits for.

    Thread safety: the owner, the caller that polls and callers of ``notify`` share it. It needs no lock, because each
    attribute is assigned atomically and no decision depends on two of them changing together.
    """

    transaction_id: str
    signal: SyncSignal | AsyncSignal  # wakes the owner
    every: float  # seconds between polls; infinite for a confirmation, which is polled for once
    deadline: float  # when the owner gives up

    # Requests to poll. Any caller may make one, and a poll round clears it.
    next_poll_at: float
    notified: bool = False
    needs_full_read: bool = False

    # Written by the caller that polls.
    observation: Observation | None = None
    failure: MomoPayError | None = None  # ends the wait: a refusal of this transaction, or malformed answers
    was_malformed: bool = False  # whether the last answer was not the service's format
    last_read_at: float = -inf  # read or tried to read
    reads: int = 0

    # Written by the owner.
    judged: Observation | None = None  # the last observation that it has examined
    ended: Transaction | None = None  # a list row that ends the wait, returned if no full read comes
    full_read_status: str | None = None  # the status for which a full read was requested
    result_deadline: float = inf  # when the full read is no longer waited for

    def record(self, observation: Observation, now: float) -> None:
        """Publish an observation and wake the owner."""
        self.last_read_at = now
        self.reads += 1
        self.was_malformed = False
        if observation.is_full:
            self.needs_full_read = False
        held = self.observation
        # The owner may not have examined a full read yet when the next page comes. A list row of the same status must
        # not replace it, because the row has no result code.
        if (
            held is None
            or held is self.judged
            or observation.is_full
            or not held.is_full
            or held.transaction.status != observation.transaction.status
        ):
            self.observation = observation
        # At once, because the rest of the round may take long.
        self.signal.set()

    def record_failure(self, error: MomoPayError) -> None:
        """Record a failed poll. The second malformed answer in a row ends the wait."""
        # One may be from a proxy that restarts. Two mean that something other than the service answers.
        is_malformed = isinstance(error, ProtocolError)
        if is_malformed and self.was_malformed and self.ended is None:  # a known end is returned instead
            self.failure = error
        self.was_malformed = is_malformed

    @property
    def answers_by(self) -> float:
        """When the owner returns or gives up, if nothing more is read."""
        return self.deadline if self.ended is None else self.result_deadline

    @property
    def needs_polling(self) -> bool:
        """Whether a poll is of use: nothing has ended the wait, and the owner has examined all that was read."""
        return self.ended is None and self.failure is None and self.observation is self.judged

    def is_due(self, now: float) -> bool:
        return self.needs_polling and (self.notified or self.next_poll_at <= now)


class Coordinator:
    """The callers that poll together, and the turn to poll: all waits on one key, or all confirmations.

    Thread safety: all methods may be called from any thread of a blocking client, and from the event loop of an async
    one. A forked child begins anew, because the thread that had the turn does not exist there.
    """

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        # In order of arrival. It needs no lock, because adding, removing and copying are atomic.
        self.by_id: WeakValueDictionary[int, Caller] = WeakValueDictionary()
        self._turn = Lock()  # of the caller that had the turn last, which holds the lock while it polls
        self._turn_guard = Lock()  # held for a moment, while `_turn` is examined and replaced
        self.full_read_next: bool = False  # whether full reads go first in the next round

    def callers(self) -> list[Caller]:
        return [caller for each in self.by_id.valuerefs() if (caller := each()) is not None]

    def waiters(self, now: float) -> list[Waiter]:
        """Return the waiters of all callers that have not reached their deadline."""
        return [each for caller in self.callers() for each in list(caller.pending.values()) if each.deadline > now]

    def take_turn(self, held: Lock) -> bool:
        """Give the caller that holds this lock the turn, until it releases it; return False if another one has it."""
        # Never blocks: a caller without the turn waits for its own signal, so that it ends at its deadline.
        with self._turn_guard:
            if self._turn.locked():
                return False
            self._turn = held
            return True

    def notify(self, transaction_id: str, *, failed: bool) -> None:
        """Request a poll for a transaction now, or a full read if it is reported as failed."""
        for caller in self.callers():
            waiter = caller.pending.get(transaction_id)
            if waiter is not None:
                if failed:
                    # Only a read by id has the result code, so a page would waste a request.
                    waiter.needs_full_read = True
                else:
                    waiter.notified = True
                waiter.signal.set()


class Caller:
    """A call that waits for one transaction or many, and polls for all callers when it has the turn.

    It belongs to one thread or task. Others use only `pending` and `signal`. A poll round is one of:
    - A full read: one GET by id for a list row that ended without success, because the row has no result code.
    - A read by id, if only one transaction is due. It costs what a page costs and shows all fields.
    - A list round: the newest page, then further pages and reads by id for those that it does not show.
    """

    confirms: bool = False  # whether all callers of the coordinator are confirmations

    def __init__(self, coordinator: Coordinator, session: Session[Any], deadline: float) -> None:
        self.session = session
        # It needs no lock, because only the owner changes it and others copy it atomically.
        self.pending: dict[str, Waiter] = {}
        self.signal: SyncSignal | AsyncSignal = session.backend.signal()
        self.now: Callable[[], float] = session.backend.now
        self._coordinator = coordinator
        self._deadline = deadline
        self._has_slot = False
        coordinator.by_id[id(self)] = self

    async def poll(self, until: float) -> None:
        """Run a poll round for all; if another caller is running one, wait for its end, at most until that time.

        Raises `BudgetExhaustedError` if no slot is free before the deadline, any error after the deadline, and an error
        that is not transient and concerns no single transaction.
        """
        turn, taken = Lock(), False
        try:
            with turn:
                taken = self._coordinator.take_turn(turn)
                if taken:
                    await self._run_round()
        finally:
            if taken:
                # However the round ended, cancellation included, the others must learn that the turn is free.
                for caller in self._coordinator.callers():
                    caller.signal.set()
        if not taken:
            await self.signal.wait(max(0.0, min(until - self.now(), _RETRY_TURN)))

    async def read_by_id(self, transaction_id: str, until: float) -> Transaction:
        has_slot, self._has_slot = self._has_slot, False
        read = await read_transaction(self.session, transaction_id, lane=_LANE, until=until, has_slot=has_slot)
        if read.transaction_id.casefold() != transaction_id.casefold():
            raise ProtocolError(f"the read of transaction {transaction_id} shows {read.transaction_id}, another one")
        return read

    async def _run_round(self) -> None:
        now = self.now()
        waiters = self._coordinator.waiters(now)
        unread = [waiter for waiter in waiters if waiter.needs_full_read]
        anybody_due = any(waiter.is_due(now) for waiter in waiters)
        # Full reads and polls alternate. If full reads went first, a run of failures would hold back every success.
        if unread and (self._coordinator.full_read_next or not anybody_due):
            self._coordinator.full_read_next = False
            await self._read_in_full(unread)
        elif anybody_due:
            self._coordinator.full_read_next = True
            await self._poll_for_due()

    async def _read_in_full(self, unread: list[Waiter]) -> None:
        # The newest request first. With more failures than slots, the oldest would be read just after its result
        # deadline, and no wait would get a result code.
        chosen = max(unread, key=lambda waiter: waiter.result_deadline)
        waiters = [waiter for waiter in unread if waiter.transaction_id == chosen.transaction_id]
        logger.debug("reading one in full, for its result code; %d are to be read so", len(_by_id(unread)))
        try:
            await self._read_for(waiters, min(self._deadline, chosen.result_deadline))
        except MomoPayError as error:
            # Another caller may have the time that this one lacks.
            if not is_transient(error) or (self._is_out_of_time(error) and self._deadline < chosen.result_deadline):
                raise
            logger.info("a transaction is not read in full: %s", error)
            # For good if the wait has ended, else until a list row shows that end again.
            for waiter in waiters:
                waiter.needs_full_read = False
                waiter.full_read_status = None
                waiter.result_deadline = inf if waiter.ended is None else self.now()

    async def _poll_for_due(self) -> None:
        # The slot first: waiters that come due while the round queues for it share the page.
        await self.session.acquire_slot(_LANE, latest=self._deadline, describe=lambda: "transactions.wait")
        self._has_slot = True
        now = self.now()
        waiters = self._coordinator.waiters(now)
        due = [waiter for waiter in waiters if waiter.is_due(now)]
        polled = [waiter for waiter in waiters if waiter.is_due(now + waiter.every)]  # those due soon share a page
        notified = [waiter for waiter in due if waiter.notified]
        if not due:  # those for whom the slot was taken have left; the next request uses it
            return
        logger.debug("polling for %d due by schedule and %d notified", len(due) - len(notified), len(notified))
        try:
            # Cleared before the request, because a notification during the request must cause another one.
            for waiter in notified:
                waiter.notified = False
            # A single one that is notified early is read by id, too: the others gain little from a page now.
            is_early = all(waiter.next_poll_at > now for waiter in due)
            if len(_by_id(due)) == 1 and (is_early or len(_by_id(polled)) == 1):
                polled = due
                await self._read_for(due, self._deadline)
            else:
                await self._poll_list(polled, notified)
        except BaseException as error:
            # Confirmations go on even if the page is refused: each is then read by id.
            goes_on = is_transient(error) or (self.confirms and isinstance(error, APIError))
            if self._is_out_of_time(error) or not goes_on:
                # `next_poll_at` stays as it is, so that another caller polls for them.
                for waiter in notified:
                    waiter.notified = True
                raise
            logger.info("a poll failed: %s", error)
        for waiter in polled:
            waiter.next_poll_at = max(waiter.next_poll_at, self.now() + waiter.every)

    async def _poll_list(self, polled: list[Waiter], notified: list[Waiter]) -> None:
        """Read the newest page, then further pages and single transactions for those that it does not show."""
        stop_at = self.now() + min(waiter.every for waiter in polled)
        page = await self._read_page(None, polled)
        waiters = self._coordinator.waiters(self.now())  # also those that began to wait during the request
        missing = _by_id(waiter for waiter in polled if waiter.needs_polling)
        self._record_page(page, waiters, missing)
        with suppress(BudgetExhaustedError):  # no slot for more, but the first page was read
            # The walk stops at the last page, at a repeated cursor, and after as many pages as transactions are
            # missing: reading those by id costs no more.
            cursors: set[str | None] = {None}
            most = _CONFIRMATION_PAGES if self.confirms else inf
            while len(cursors) < min(len(missing), most) and page.items and page.next_cursor not in cursors:
                cursors.add(page.next_cursor)
                page = await self._read_page(page.next_cursor, [each for group in missing.values() for each in group])
                self._record_page(page, waiters, missing)
            if not self.confirms:
                await self._read_missing(missing, stop_at)
        for waiter in notified:  # those that were not read must not wait for the next poll
            if waiter.transaction_id in missing:
                waiter.needs_full_read = True

    async def _read_missing(self, missing: dict[str, list[Waiter]], stop_at: float) -> None:
        """Read by id what no page showed, and remove it from `missing`: at least one, and more until `stop_at`."""
        # The longest unread first, so that one whose reads keep failing does not hold back the others.
        for identity, waiters in sorted(missing.items(), key=lambda entry: entry[1][0].last_read_at):
            await self._read_for(waiters, self._deadline)
            del missing[identity]
            if self.now() > stop_at:
                return

    async def _read_page(self, cursor: str | None, waiters: list[Waiter]) -> TransactionPage:
        has_slot, self._has_slot = self._has_slot, False
        try:
            # No status filter: a transaction that has ended meanwhile must be on the page.
            return await read_page(
                self.session, EVERYTHING, cursor, lane=_LANE, until=self._deadline, has_slot=has_slot
            )
        except MomoPayError as error:
            if not self._is_out_of_time(error):
                for waiter in waiters:
                    waiter.record_failure(error)
            raise

    async def _read_for(self, waiters: list[Waiter], until: float) -> None:
        """Read by id the one transaction that these waiters wait for."""
        for waiter in waiters:
            waiter.last_read_at = self.now()  # even if the read fails, so that others go first next time
        try:
            observation = Observation(await self.read_by_id(waiters[0].transaction_id, until), is_full=True)
        except MomoPayError as error:
            if self._is_out_of_time(error):
                raise
            is_refused = isinstance(error, APIError) and not is_transient(error)
            for waiter in waiters:
                if is_refused or self.confirms:
                    waiter.failure = error
                else:
                    waiter.record_failure(error)
            if not is_refused:
                raise
        else:
            for waiter in waiters:
                waiter.record(observation, self.now())

    def _record_page(self, page: TransactionPage, waiters: list[Waiter], missing: dict[str, list[Waiter]]) -> None:
        """Record the rows of a page; remove from `missing` what it shows."""
        shown = {item.transaction_id: item for item in page.items}
        for waiter in waiters:
            item = shown.get(waiter.transaction_id)
            if item is not None:
                waiter.record(Observation(transaction_from(item), is_full=False), self.now())
        for identity in shown:
            missing.pop(identity, None)

    def _is_out_of_time(self, error: BaseException) -> bool:
        """Return whether a request failed because this caller has no time left. Others may have more."""
        return isinstance(error, BudgetExhaustedError) or self.now() >= self._deadline


def _by_id(waiters: Iterable[Waiter]) -> dict[str, list[Waiter]]:
    """Group waiters by transaction: several callers may wait for the same one."""
    grouped: dict[str, list[Waiter]] = {}
    for waiter in waiters:
        grouped.setdefault(waiter.transaction_id, []).append(waiter)
    return grouped
