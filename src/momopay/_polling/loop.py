"""The loop in which one call reads for all: the waits of one key, or all confirmations of callbacks.

A page of the list costs one request, as a read by id does, and shows the newest hundred. So each wait registers an id
and a time, and whoever holds the lock reads for all that are due: by id if it is only one, else pages, and then by id
what they do not show. Calls do this, and not a worker that a client would have to start, stop and recover.

Invariants:
- Only the call that holds the lock reads. So at most one request is in flight for all waits on a key, and one for all
  confirmations, which have a loop of their own.
- No wait is forgotten: each that was due has been read, or is due again after its interval.
- If a request is cancelled, or fails because the reading call has no time left, nothing changes for the other calls.
- An exception from a signal handler, at any instruction, leaves no lock held and no call behind: the lock is one in C
  that ``with`` holds, and the loop has only weak references to calls.

Times are in seconds, on the backend's monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from itertools import chain
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from momopay._core.reads import EVERYTHING, read_page, read_transaction
from momopay._core.session import Session
from momopay._fork import renew_in_child
from momopay._locks import SafeLock
from momopay._ratelimit.budget import Lane
from momopay.errors import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    MomoPayError,
    ProtocolError,
    ServerError,
    ThrottledError,
    TransactionNotFoundError,
)
from momopay.models.transactions import Transaction, transaction_from, with_known

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncSignal
    from momopay._transport.sync_backend import SyncSignal

logger = logging.getLogger("momopay")

# Polls have a floor. As reads, confirmations would starve on a key that pays without a pause.
_LANE: Final = Lane.POLL
# Poll intervals to wait for a failure's result code.
RESULT_POLLS: Final = 3
_TRANSIENT: Final = (APIConnectionError, BudgetExhaustedError, ProtocolError, ServerError, ThrottledError)


def is_transient(error: BaseException) -> bool:
    """Return whether a wait continues after the failure: no answer, no slot, or 408, 429 or 5xx with any code.

    It also continues after a malformed answer, but not after two in a row; see `Wait`.
    """
    if isinstance(error, _TRANSIENT):
        return True
    status = error.status_code if isinstance(error, APIError) else 0
    may_pass = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
    return status in may_pass or status >= HTTPStatus.INTERNAL_SERVER_ERROR


class Request(IntEnum):
    """What a wait asks of the next reader, apart from its schedule."""

    NONE = 0
    READ = 1  # by any read: a callback reports the transaction
    READ_BY_ID = 2  # a page will not do: it did not show the transaction, or has no result code for it


@dataclass(eq=False, slots=True)
class Wait:
    """One transaction that one call waits for.

    Thread safety: the owning call, the call that reads for all and callers of `notify` share it. It needs no lock,
    because each attribute is assigned atomically and no decision depends on two of them changing together: readers
    assign `seen` before `is_new`, and the owner clears `is_new` before it examines `seen`.
    """

    transaction_id: str
    signal: SyncSignal | AsyncSignal  # wakes the owner
    due: float  # when it is read next on its schedule
    every: float  # seconds between reads; infinite for a confirmation, for which the loop reads once
    deadline: float  # when the owner gives up
    known: object = None  # the last record of it, of which a read by id may leave a part out
    not_found_until: float = -inf  # until when "not found" is transient, because the service gave us the id

    request: Request = Request.NONE
    seen: Transaction | None = None  # the last record for the owner
    is_new: bool = False  # whether the owner has not examined `seen` yet
    error: MomoPayError | None = None  # ends this wait
    # A list row of an end without success, until its result code is read, or until `answers_by` without it: learning
    # late that a payment failed costs more than not learning why.
    row: Transaction | None = None
    answers_by: float = 0.0  # when the owner publishes `row`, or gives up
    status_by_id: str | None = None  # of the last read by id
    was_malformed: bool = False  # whether the last response was not the service's format
    last_read_at: float = -inf  # read or tried to read
    reads: int = 0

    def __post_init__(self) -> None:
        self.answers_by = self.deadline

    @property
    def is_confirmation(self) -> bool:
        return self.every == inf

    @property
    def next_read_at(self) -> float:
        if self.request != Request.NONE:
            return -inf
        return self.due if self.row is None else inf

    def is_open(self, now: float) -> bool:
        """Return whether a read is of use: the wait goes on, and its owner has examined all that was read."""
        return now < self.answers_by and self.error is None and not self.is_new and self.next_read_at < inf

    def ask(self, request: Request) -> None:
        if not self.is_confirmation:  # its own call reads it by id, so that no other one waits for that
            self.request = max(self.request, request)

    def show(self, record: Transaction, now: float, *, by_id: bool) -> None:
        """Take in what a read shows, by id or on a page of the list."""
        self.last_read_at, self.reads, self.was_malformed = now, self.reads + 1, False
        self.known = record = with_known(record, self.known)
        if by_id:
            self.status_by_id = record.status
            # A read that lags behind the list does not undo an end.
            self.publish(record if self.row is None or record.status.is_terminal else self.row)
        elif self.is_confirmation or not record.status.ended_without_success:
            self.publish(record)
        elif record.status != self.status_by_id:  # else its result code was read before
            if self.row is None:
                self.answers_by = min(self.deadline, now + RESULT_POLLS * self.every)
            self.row = record
            self.ask(Request.READ_BY_ID)
            self.signal.set()  # the owner has another time to answer by

    def give_up_row(self, by: float) -> None:
        """Publish a kept row without its result code, if its time is up by then."""
        if self.row is not None and self.answers_by <= by:
            self.publish(self.row)

    def publish(self, record: Transaction) -> None:
        self.row, self.answers_by = None, self.deadline
        self.seen = record
        self.is_new = True
        self.signal.set()  # at once, because the reader may go on for long

    def fail(self, error: MomoPayError, now: float, *, by_id: bool) -> None:
        """Take in that a read failed. A refusal ends the wait, and so does the second malformed response in a row."""
        self.last_read_at = now
        # One malformed response may be from a proxy that restarts. Two mean that something other than the service
        # answers.
        was_malformed, self.was_malformed = self.was_malformed, isinstance(error, ProtocolError)
        may_pass = is_transient(error) and not (was_malformed and self.was_malformed)
        if isinstance(error, TransactionNotFoundError) and now < self.not_found_until:
            may_pass = True
        if self.is_confirmation:
            may_pass = not by_id  # if a page fails, the owner reads by id
        if self.row is not None:
            self.publish(self.row)
        elif not may_pass:
            self.error = error
            self.signal.set()


class PollingCall:
    """A call that waits for transactions, and reads for all calls of its loop while it holds the lock.

    It belongs to one thread or task. Others use only `waits` and `signal`.
    """

    def __init__(self, loop: PollLoop, session: Session[Any]) -> None:
        self.loop = loop
        self.session = session
        self.signal: SyncSignal | AsyncSignal = session.backend.signal()
        self.now: Callable[[], float] = session.backend.now
        # By id. It needs no lock, because only the owner changes it and others copy it atomically.
        self.waits: dict[str, Wait] = {}
        loop.register(self)

    @property
    def answers_by(self) -> float:
        """When the call returns something or gives up, if nothing more is read."""
        return min(wait.answers_by for wait in self.waits.values())

    def is_waiting(self) -> bool:
        """Return whether there is time left, and nothing that the owner has to do by itself."""
        now = self.now()
        return all(wait.is_open(now) for wait in self.waits.values())

    async def read_by_id(self, transaction_id: str, until: float, *, has_slot: bool = False) -> Transaction:
        read = await read_transaction(self.session, transaction_id, lane=_LANE, until=until, has_slot=has_slot)
        if read.transaction_id.casefold() != transaction_id.casefold():
            raise ProtocolError(f"the read of transaction {transaction_id} shows {read.transaction_id}, another one")
        return read


class PollLoop:
    """The calls that share their reads, and the lock of the one that reads.

    Thread safety: all methods may be called from any thread of a blocking client, and from the event loop of an async
    one. A forked child begins anew, because the thread that held the lock does not exist there.
    """

    def __init__(self, most_pages: float = inf) -> None:
        """`most_pages` bounds the pages that are read one after another."""
        self._most_pages = most_pages
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        # In order of arrival. It needs no lock, because adding, removing and copying are atomic.
        self._calls: WeakValueDictionary[int, PollingCall] = WeakValueDictionary()
        self._lock = Lock()  # of the call that read last, which holds it while it reads
        self._guard = SafeLock()  # held for a moment, while `_lock` is examined and replaced
        self._read_by_id_next: bool = False  # whether reads by id go first

    def register(self, call: PollingCall) -> None:
        self._calls[id(call)] = call

    @property
    def calls(self) -> list[PollingCall]:
        return [call for each in self._calls.valuerefs() if (call := each()) is not None]

    def notify(self, transaction_id: str, *, failed: bool) -> None:
        """Ask for a read of a transaction now, by id if it is reported as failed."""
        for call in self.calls:
            wait = call.waits.get(transaction_id)
            if wait is not None:
                # Only a read by id has the result code, so a page would waste a request.
                wait.ask(Request.READ_BY_ID if failed else Request.READ)
                wait.signal.set()

    async def read_or_wait(self, call: PollingCall) -> None:
        """Read for all what is due; if another call does so, wait for its end, at most until `call.answers_by`.

        Raise BudgetExhaustedError if no slot is free before that time, and the error of a request that took longer.
        """
        self.register(call)  # again, for a call that goes on in a forked child
        lock, is_held = Lock(), False
        try:
            with lock:
                is_held = self._replace_lock(lock)
                if is_held:
                    await self._read_what_is_due(call)
        finally:
            if is_held:
                # However it ended, cancellation included, the others must learn that the lock is free.
                for each in self.calls:
                    if each is not call:
                        each.signal.set()
        if not is_held:
            await call.signal.wait(max(0.0, call.answers_by - call.now()))

    def _replace_lock(self, held: Lock) -> bool:
        """Make a lock that its call holds the lock of the loop; return False if another call holds that."""
        # `with` blocks, and a call without the lock has to end at its deadline. An `acquire` that does not block would
        # not be undone if an exception from a signal handler came right after it.
        with self._guard:
            if self._lock.locked():
                return False
            self._lock = held
            return True

    async def _read_what_is_due(self, call: PollingCall) -> None:
        """Read until nothing is due, or the call has something else to do."""
        while True:
            until = call.answers_by
            waits, by_id = self._choose(call.now())
            if waits and await call.session.acquire_slot(_LANE, latest=until, describe=lambda: "transactions.wait"):
                # Waits that came due while the call queued for it share the page, and others may have left.
                waits, by_id = self._choose(call.now())
            if not waits:
                return
            await self._read_for(waits, call, until, by_id=by_id)
            if not call.is_waiting():
                return

    async def _read_for(self, waits: list[Wait], call: PollingCall, until: float, *, by_id: bool) -> None:
        """Make the request that was chosen for waits. Raise its error if another call shall make it."""
        self._read_by_id_next = not by_id
        unread, requests = _by_id(waits), [(wait, wait.request) for wait in waits]
        # Before the request, because what is asked for during it must cause another one.
        for wait in waits:
            wait.request = Request.NONE
        try:
            await (self._read_by_id if by_id else self._read_pages)(call, unread, until)
        except BaseException as error:
            is_out_of_time = call.now() >= until and is_transient(error)
            if is_out_of_time or not isinstance(error, MomoPayError):  # another call reads
                for wait, request in requests:
                    wait.ask(request)
                raise
            logger.info("a poll failed: %s", error)
            if not isinstance(error, BudgetExhaustedError):  # else there was no slot for a further page
                for wait in chain(*unread.values()):
                    wait.fail(error, call.now(), by_id=by_id)
        for wait in waits:
            wait.due = max(wait.due, call.now() + wait.every)

    def _open_waits(self, now: float) -> list[Wait]:
        return [wait for call in self.calls for wait in list(call.waits.values()) if wait.is_open(now)]

    def _choose(self, now: float) -> tuple[list[Wait], bool]:
        """Return the waits for which the next request is, and whether it is a read by id."""
        on_page, by_id = list[Wait](), list[Wait]()
        for wait in self._open_waits(now):
            (by_id if wait.request == Request.READ_BY_ID else on_page).append(wait)
        due = [wait for wait in on_page if wait.next_read_at <= now]
        # They alternate, so that neither a run of failures nor an endless row of callbacks holds back the other.
        if by_id and (self._read_by_id_next or not due):
            # The longest unread first, so that one whose reads keep failing does not hold back the others.
            first = min(by_id, key=lambda wait: wait.last_read_at)
            return [wait for wait in by_id if wait.transaction_id == first.transaction_id], True
        # Those that are due within their interval share a page. The others gain little from a page for a single one
        # that a callback reports before its time.
        shared = [wait for wait in on_page if wait.next_read_at <= now + wait.every]
        is_early = all(wait.due > now for wait in due)
        if len(_by_id(due)) == 1 and (is_early or len(_by_id(shared)) == 1):
            return due, True
        return shared if due else [], False

    async def _read_by_id(self, call: PollingCall, unread: dict[str, list[Wait]], until: float) -> None:
        """Read the one transaction that is unread."""
        (identity,) = unread
        read = await call.read_by_id(identity, until, has_slot=True)
        for wait in unread.pop(identity):
            wait.show(read, call.now(), by_id=True)

    async def _read_pages(self, call: PollingCall, unread: dict[str, list[Wait]], until: float) -> None:
        """Read the newest page, and further ones for what it does not show."""
        logger.debug("reading the list for %d", len(unread))
        listeners = dict[str, list[Wait]]()
        cursors, shown = list[str | None]([None]), set[str]()
        while True:
            # No status filter: a transaction that has ended meanwhile must be on the page.
            page = await read_page(
                call.session, EVERYTHING, cursors[-1], lane=_LANE, until=until, has_slot=len(cursors) == 1
            )
            if len(cursors) == 1:  # also those that began to wait during the request
                listeners = _by_id(self._open_waits(call.now()))
                for identity in unread.keys() - listeners.keys():  # nobody waits for them any more
                    del unread[identity]
            count = len(shown)
            for item in page.items:
                shown.add(item.transaction_id)
                unread.pop(item.transaction_id, None)
                for wait in listeners.pop(item.transaction_id, ()):
                    wait.show(transaction_from(item), call.now(), by_id=False)
            for each in page.unread:
                shown.add(each.id or "")
                for wait in unread.pop(each.id or "", ()):
                    wait.ask(Request.READ_BY_ID)
            # Reading the others by id costs no more than as many pages. A list that repeats a cursor, or shows nothing
            # new, may have no end.
            is_last = not page.next_cursor or page.next_cursor in cursors or len(shown) == count
            if is_last or len(cursors) >= min(len(unread), self._most_pages):
                break
            cursors.append(page.next_cursor)
        for wait in chain(*unread.values()):
            wait.ask(Request.READ_BY_ID)


def _by_id(waits: Iterable[Wait]) -> dict[str, list[Wait]]:
    """Group waits by transaction: several calls may wait for the same one."""
    grouped: dict[str, list[Wait]] = {}
    for wait in waits:
        grouped.setdefault(wait.transaction_id, []).append(wait)
    return grouped
