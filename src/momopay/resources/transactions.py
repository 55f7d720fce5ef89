"""Read, list and find transactions, wait for them, confirm callbacks, reconcile and sweep."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import nullcontext
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from momopay._core.handlers import is_async
from momopay._core.operation import Resource, as_operation, operation
from momopay._core.reads import TransactionIterator, read_page, read_transaction
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._polling.schedule import PollSchedule, terminal
from momopay._polling.wait import Confirmation, Coordinators, TransactionWait, WaitIterator
from momopay._redaction import clears_frames, redacted_repr
from momopay.callbacks import check_agreement
from momopay.durable.payment import Payment
from momopay.durable.reconcile import BookedOrder, DayReport, reconcile_days
from momopay.durable.search import search
from momopay.durable.sweep import AsyncTransactionHandler, Sweep, SweepReport, TransactionHandler
from momopay.errors import ConfigurationError, RequestValidationError
from momopay.journal import Journal
from momopay.models.arguments import ChannelRef, TransactionRef
from momopay.models.callbacks import Callback, mark_confirmed
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.requests import Search, TransactionQuery, transaction_id_of
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

GUIDANCE = PollSchedule()


class Transactions(Resource[BackendT]):
    """Transactions (service page, "Transaction" and "States"). Nothing here moves money.

    A transaction may be given by its id, or by a record that carries it. What fails may be called again.
    """

    def __init__(self, session: Session[BackendT], coordinators: Coordinators) -> None:
        self._session = session
        self._coordinators = coordinators

    @operation
    async def get(self, transaction_id: TransactionRef) -> Transaction:
        """Read one transaction as it is now. Retried as needed. See the service page, "GET /transactions/{id}".

        Raises:
            TransactionNotFoundError: The account has no such transaction.
        """
        return await read_transaction(self._session, transaction_id)

    @operation
    async def list(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        status: TransactionStatus | str | None = None,
        type: TransactionType | str | None = None,  # noqa: A002  the wire's name
        from_: datetime | date | str | None = None,
        to: datetime | date | str | None = None,
        channel_id: ChannelRef | None = None,
        amount_min: int | Decimal | None = None,
        amount_max: int | Decimal | None = None,
        q: str | None = None,
    ) -> TransactionPage:
        """Read one page of the list, newest first: 1 to 100 transactions, after the ``next_cursor`` of the page before.

        It has counts over the whole filtered set. The filters ``status`` to ``q`` may be combined: only this status,
        type and channel, from and to these times, from ``amount_min`` to ``amount_max`` (KES), and what the service
        finds by the text ``q``. Their formats are not specified: times are sent as ISO 8601, amounts as numbers.
        Retried as needed. See the service page, "GET /transactions".
        """
        query = TransactionQuery.checked(
            limit=limit,
            cursor=cursor,
            status=status,
            type=type,
            from_=from_,
            to=to,
            channel_id=channel_id,
            amount_min=amount_min,
            amount_max=amount_max,
            q=q,
        )
        return await read_page(self._session, query)

    @clears_frames
    def iter(
        self,
        *,
        status: TransactionStatus | str | None = None,
        type: TransactionType | str | None = None,  # noqa: A002  the wire's name
        from_: datetime | date | str | None = None,
        to: datetime | date | str | None = None,
        channel_id: ChannelRef | None = None,
        amount_min: int | Decimal | None = None,
        amount_max: int | Decimal | None = None,
        q: str | None = None,
        page_size: int = 100,
    ) -> TransactionIterator[BackendT]:
        """Walk the list, newest first, over as many pages as there are; the filters are those of `list`.

        Pages of ``page_size`` transactions, 1 to 100, are fetched as the walk reaches them. Each transaction is seen
        once. Those that arrive meanwhile are not seen, and one that changes its status may be seen with its old status
        or, under a ``status`` filter, be missed.

        Returns:
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``; ``.pages()`` gives whole pages.

        Raises:
            ProtocolError: During the walk: the service gave a cursor a second time.
        """
        # New transactions come before the first page. The cursor keeps the rest from shifting if the service's
        # cursors are stable, which is not specified.
        query = TransactionQuery.checked(
            page_size=page_size,
            status=status,
            type=type,
            from_=from_,
            to=to,
            channel_id=channel_id,
            amount_min=amount_min,
            amount_max=amount_max,
            q=q,
        )

        def fetch(cursor: str | None) -> Coroutine[Any, Any, TransactionPage]:
            return as_operation(self._session, "transactions.iter", read_page, None, query, cursor)

        return TransactionIterator(self._session, fetch)

    @operation
    async def find(
        self,
        *,
        reference: str,
        since: datetime,
        amount: int | Decimal | None = None,
        phone: str | None = None,
        type: TransactionType | str | None = None,  # noqa: A002  the wire's name
    ) -> builtins.list[TransactionSummary]:
        """Search for a payment by what is known of it, for example after an OutcomeUnknownError.

        Walks the list back to five minutes before ``since``; further if the ``Date`` of the service's responses shows
        that this machine's clock is ahead. Finding nothing proves nothing: a transaction may appear in the list later.
        What has the reference and another amount, phone, type or time is not returned, and logged at WARNING. The
        deadline applies to each page. See the service page, "GET /transactions".

        Args:
            reference: The reference that it was sent with, exactly.
            since: When it was sent, an aware datetime.
            amount: Its amount, KES.
            phone: Its phone, in any form that `normalise_phone` takes.
            type: ``STK``, ``B2C`` or ``WALLET_TOPUP``.

        Returns:
            Every transaction that fits, newest first.
        """
        wanted = Search.checked(reference=reference, since=since, amount=amount, phone=phone, type=type)
        (matches,) = await search(self._session, [wanted])
        for item in matches.near:
            logger.warning(
                "transaction %s has reference %s, and another amount, phone, type or time than the one searched for",
                item.transaction_id,
                redacted_repr(reference),
            )
        return matches.exact

    @operation
    async def confirm(self, callback: Callback) -> Transaction:
        """Compare a callback, which is not signed, with the service's own record.

        Compares status, amount, phone and reference; any two ends without success agree, and so does what the callback
        leaves out. See the service page, "Callbacks" and "GET /transactions/{id}".

        One confirmation alone reads the transaction by its id. Those that come while another one on this client is
        reading share a page of the list, where it shows what the callbacks say.

        Args:
            callback: From `parse_callback`.

        Returns:
            The transaction as the service has it. Act on this, not on the callback. If it came from the list, the
            fields that only a single read has are None: `get` reads why a payment failed.

        Raises:
            CallbackMismatchError: They disagree; answer non-2xx and act on nothing.
            TransactionNotFoundError: The account has no such transaction; act on nothing.
            MomoPayError: As for `get`; answer non-2xx, so that the callback comes again.
        """
        if not isinstance(callback, Callback):
            raise RequestValidationError({"callback": "must be a Callback, from parse_callback"})
        operation = self._session.operation
        with nullcontext() if operation is None else operation.confirming(callback):
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
        ended = await self._start_wait([transaction_id], until, schedule).end(self._session)
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

        Returns:
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``.

        Raises:
            WaitTimeoutError: During the iteration, when the limit passed; ``.pending`` has those that did not end.
            MomoPayError: During the iteration, as for `wait`.
        """
        # The iterator may run later or more than once, so the ids are read and checked now.
        if isinstance(ids, str):  # of which each character would pass for an id
            raise RequestValidationError({"ids": "must be several ids; for one, call wait"})
        wanted = list(ids)
        for each in wanted:
            transaction_id_of(each)
        return WaitIterator(self._session, partial(self._start_wait, wanted, until, schedule))

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

        One pass, of at most 15 requests, retries aside: call it every minute or so, from as many processes as you like.
        It searches for what is unresolved, reads what was accepted and has not settled, and records status, result
        code, fee and end. Then it calls the handler once for each settled end, also for one that was recorded elsewhere
        and not handled: a callback and a sweep that bring the same end share ``journal.handling``.

        A payout that FAILED has not settled before it is REVERSED. A prompt that ended without success is read once
        more ten minutes later, because a late PIN may pay it. What a person released is searched for once more, too.
        See the service page, "GET /transactions" and "GET /transactions/{id}".

        Args:
            handler: Called with each transaction that has settled; an ``async def`` with an `AsyncClient` only. If it
                raises, that is logged, and the next pass delivers the end again. The fields that only a single read has
                may be None. The first sweep with a handler delivers ends of the day before it, and no older ones.
            journal: The account's journal, by default the client's.

        Raises:
            MomoPayError: What was read before was recorded and handled; sweep again.
        """
        return await Sweep(self._session, self._session.journal_for(journal), handler).run()

    def notify(self, callback: Callback | TransactionRef) -> None:
        """Wake the waits on this client for the transaction of a callback, so that they poll at once.

        One notified wait reads its transaction once; several at about the same time, or while the rate budget is
        short, share a page of the list. Nothing in the callback is trusted, and nothing is sent from here. With an
        `AsyncClient`, call it from the client's own event loop, without ``await``.
        """
        # This only makes the wait read by id at once: the callback is not signed, so its status decides nothing.
        failed = isinstance(callback, Callback) and callback.transaction.status.ended_without_success
        self._coordinators.waits.notify(transaction_id_of(callback), failed=failed)

    def _start_wait(
        self, ids: Iterable[TransactionRef], until: Callable[[Transaction], bool], schedule: PollSchedule
    ) -> TransactionWait:
        if not callable(until) or is_async(until):  # the coroutine of an async def would count as true at once
            raise ConfigurationError("until must be a function of a transaction, such as momopay.settled, not async")
        if not isinstance(schedule, PollSchedule):
            raise ConfigurationError("schedule must be a PollSchedule, such as PollSchedule(limit=60)")
        # A payment that was read anew may have ended: then it is returned without a request, as a transaction is.
        wanted = {transaction_id_of(each): each.transaction if isinstance(each, Payment) else each for each in ids}
        return TransactionWait(self._coordinators.waits, self._session, wanted, until, schedule)
