"""Wait for transactions and confirm callbacks; `Listing` reads and lists them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import date
from functools import partial
from typing import Any

from momopay._core.backend import BackendT
from momopay._core.operation import as_operation, operation
from momopay._core.session import Session
from momopay._polling.schedule import PollSchedule, terminal
from momopay._polling.wait import Confirmation, Coordinators, TransactionWait, WaitIterator
from momopay.callbacks import check_agreement
from momopay.durable.day_report import BookedOrder, DayReport
from momopay.durable.delivery import AsyncTransactionHandler, TransactionHandler
from momopay.durable.payment import Payment
from momopay.durable.reconcile_days import reconcile_days
from momopay.durable.sweep import SweepReport, sweep
from momopay.journal import Journal
from momopay.models.arguments import TransactionRef
from momopay.models.callbacks import Callback, mark_confirmed
from momopay.models.requests import transaction_id_of
from momopay.models.transactions import Transaction
from momopay.resources.listing import Listing

__all__ = ["Transactions"]

GUIDANCE = PollSchedule()


class Transactions(Listing[BackendT]):
    """Transactions (service page, "Transaction" and "States"). Nothing here moves money."""

    def __init__(self, session: Session[BackendT], coordinators: Coordinators) -> None:
        self._session = session
        self._coordinators = coordinators

    @operation
    async def confirm(self, callback: Callback) -> Transaction:
        """Compare a callback, which is not signed, with the service's own record.

        Compares status, amount, phone and reference; any two ends without success agree, and so does what the callback
        leaves out. See the service page, "Callbacks" and "GET /transactions/{id}".

        One confirmation alone reads the transaction by its id, at once. Those that come while another one on this
        client is reading share a page of the list: what it shows as the callback tells it is confirmed by that, and
        everything else is read by id. 60 at once cost two requests if the newest hundred transactions have them.

        Args:
            callback: From `parse_callback`.

        Returns:
            The transaction as the service has it. Act on this, not on the callback. If it came from the list, the
            fields that only a single read has are None: why a payment failed is then stated by the callback only,
            and `get` reads it.

        Raises:
            CallbackMismatchError: They disagree; answer non-2xx and act on nothing.
            TransactionNotFoundError: The account has no such transaction; act on nothing.
            APIConnectionError: The reads of others took until the deadline, or as for `get`; the callback comes again.
            MomoPayError: As for `get`; answer non-2xx, so that the callback comes again.
        """
        if self._session.operation is None:
            return await self._confirm(callback)
        with self._session.operation.confirming(callback):
            return await self._confirm(callback)

    async def _confirm(self, callback: Callback) -> Transaction:
        transaction = await Confirmation(self._coordinators.confirmations, self._session, callback).read()
        # Whether a read ever says EXPIRED, and which of FAILED and CANCELLED a cancelled prompt reads as, is not
        # specified, so the exact status of an end without success is not compared.
        check_agreement(callback, transaction)
        mark_confirmed(callback)
        return transaction

    @operation
    async def wait(
        self,
        transaction_id: TransactionRef,
        *,
        until: Callable[[Transaction], bool] = terminal,
        schedule: PollSchedule = GUIDANCE,
    ) -> Transaction:
        """Wait until a transaction has ended.

        Polls by the schedule, by default the service's guidance (service page, "GET /transactions/{id}"), and at once
        after `notify`. Waits on one client share what they read: a success may come from the list, and the fields that
        only a single read has are then None. An end without success is read by id for its result code; if no slot of
        the rate budget is free within three poll intervals, you get the fields that the list has. A transient failure
        or a 429 does not end the wait, and nor does one answer that is not the service's format.

        Args:
            transaction_id: The id that an initiation returned, or a record that carries it. A `Transaction` that
                has already ended is returned at once, without a request.
            until: What counts as an end: `terminal`, `settled`, or a function of your own.
            schedule: When to poll, in seconds.

        Returns:
            The transaction, ended.

        Raises:
            WaitTimeoutError: The schedule's limit passed; ``.last`` is the last state read. It may still
                succeed, so money may yet move: read it again later.
            TransactionNotFoundError: The account has no such transaction.
            ProtocolError: Two answers in a row were not the service's format, such as a proxy's page. Check the
                address; the payment goes on without you.
            APIError: A refusal that waiting does not change, such as a revoked key.
        """
        ended = await self._start_wait([transaction_id], until, schedule).next()
        assert ended is not None  # noqa: S101  it waits for one
        return ended

    def wait_all(
        self,
        ids: Iterable[TransactionRef],
        *,
        until: Callable[[Transaction], bool] = terminal,
        schedule: PollSchedule = GUIDANCE,
    ) -> WaitIterator[BackendT]:
        """Wait for many transactions and return each as it ends; otherwise as `wait`.

        Args:
            ids: Ids, or records that carry them.
            until: What counts as an end.
            schedule: When to poll, in seconds, for all of them.

        Returns:
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``.

        Raises:
            RequestValidationError: Not ids.
            WaitTimeoutError: During the iteration, when the limit passed; ``.pending`` has those that did not end.
            TransactionNotFoundError: During the iteration, for the first one that the account does not have.
            ProtocolError: During the iteration: two answers in a row were not the service's format.
            APIError: During the iteration: a refusal that waiting does not change.
        """
        # The iterator may run later or more than once, so the ids are read and checked now.
        wanted = list(ids)
        for each in wanted:
            transaction_id_of(each)

        def step(wait: TransactionWait) -> Coroutine[Any, Any, Transaction | None]:
            return as_operation(self._session, "transactions.wait_all", _next_end, None, wait)

        return WaitIterator(self._session, partial(self._start_wait, wanted, until, schedule), step)

    @operation
    async def reconcile(
        self,
        *,
        day: date,
        last_day: date | None = None,
        orders: Iterable[BookedOrder] | None = None,
        utc: bool = False,
        journal: Journal | None = None,
    ) -> DayReport:
        """Compare a day, or several, of the service's list with the journal and, if given, with your own orders.

        Finds payments that nobody knows, entries that the service does not have, orders paid twice, other amounts,
        money that came back, and what is unresolved. What the service's record says of an entry is recorded in the
        journal, as ``journal.settle`` does. Sends no payment. A payment of the last minutes may not be in the list yet,
        so reconcile a day when it is over. See the service page, "GET /transactions".

        Args:
            day: Of Nairobi (UTC+3).
            last_day: The last of several days, such as the end of a month.
            orders: Your orders of these days. Without them, a collection that is not in the journal is a difference.
            utc: The days are of UTC.
            journal: The account's journal, by default the client's. It may have gone back in time.

        Returns:
            Sums and differences; ``.agrees`` if there is none.

        Raises:
            RequestValidationError: Not a date, or the last day is before the first.
        """
        journal = self._session.journal_for(journal)
        return await reconcile_days(self._session, journal, day=day, last_day=last_day, orders=orders, utc=utc)

    @operation
    async def sweep(
        self, *, handler: TransactionHandler | AsyncTransactionHandler | None = None, journal: Journal | None = None
    ) -> SweepReport:
        """Follow everything in the journal that has not ended: when answers or callbacks were lost, or ends are late.

        One pass. It searches for what is unresolved, reads what was accepted and has not settled, and records
        status, result code, fee and end. Then it calls the handler once for each settled end, also for one that was
        recorded elsewhere and not handled: a callback and a sweep that bring the same end share ``journal.handling``.
        Call it every minute or so, from as many processes as you like. One pass makes at most 15 requests, retries
        aside, and reads the newest pages of the list first; what it does not reach it leaves to the next one.

        A payout that FAILED has not settled before it is REVERSED. A prompt that ended without success is read once
        more ten minutes later, because a late PIN may pay it; so is what a person released searched for. Rests on the
        service page, "GET /transactions" and "GET /transactions/{id}".

        Args:
            handler: Called with each transaction that has settled; an ``async def`` with an `AsyncClient` only. If it
                raises, that is logged, and the next pass delivers the end again. The fields that only a single read has
                are None where a page of the list was read; an end without success is read by id as long as the pass
                has requests left. The first sweep with a handler delivers ends of the day before it, and no older ones.
            journal: The account's journal, by default the client's.

        Returns:
            What was done, and what is left.

        Raises:
            MomoPayError: What was read before was recorded and handled; sweep again.
        """
        return await sweep(self._session, self._session.journal_for(journal), handler)

    def notify(self, callback: Callback | TransactionRef) -> None:
        """Wake the waits on this client for a transaction, so that they poll at once.

        One notified wait reads its transaction once; several at about the same time, or while the rate budget is
        short, share a page of the list. Nothing in the callback is trusted, and nothing is sent from here. With an
        `AsyncClient`, call it from the client's own event loop, without ``await``.

        Args:
            callback: The callback that came, or the transaction's id.
        """
        # This only makes the wait read by id at once: the callback is not signed, so its status decides nothing.
        failed = isinstance(callback, Callback) and callback.transaction.status.ended_without_success
        self._coordinators.waits.notify(transaction_id_of(callback), failed=failed)

    def _start_wait(
        self, ids: Iterable[TransactionRef], until: Callable[[Transaction], bool], schedule: PollSchedule
    ) -> TransactionWait:
        # A payment that was read anew may have ended: then it is returned without a request, as a transaction is.
        wanted = {transaction_id_of(each): each.transaction if isinstance(each, Payment) else each for each in ids}
        return TransactionWait(self._coordinators.waits, self._session, wanted, until, schedule)


async def _next_end(session: Session[BackendT], wait: TransactionWait) -> Transaction | None:
    """Return the next end, as a step that is an operation of its own."""
    wait.session = session
    return await wait.next()
