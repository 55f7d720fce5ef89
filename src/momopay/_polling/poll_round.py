"""One poll round: the requests that one wait makes for all that are registered.

Why for all: a key has 60 requests a minute, and the service's guidance is a read of each payment every ten seconds,
which is enough for ten payments. A page of the list costs one request, too, and shows the newest hundred.

A round is one of:
- A full read: one GET by id for a list row that ended without success, because the row has no result code.
- A read by id, if only one transaction is due. It costs what a page costs and shows all fields.
- A list round: the newest page, then what `_search_further` needs for those that are not on it.

Invariants:
- Only the wait that has the coordinator's turn runs a round, so at most one request is in flight for all waits.
- No wait is forgotten: after a round, each waiter that was due has been read, or is due again after its interval.
- A notification that was not served, because no slot was free or the round was cancelled, stays.

Times are in seconds, on the backend's monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from momopay._polling.coordinator import WaitCoordinator
from momopay._polling.waiter import RESULT_POLLS, Observation, Waiter
from momopay.errors import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    MomoPayError,
    ProtocolError,
    ServerError,
    ThrottledError,
)
from momopay.models.transactions import Transaction, TransactionPage, transaction_from

logger = logging.getLogger("momopay")

# Poll intervals between searches beyond the first page while the rate budget is short.
_DEEP_SCAN_PAUSE: Final = 2

_TRANSIENT = (APIConnectionError, BudgetExhaustedError, ProtocolError, ServerError, ThrottledError)


def is_transient(error: BaseException) -> bool:
    """Return whether a wait continues after the failure: no answer, no slot, or a 429 or 5xx with whatever code.

    It continues after an answer that is not the service's format, too, but not after two in a row; see `Waiter`.
    """
    if isinstance(error, _TRANSIENT):
        return True
    status = error.status_code if isinstance(error, APIError) else 0
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


class TransactionReader(Protocol):
    """How a round reads the service; `until` is the monotonic time by which the request must end."""

    async def read(self, transaction_id: str, until: float) -> Transaction:
        """Read one transaction by its id."""
        ...

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        """Read a page of the list, newest first."""
        ...


@dataclass(frozen=True)
class PollRound:
    """One round. All its requests end by `until`, the deadline of the wait that polls."""

    coordinator: WaitCoordinator
    reader: TransactionReader
    clock: Callable[[], float]
    until: float

    async def run(self) -> bool:
        """Make the requests and hand the results to the waiters; return False if no slot was free before `until`.

        A refusal that is not transient, and concerns no single transaction, is raised.
        """
        now = self.clock()
        waiters = self.coordinator.waiters(now)
        unread = [waiter for waiter in waiters if waiter.needs_full_read]
        due = [waiter for waiter in waiters if waiter.is_due(now)]
        try:
            # They take turns. If all full reads went first, a run of failures would hold back every success.
            if unread and (self.coordinator.full_read_next or not due):
                self.coordinator.full_read_next = False
                await self._read_in_full(unread)
            elif due:
                self.coordinator.full_read_next = True
                await self._poll(due, waiters)
        except BudgetExhaustedError as error:
            logger.info("a wait continues: %s", error)
            return False
        return True

    async def _read_in_full(self, unread: list[Waiter]) -> None:
        # The newest request first: when there are more failures than slots, going by age would reach each one just
        # after its result deadline, and no wait would get a result code.
        chosen = max(unread, key=lambda waiter: waiter.result_deadline)
        waiters = [waiter for waiter in unread if waiter.transaction_id == chosen.transaction_id]
        try:
            await self._read(waiters, min(self.until, chosen.result_deadline))
        except MomoPayError as error:
            # No slot before the deadline of the wait that polls: one that has more time may still get one.
            no_slot = isinstance(error, BudgetExhaustedError) and self.until < chosen.result_deadline
            if no_slot or not is_transient(error):
                raise
            logger.info("a transaction is not read in full: %s", error)
            for waiter in waiters:
                waiter.abandon_full_read(self.clock())

    async def _poll(self, due: list[Waiter], waiters: list[Waiter]) -> None:
        notified = [waiter for waiter in due if waiter.notified]
        # Cleared before the request: a notification that comes while it is under way must cause another.
        for waiter in notified:
            waiter.notified = False
        polled = self._due_soon(due, waiters)
        try:
            if self._is_one_read(due, polled):
                polled = due
                await self._read(due, self.until)
            else:
                polled = await self._poll_list(due, notified)
        except BaseException as error:
            # `next_poll_at` stays, too: others are polled for by a wait that has more time, or that goes on.
            if isinstance(error, BudgetExhaustedError) or not is_transient(error):
                for waiter in notified:
                    waiter.notified = True
                raise
            logger.info("a wait continues: %s", error)
        now = self.clock()
        for waiter in polled:
            waiter.next_poll_at = max(waiter.next_poll_at, now + waiter.every)

    def _due_soon(self, due: list[Waiter], waiters: Iterable[Waiter]) -> list[Waiter]:
        """Return those that are due, and those that will be within one interval: they share the page."""
        now = self.clock()
        soon = (waiter for waiter in waiters if waiter.is_due(now + waiter.every))
        return list(dict.fromkeys([*due, *soon]))

    def _is_one_read(self, due: list[Waiter], due_soon: list[Waiter]) -> bool:
        """Return whether a read by id serves as many as a page would."""
        # One that was notified ahead of its schedule is read alone, too: the others gain little from a page now.
        is_early = all(waiter.next_poll_at > self.clock() for waiter in due)
        return len(_by_id(due)) == 1 and (is_early or len(_by_id(due_soon)) == 1)

    async def _poll_list(self, due: list[Waiter], notified: list[Waiter]) -> list[Waiter]:
        """Read the newest page, and further if needed; return the waiters that this round was for."""
        started = self.clock()
        page = await self._page(None, self._due_soon(due, self.coordinator.waiters(started)))
        # The request may have queued for its slot: those that came due, or registered, meanwhile take part.
        waiters = self.coordinator.waiters(self.clock())
        polled = self._due_soon(due, waiters)
        missing = _by_id(waiter for waiter in polled if waiter.needs_polling)
        self._record_page(page, waiters, missing)
        every = min(waiter.every for waiter in polled)
        if missing and self.clock() >= self.coordinator.next_deep_scan_at:
            with suppress(BudgetExhaustedError):  # no slot for more, but the first page was read
                await self._search_further(page, waiters, missing, started + every)
            # A round this long had to queue for slots. Most payments are on the first page, so it goes first.
            if self.clock() > started + every:
                self.coordinator.next_deep_scan_at = self.clock() + _DEEP_SCAN_PAUSE * every
        # Those that cannot wait for another deep scan get a read of their own.
        for waiter in (waiter for group in missing.values() for waiter in group):
            if waiter in notified or waiter.deadline < self.clock() + RESULT_POLLS * every:
                waiter.needs_full_read = True
        return polled

    async def _search_further(
        self, page: TransactionPage, waiters: list[Waiter], missing: dict[str, list[Waiter]], stop_at: float
    ) -> None:
        """Look for those that the first page does not show; remove from `missing` what is found."""
        # The walk down the list stops at the last page, at a repeated cursor, at rows older than all that is missing,
        # and when it has read as many pages as transactions are missing: reading those by id costs no more.
        cursors: set[str | None] = {None}
        while len(missing) > len(cursors) and page.next_cursor not in cursors and not _is_older(page, missing):
            cursors.add(page.next_cursor)
            page = await self._page(page.next_cursor, [waiter for group in missing.values() for waiter in group])
            self._record_page(page, waiters, missing)
        # The longest unread first, so that one whose reads keep failing holds back no other; at least one each time.
        for identity, group in sorted(missing.items(), key=lambda entry: entry[1][0].last_read_at):
            await self._read(group, self.until)
            del missing[identity]
            if self.clock() > stop_at:
                return

    async def _page(self, cursor: str | None, waiters: list[Waiter]) -> TransactionPage:
        """Read a page of the list for these waiters."""
        try:
            return await self.reader.page(cursor, self.until)
        except MomoPayError as error:
            _record_failure(waiters, error)
            raise

    async def _read(self, waiters: list[Waiter], until: float) -> None:
        """Read the one transaction of these waiters by its id."""
        for waiter in waiters:
            waiter.last_read_at = self.clock()  # also if it fails: the next one has its turn first
        try:
            observation = Observation(await self.reader.read(waiters[0].transaction_id, until), is_full=True)
        except MomoPayError as error:
            if is_transient(error):
                _record_failure(waiters, error)
                raise
            if not isinstance(error, APIError):
                raise
            for waiter in waiters:
                waiter.failure = error
        else:
            for waiter in waiters:
                waiter.record(observation, self.clock())

    def _record_page(self, page: TransactionPage, waiters: list[Waiter], missing: dict[str, list[Waiter]]) -> None:
        # By the page, not by the waiters: of thousands, a page shows a hundred.
        shown = {item.transaction_id: item for item in page.items}
        for waiter in waiters:
            item = shown.get(waiter.transaction_id)
            if item is not None:
                waiter.record(Observation(transaction_from(item), is_full=False), self.clock())
        for identity in shown:
            missing.pop(identity, None)
        # At once: further requests may queue for slots, and nobody on this page must wait for them.
        self.coordinator.wake()


def _record_failure(waiters: Iterable[Waiter], error: MomoPayError) -> None:
    if not isinstance(error, BudgetExhaustedError):  # nothing was asked, so nothing was answered
        for waiter in waiters:
            waiter.record_failure(error)


def _by_id(waiters: Iterable[Waiter]) -> dict[str, list[Waiter]]:
    """Group the waiters by their transaction: several waits may be for the same one."""
    grouped: dict[str, list[Waiter]] = {}
    for waiter in waiters:
        grouped.setdefault(waiter.transaction_id, []).append(waiter)
    return grouped


def _is_older(page: TransactionPage, missing: dict[str, list[Waiter]]) -> bool:
    """Return whether everything missing is newer than the end of this page, so that no further page can show it."""
    if not page.items:
        return True
    oldest = page.items[-1].created_at
    created = [waiter.created_at for waiters in missing.values() for waiter in waiters]
    return all(created_at is not None and created_at > oldest for created_at in created)
