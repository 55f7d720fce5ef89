"""One callback that is being confirmed: how it gets the service's own record, alone or with others.

Why with others: a read for each callback would halve what a key can settle, because initiating the payment cost a
request, too. A page of the list costs what one read costs, and shows the newest hundred.

- A confirmation that is alone reads its transaction by id, at once.
- Those that come meanwhile wait for their turn. Then one of them reads a page for all, and further ones while that is
  cheaper than reading by id. Whatever a page shows as the callback tells it is confirmed. Everything else is read by
  id, each by its own caller.

Invariants:
- A page only ever confirms. The list may lag, so a difference is claimed only after a read by id.
- A failure reaches only the caller whose own request or time it was. The others continue with another page if the
  caller with the turn ran out of time or was cancelled, and by id if the service did not give the page.
- Whoever waits for a turn ends by its own deadline, whatever others do.

Thread safety: the caller that has the turn writes `found` and `is_off_page`, each in one step, and then wakes the
owner.

Times are in seconds, on the backend's monotonic clock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from momopay._polling.turns import Turns
from momopay.callbacks import check_agreement
from momopay.errors import APIConnectionError, BudgetExhaustedError, CallbackMismatchError, MomoPayError
from momopay.models.callbacks import Callback
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary, transaction_from

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

logger = logging.getLogger("momopay")

# They show every payment of the last five minutes, even if a key spends its whole rate limit on payments.
_MAX_PAGES: Final = 3


class ConfirmationReader(Protocol):
    """How a confirmation reads the service, by the monotonic time `until`. Each has its own."""

    async def take_slot(self, until: float) -> None:
        """Take the slot of the next request from the rate budget."""
        ...

    async def read(self, transaction_id: str, until: float) -> Transaction:
        """Read one transaction by its id."""
        ...

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        """Read a page of the list, newest first."""
        ...


class Confirmation:
    """A confirmation. It belongs to one thread or task; the one that has the turn shows it pages."""

    def __init__(
        self,
        turns: Turns[Confirmation],
        reader: ConfirmationReader,
        backend: SyncBackend | AsyncBackend,
        callback: Callback,
        deadline: float,
    ) -> None:
        self._turns = turns
        self._reader = reader
        self._backend = backend
        self._callback = callback
        self._deadline = deadline
        self._signal = backend.signal()
        self.found: Transaction | None = None
        self.is_off_page: bool = False

    def wake(self) -> None:
        self._signal.set()

    @property
    def is_waiting(self) -> bool:
        """Whether a page may still confirm it."""
        return self.found is None and not self.is_off_page

    async def read(self) -> Transaction:
        """Return the transaction as the service has it; it need not agree with the callback.

        Raises `APIConnectionError` if it had no turn before the deadline, and as reading it by id does.
        """
        with self._turns.register(self):
            while self.is_waiting:
                with self._turns.take_turn() as taken:
                    if taken and self.is_waiting:  # it may have been found just before
                        # The slot first: while this one queues for it, others may come, who share a page.
                        await self._reader.take_slot(self._deadline)
                        if len(self._waiting()) == 1:
                            return await self._read_by_id()
                        await self._read_pages()
                if not taken:
                    await self._wait_for_turn()
        # Not in a turn: others need not wait for this, and it takes no part in their pages.
        return self.found or await self._read_by_id()

    def see(self, row: TransactionSummary | None) -> None:
        """Take a row of the list as the service's record if it shows what the callback tells."""
        # Only ends. That a payment is still open may have changed since the list was made.
        if row is not None and self._callback.transaction.status.is_terminal:
            transaction = transaction_from(row)
            try:
                check_agreement(self._callback, transaction)
            except CallbackMismatchError:
                return
            self.found = transaction
            self.wake()

    def _waiting(self) -> list[Confirmation]:
        return [each for each in self._turns.registered() if each.is_waiting]

    async def _read_by_id(self) -> Transaction:
        return await self._reader.read(self._callback.transaction_id, self._deadline)

    async def _read_pages(self) -> None:
        """Read pages of the list, newest first, and show them to all that wait; what they lack is read by id."""
        batch, cursor = self._waiting(), None
        try:
            for number in range(1, _MAX_PAGES + 1):
                page = await self._reader.page(cursor, self._deadline)
                rows = {row.transaction_id: row for row in page.items}
                # The request may have queued for its slot, so those that came meanwhile take part.
                for each in self._waiting():
                    each.see(rows.get(each._callback.transaction_id))  # noqa: SLF001  one of its own kind
                cursor = page.next_cursor
                # Reading as many by id as pages were read costs no more.
                if cursor is None or sum(each.is_waiting for each in batch) <= number:
                    break
        except MomoPayError as error:
            if isinstance(error, BudgetExhaustedError) or self._backend.now() >= self._deadline:
                if self.found is None:
                    raise
                return  # it was this one's time, and not theirs: the next one reads a page for them
            logger.info("callbacks are confirmed one by one: %s", error)
        for each in batch:
            each.is_off_page = each.found is None

    async def _wait_for_turn(self) -> None:
        remaining = self._deadline - self._backend.now()
        if remaining <= 0:
            raise APIConnectionError("the callback was not confirmed in time: other reads took too long; not sent")
        await self._signal.wait(remaining)
