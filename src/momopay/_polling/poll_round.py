"""One poll for everyone who waits: a sweep over the list, or a read by id, whichever tells most for one request.

SPEC.md's guidance is a read each, every ten seconds; at 60 requests a minute that serves seven payments. A page of the
list costs what a read costs and tells of a hundred. A poll knows no budget: where requests take long, slots are short.
Times are in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from momopay._polling.coordinator import Observation, TransactionReader, WaitCoordinator, Waiter, is_transient
from momopay.errors import APIError, BudgetExhaustedError, MomoPayError
from momopay.models.transactions import Transaction, TransactionPage

logger = logging.getLogger("momopay")

T = TypeVar("T")

_SHORT = 0.1
"""Slots are short when a request takes longer than this share of the pace of those who wait."""
_FURTHER = 6
"""Where slots are short, further than the first page is gone once in the time of so many looks, or sooner the more are
looked for there."""
_SELDOM = 12
"""Where slots are short, one that no page walked shows is read by id once in the time of so many looks."""


async def poll(
    coordinator: WaitCoordinator, reader: TransactionReader, clock: Callable[[], float], until: float
) -> bool:
    """Look once, for everyone: read a reason that is owed, or poll for those who are due.

    Reasons and sweeps take turns. A failure that is_transient leaves everyone to their schedule.

    Args:
        coordinator: Who waits.
        reader: How to poll.
        clock: Tells the monotonic time.
        until: When whoever looks must be done.

    Returns:
        Whether there was a slot for it; without one, nobody was looked for.
    """
    try:
        await _PollRound(coordinator, reader, clock, until).make()
    except BudgetExhaustedError as error:
        logger.info("a wait goes on: %s", error)
        return False
    return True


class _PollRound:
    def __init__(
        self, coordinator: WaitCoordinator, reader: TransactionReader, clock: Callable[[], float], until: float
    ) -> None:
        self.coordinator = coordinator
        self.reader = reader
        self.clock = clock
        self.until = until

    async def make(self) -> None:
        now = self.clock()
        waiting = self.coordinator.waiting(now)
        owed = [waiter for waiter in waiting if waiter.owed]
        due = [waiter for waiter in waiting if waiter.is_due(now)]
        if owed and (self.coordinator.reason_next or not due):
            self.coordinator.reason_next = False
            first = max(owed, key=lambda waiter: (waiter.looked_last, waiter.patience))
            await self._read_a_reason(first.transaction_id, owed)
        elif due:
            self.coordinator.reason_next = True
            await self._look_for(due, [waiter for waiter in waiting if waiter.seeks])

    async def _read_a_reason(self, identity: str, owed: list[Waiter]) -> None:
        waiters = [waiter for waiter in owed if waiter.transaction_id == identity]
        try:
            await self._read(identity, waiters, min(self.until, waiters[0].patience))
        except MomoPayError as error:
            if not is_transient(error):
                raise
            logger.info("an end is told without its reason: %s", error)
            for waiter in waiters:
                waiter.forgo(self.clock())

    async def _look_for(self, due: list[Waiter], seeking: list[Waiter]) -> None:
        """Look for those who are due, and for all who would be before their next poll."""
        notified = [waiter for waiter in due if waiter.notified]
        for waiter in notified:
            waiter.notified = False
        joined = self._joined(due, seeking)
        try:
            if self._is_single(due, joined, seeking):
                joined = due
                await self._read(due[0].transaction_id, due, self.until)
            else:
                joined = await self._sweep(due, notified)
        except BudgetExhaustedError:
            _call_again(notified)  # and nobody is put off: no slot before this poll's end may be one before theirs
            raise
        except BaseException as error:
            if not is_transient(error):
                _call_again(notified)
                raise
            logger.info("a wait goes on: %s", error)
        now = self.clock()
        for waiter in joined:
            waiter.due = max(waiter.due, now + waiter.every)

    def _joined(self, due: Iterable[Waiter], seeking: Iterable[Waiter]) -> list[Waiter]:
        now = self.clock()
        return list(dict.fromkeys([*due, *(waiter for waiter in seeking if waiter.is_due(now + waiter.every))]))

    def _is_single(self, due: list[Waiter], joined: list[Waiter], seeking: list[Waiter]) -> bool:
        """Whether a read by id does as well as a sweep, which costs the same and tells of everyone."""
        if _count(due) > 1:
            return False
        if self._is_slow(seeking):
            return _count(seeking) == 1
        woken_early = all(waiter.due > self.clock() for waiter in due)
        return woken_early or _count(joined) == 1

    async def _sweep(self, due: list[Waiter], notified: list[Waiter]) -> list[Waiter]:
        """Walk the list for those who are due, and for all who are by the time that the answer is there.

        Who was notified or is about to give up, and is not on the first page, is owed a read, or a further page if
        there are several. Gives everyone whom it looked for.
        """
        page = await self._timed(self.reader.page(None, self.until))
        now = self.clock()
        waiting = self.coordinator.waiting(now)
        sought = self._joined(due, (waiter for waiter in waiting if waiter.seeks))
        unseen = _by_id(waiter for waiter in sought if waiter.seeks)
        _tell(page, waiting, unseen, now)
        self.coordinator.wake()
        pressing = [waiter for waiter in notified if waiter.transaction_id in unseen]
        held_back = now < self.coordinator.further_at
        if held_back:
            pressing += [each for waiters in unseen.values() for each in waiters if each.take_last_look(now)]
        if _count(pressing) == 1:
            for waiter in pressing:
                waiter.owed = True
            del unseen[pressing[0].transaction_id]
        if unseen and (_count(pressing) > 1 or not held_back):
            rest = min(_FURTHER, _count(sought) / len(unseen)) * min(waiter.every for waiter in sought)
            with suppress(BudgetExhaustedError):  # the first page was read all the same
                await self._go_further(page, waiting, unseen)
            if self._is_slow(sought):
                self.coordinator.further_at = now + rest
        return sought

    async def _go_further(self, page: TransactionPage, waiting: list[Waiter], unseen: dict[str, list[Waiter]]) -> None:
        """Walk back to the oldest one looked for, taking those seen out of `unseen`; read by id those then missing.

        The walk stops where as many pages were walked as transactions are missing: reading those costs no more.
        Longest unseen first, so that one whose reads keep failing holds nobody else back; where slots are short,
        only one, and none that was seen lately.
        """
        walked: set[str | None] = {None}
        while len(unseen) > len(walked) and page.next_cursor not in walked and not _is_older(page, unseen):
            walked.add(page.next_cursor)
            page = await self._timed(self.reader.page(page.next_cursor, self.until))
            _tell(page, waiting, unseen, self.clock())
            self.coordinator.wake()
        for identity, waiters in sorted(unseen.items(), key=lambda entry: entry[1][0].seen_at):
            lately = self.clock() < waiters[0].seen_at + _SELDOM * waiters[0].every
            if lately and self._is_slow(waiters):
                return
            await self._read(identity, waiters, self.until)
            if self._is_slow(waiters):
                return

    async def _read(self, identity: str, waiters: list[Waiter], until: float) -> None:
        for waiter in waiters:
            waiter.seen_at = self.clock()
        try:
            news = Observation(await self._timed(self.reader.read(identity, until)), whole=True)
        except APIError as error:
            if is_transient(error):
                raise
            for waiter in waiters:
                waiter.failure = error
        else:
            for waiter in waiters:
                waiter.tell(news, self.clock())
                waiter.owed = False

    async def _timed(self, request: Awaitable[T]) -> T:
        begun = self.clock()
        try:
            return await request
        finally:
            self.coordinator.took = self.clock() - begun

    def _is_slow(self, waiters: Iterable[Waiter]) -> bool:
        return self.coordinator.took > _SHORT * min(waiter.every for waiter in waiters)


def _call_again(notified: Iterable[Waiter]) -> None:
    for waiter in notified:
        waiter.notified = True


def _tell(page: TransactionPage, waiting: Iterable[Waiter], unseen: dict[str, list[Waiter]], now: float) -> None:
    """Tell everyone what the page shows of their transaction."""
    by_id = _by_id(waiting)
    for item in page.items:
        for waiter in by_id.get(item.transaction_id, ()):
            waiter.tell(Observation(Transaction.from_summary(item), whole=False), now)
        unseen.pop(item.transaction_id, None)


def _by_id(waiters: Iterable[Waiter]) -> dict[str, list[Waiter]]:
    grouped: dict[str, list[Waiter]] = {}
    for waiter in waiters:
        grouped.setdefault(waiter.transaction_id, []).append(waiter)
    return grouped


def _count(waiters: Iterable[Waiter]) -> int:
    return len({waiter.transaction_id for waiter in waiters})


def _is_older(page: TransactionPage, unseen: dict[str, list[Waiter]]) -> bool:
    """Whether the list, walked this far, is already older than everything looked for."""
    if not page.items:
        return True
    oldest = page.items[-1].created_at
    missing = (waiter.created_at for waiters in unseen.values() for waiter in waiters)
    return all(created_at is not None and created_at > oldest for created_at in missing)
