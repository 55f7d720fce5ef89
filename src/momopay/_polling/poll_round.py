"""What waits and confirmations share: waiters, the turn to poll, and the poll round that one caller runs for all.

Why for all: a key has 60 requests a minute, and the service's guidance is a read of each payment every ten seconds,
which is enough for ten payments. A page of the list costs one request, too, and shows the newest hundred.
Why by a caller, and not by a worker in a thread or task of its own: a client would have to start the worker, stop it
and survive its failures. A caller waits anyway. If it is cancelled or gives up, another one takes the turn.

Invariants:
- Only the caller that has the turn runs a round, so at most one request is in flight for all waits on a key, and one
  for all confirmations, which take turns of their own.
- No waiter is forgotten: after a round, each waiter that was due has been read, or is due again after its interval. A
  confirmation is never due again: what the round did not read, its own caller reads by id.
- A notification that was not served, because no slot was free or the round was cancelled, stays.
- What fails because the caller that polls has no time left is nobody else's failure.
- An exception out of a signal handler, at whatever instruction it strikes, leaves no turn taken and no caller behind:
  the turn is a lock in C that ``with`` holds, and a caller takes part only as long as somebody refers to it.

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

# The lane of polls leaves slots to payments and reads, and has a floor. In the lane of reads, confirmations would
# starve: a key that pays without a pause leaves no slot to reads.
_LANE: Final = Lane.POLL
# Pages that are read for confirmations. They show every payment of the last five minutes, even if a key spends its
# whole rate limit on payments. Callbacks are not signed, so an invented one must not cost a walk down the whole list.
_CONFIRMATION_PAGES: Final = 3
# Seconds until a caller that found the turn taken tries again, even if nobody woke it: an exception out of a signal
# handler may have ended the one that had it just before it woke the others.
_RETRY_TURN: Final = 30.0


class Observation(NamedTuple):
    """What one request showed of a transaction: all its fields, or only those of a list row."""

    transaction: Transaction
    is_full: bool


@dataclass(eq=False, slots=True)
class Waiter:
    """One transaction that one caller, its owner, waits for.

    Thread safety: the owner, the caller that polls and whoever calls ``notify`` share it. It needs no lock, because
    each attribute is assigned in one step and no decision depends on two of them being changed together.
    """

    transaction_id: str
    signal: SyncSignal | AsyncSignal  # wakes the owner
    every: float  # seconds between polls; infinite for a confirmation, which is polled for once
    deadline: float  # when the owner gives up

    # Requests to poll. Anybody may make one, and a poll round clears it.
    next_poll_at: float
    notified: bool = False
    needs_full_read: bool = False

    # Written by the caller that polls.
    observation: Observation | None = None
    failure: MomoPayError | None = None  # ends the wait: a refusal of this transaction, or malformed answers
    was_malformed: bool = False  # whether the last answer was not the service's format
    last_read_at: float = -inf  # read or tried to read
    reads: int = 0

    # Written by the owner: what it concluded.
    judged: Observation | None = None
    ended: Transaction | None = None  # a list row that ends the wait, returned if no full read comes
    full_read_status: str | None = None  # the status for which a full read was requested
    result_deadline: float = inf  # when the full read is no longer waited for

    def record(self, observation: Observation, now: float) -> None:
        """Publish what a request showed, and wake the owner."""
        self.last_read_at = now
        self.reads += 1
        self.was_malformed = False
        if observation.is_full:
            self.needs_full_read = False
        held = self.observation
        # The owner may be busy, so a full read may still be unjudged when the next page comes. A list row of the
        # same status says less, and replacing the full read with it would lose the result code.
        if (
            held is None
            or held is self.judged
            or observation.is_full
            or not held.is_full
            or held.transaction.status != observation.transaction.status
        ):
            self.observation = observation
        # At once: the round may go on for long, and whoever has its answer must not wait for that.
        self.signal.set()

    def record_failure(self, error: MomoPayError) -> None:
        """Take note of a poll that failed; the second malformed answer in a row ends the wait."""
        # One may be a proxy that restarts. Two mean that something else answers, which waiting does not change.
        is_malformed = isinstance(error, ProtocolError)
        if is_malformed and self.was_malformed and self.ended is None:  # an end that is known is returned
            self.failure = error
        self.was_malformed = is_malformed

    @property
    def answers_by(self) -> float:
        """When the owner answers or gives up, even if nothing more is read."""
        return self.deadline if self.ended is None else self.result_deadline

    @property
    def needs_polling(self) -> bool:
        """Whether its status is still of use: nothing has ended it, and the owner has seen all that was read."""
        return self.ended is None and self.failure is None and self.observation is self.judged

    def is_due(self, now: float) -> bool:
        """Return whether it must be polled for."""
        return self.needs_polling and (self.notified or self.next_poll_at <= now)


class Coordinator:
    """The callers that poll together, and whose turn it is: the waits on one key, or the confirmations.

    Thread safety: all methods may be called from any thread on a blocking client, and from the event loop of an
    asynchronous one. The child of a fork begins anew: a thread that had the turn is not there to end it.
    """

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        # In order of arrival, as long as somebody refers to them. Adding, removing and copying are one step each, so it
        # needs no lock.
        self.by_id: WeakValueDictionary[int, Caller] = WeakValueDictionary()
        self._turn = Lock()  # of the caller that had the turn last, which holds it while it polls
        self._turn_guard = Lock()  # held for a moment, while `_turn` is examined and replaced
        self.full_read_next: bool = False  # what a round leaves to the next

    def callers(self) -> list[Caller]:
        return [caller for each in self.by_id.valuerefs() if (caller := each()) is not None]

    def waiters(self, now: float) -> list[Waiter]:
        """Return the waiters of all callers that have not reached their deadline."""
        return [each for caller in self.callers() for each in list(caller.pending.values()) if each.deadline > now]

    def take_turn(self, held: Lock) -> bool:
        """Give the caller that holds this lock the turn, until it releases it; return False if another one has it."""
        # Never blocks: whoever does not get the turn waits for its own signal, so that it still ends at its deadline.
        with self._turn_guard:
            if self._turn.locked():
                return False
            self._turn = held
            return True

    def notify(self, transaction_id: str, *, failed: bool) -> None:
        """Have a transaction polled for at once, or read in full if it is said to have failed."""
        for caller in self.callers():
            waiter = caller.pending.get(transaction_id)
            if waiter is not None:
                if failed:
                    # Only a read by id has the result code, so a page would cost a request for nothing.
                    waiter.needs_full_read = True
                else:
                    waiter.notified = True
                waiter.signal.set()


class Caller:
    """A call that waits, for one transaction or many, and polls for all callers when it has the turn.

    It belongs to one thread or task. Others use only `pending` and `signal`. A poll round is one of:
    - A full read: one GET by id for a list row that ended without success, because the row has no result code.
    - A read by id, if only one transaction is due. It costs what a page costs and shows all fields.
    - A list round: the newest page, then further pages and reads by id for those that it does not show.
    """

    confirms: bool = False  # whether all callers of the coordinator are confirmations

    def __init__(self, coordinator: Coordinator, session: Session[Any], deadline: float) -> None:
        self.session = session
        # Only the owner removes from it, and others copy it in one step, so it needs no lock.
        self.pending: dict[str, Waiter] = {}
        self.signal: SyncSignal | AsyncSignal = session.backend.signal()
        self.now: Callable[[], float] = session.backend.now
        self._coordinator = coordinator
        self._deadline = deadline
        self._has_slot = False
        coordinator.by_id[id(self)] = self

    async def poll(self, until: float) -> None:
        """Run a poll round for all; if another caller is running one, wait for its end, at most until that time.

        Raises `BudgetExhaustedError` if no slot is free before the deadline, what failed because the deadline passed,
        and a refusal that is not transient and concerns no single transaction.
        """
        turn, taken = Lock(), False
        try:
            with turn:
                taken = self._coordinator.take_turn(turn)
                if taken:
                    await self._run_round()
        finally:
            if taken:
                # Whatever ended the round, cancellation included, the others must see that the turn is free.
                for caller in self._coordinator.callers():
                    caller.signal.set()
        if not taken:
            await self.signal.wait(max(0.0, min(until - self.now(), _RETRY_TURN)))

    async def read_by_id(self, transaction_id: str, until: float) -> Transaction:
        has_slot, self._has_slot = self._has_slot, False
        return await read_transaction(self.session, transaction_id, lane=_LANE, until=until, has_slot=has_slot)

    async def _run_round(self) -> None:
        now = self.now()
        waiters = self._coordinator.waiters(now)
        unread = [waiter for waiter in waiters if waiter.needs_full_read]
        anybody_due = any(waiter.is_due(now) for waiter in waiters)
        # They take turns. If all full reads went first, a run of failures would hold back every success.
        if unread and (self._coordinator.full_read_next or not anybody_due):
            self._coordinator.full_read_next = False
            await self._read_in_full(unread)
        elif anybody_due:
            self._coordinator.full_read_next = True
            await self._poll_for_due()

    async def _read_in_full(self, unread: list[Waiter]) -> None:
        # The newest request first: when there are more failures than slots, going by age would reach each one just
        # after its result deadline, and no wait would get a result code.
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
        # The slot first: while the round queues for it, others may come due, and share the page.
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
            # Cleared before the request: a notification that comes while it is under way must cause another.
            for waiter in notified:
                waiter.notified = False
            # One that was notified ahead of its schedule is read alone, too: the others gain little from a page now.
            is_early = all(waiter.next_poll_at > now for waiter in due)
            if len(_by_id(due)) == 1 and (is_early or len(_by_id(polled)) == 1):
                polled = due
                await self._read_for(due, self._deadline)
            else:
                await self._poll_list(polled, notified)
        except BaseException as error:
            # After a refusal of a page, too, each confirmation is read by id.
            goes_on = is_transient(error) or (self.confirms and isinstance(error, APIError))
            if self._is_out_of_time(error) or not goes_on:
                # `next_poll_at` stays, too: the others are polled for by a caller that has more time, or goes on.
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
            # The walk down the list stops at the last page, at a repeated cursor, and when it has read as many pages as
            # transactions are missing: reading those by id costs no more.
            cursors: set[str | None] = {None}
            most = _CONFIRMATION_PAGES if self.confirms else inf
            while len(cursors) < min(len(missing), most) and page.items and page.next_cursor not in cursors:
                cursors.add(page.next_cursor)
                page = await self._read_page(page.next_cursor, [each for group in missing.values() for each in group])
                self._record_page(page, waiters, missing)
            if not self.confirms:
                await self._read_missing(missing, stop_at)
        for waiter in notified:  # for whom there was no time, and who must not wait for the next poll
            if waiter.transaction_id in missing:
                waiter.needs_full_read = True

    async def _read_missing(self, missing: dict[str, list[Waiter]], stop_at: float) -> None:
        """Read by id what no page showed, at least one and more until that time; remove it from `missing`."""
        # The longest unread first, so that one whose reads keep failing holds back no other.
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
        """Read the one transaction of these waiters by its id."""
        for waiter in waiters:
            waiter.last_read_at = self.now()  # also if it fails: the next one has its turn first
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
        """Return whether a request failed because this caller has no time left, which says nothing of the others."""
        return isinstance(error, BudgetExhaustedError) or self.now() >= self._deadline


def _by_id(waiters: Iterable[Waiter]) -> dict[str, list[Waiter]]:
    """Group the waiters by their transaction: several callers may wait for the same one."""
    grouped: dict[str, list[Waiter]] = {}
    for waiter in waiters:
        grouped.setdefault(waiter.transaction_id, []).append(waiter)
    return grouped
