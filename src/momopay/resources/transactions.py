"""Read, list and find transactions, wait for them, confirm callbacks, reconcile and sweep."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from functools import partial
from http import HTTPStatus

from momopay._core.config import is_async
from momopay._core.operation import Resource, as_operation, operation
from momopay._core.reads import TransactionIterator, read_page, read_transaction, read_unread, search
from momopay._core.session import Session
from momopay._core.wiring import BackendT, load
from momopay._polling.wait import PollLoops, PollSchedule, WaitCall, WaitIterator, confirm, terminal
from momopay._redaction import clears_frames, redacted_repr
from momopay.durable.payment import journal_for
from momopay.durable.receive import Receiver
from momopay.durable.reconcile import DayReport, reconcile_days
from momopay.durable.remedies import BookedOrder
from momopay.durable.sweep import Sweep, SweepReport
from momopay.errors import ConfigurationError, RequestValidationError
from momopay.events import Event
from momopay.journal import Journal
from momopay.models.arguments import ChannelRef, TransactionRef
from momopay.models.callbacks import Callback
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.payments import AsyncPaymentHandler, PaymentHandler
from momopay.models.requests import Search, TransactionQuery, transaction_id_of
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary
from momopay.signing import CallbackSigner

logger: logging.Logger = logging.getLogger("momopay")

GUIDANCE = PollSchedule()


class Transactions(Resource[BackendT]):
    """Transactions (service page, "Transaction" and "States"). Nothing here moves money.

    Pass a transaction as its id, or as a record that has it. Any call that failed can be repeated.
    """

    def __init__(self, session: Session[BackendT], poll_loops: PollLoops) -> None:
        self._session = session
        self._poll_loops = poll_loops

    @operation
    async def get(self, transaction_id: TransactionRef) -> Transaction:
        """Read one transaction. Retried as needed. See the service page, "GET /transactions/{id}".

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
        """Read one page of the list, newest first. Retried as needed. See the service page, "GET /transactions".

        The page has counts over the whole filtered set. Filters may be combined. Their formats are not specified: times
        are sent as ISO 8601, amounts as numbers.

        Args:
            limit: Transactions on the page, 1 to 100.
            cursor: The ``next_cursor`` of the page before.
            status: Only this status.
            type: Only this type.
            from_: From this time.
            to: To this time.
            channel_id: Only this channel.
            amount_min: Lowest amount, KES.
            amount_max: Highest amount, KES.
            q: A text that the service searches for.
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
        """Walk the whole list, newest first, with the filters of `list`.

        Pages of `page_size` transactions, 1 to 100, are fetched as the walk reaches them. Each transaction comes once.
        Transactions that arrive during the walk are not seen. One whose status changes during it may have the old
        status or, with a `status` filter, be missed.

        Returns:
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``; ``.pages()`` gives whole pages.

        Raises:
            ProtocolError: During the walk: a page has no cursor, or the pages have no end.
        """
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
        return TransactionIterator(
            self._session,
            lambda cursor: as_operation(self._session, "transactions.iter", read_page, None, query, cursor),
        )

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
        """Search for a payment in the list, for example after an OutcomeUnknownError.

        Walks the list back to five minutes before `since`, or further if the ``Date`` headers of the service show that
        this machine's clock is ahead. An empty result proves nothing: a transaction may appear in the list later. One
        with the reference but another amount, phone, type or time, or one that cannot be read, is only logged, at
        WARNING. The whole search ends by the deadline. See the service page, "GET /transactions".

        Args:
            reference: The exact reference that the payment was sent with.
            since: When it was sent, an aware datetime.
            amount: Its amount, KES.
            phone: Its phone, in any form that `normalise_phone` takes.
            type: ``STK``, ``B2C`` or ``WALLET_TOPUP``.

        Returns:
            Every transaction that matches, newest first.

        Raises:
            ProtocolError: The list has no end, or not within the deadline: search since a later time, or give the
                client a longer deadline. Nothing was proven.
        """
        wanted = Search.checked(reference=reference, since=since, amount=amount, phone=phone, type=type)
        until = self._session.backend.now() + self._session.limits.deadline
        (matches,) = await search(self._session, [wanted], until)
        await read_unread(self._session, wanted, matches, until)
        text = "transaction %s has reference %s, and another amount, phone, type or time than the one searched for"
        for item in matches.near:
            logger.warning(text, item.transaction_id, redacted_repr(reference))
        if matches.unread:
            text = "reference %s was searched for in a list with %d items that cannot be read; any may be it"
            logger.warning(text, redacted_repr(reference), len(matches.unread))
        return matches.exact

    @operation
    async def confirm(self, callback: Callback) -> Transaction:
        """Confirm a callback, which is not signed, by the service's own record.

        Compares status, amount, phone and reference, if both the callback and the record have them. FAILED, CANCELLED
        and EXPIRED agree with each other and with REVERSED in the record, and a status that is no end with every
        record. A single confirmation reads the transaction by id; several at once on one client share a page of the
        list if it shows what they say. See the service page, "Callbacks" and "GET /transactions/{id}".

        Args:
            callback: From `parse_callback`.

        Returns:
            The service's record. Act on it, not on the callback. If it came from the list, the fields that only a
            single read has are None: `get` reads why a payment failed.

        Raises:
            CallbackMismatchError: The callback and the record disagree; answer non-2xx and act on nothing.
            TransactionNotFoundError: The account has no such transaction; act on nothing.
            MomoPayError: As for `get`; answer non-2xx, so that the callback comes again.
        """
        if not isinstance(callback, Callback):
            raise RequestValidationError({"callback": "must be a Callback, from parse_callback"})
        events = self._session.events
        with nullcontext() if events is None else events.confirming(callback):
            return await confirm(self._poll_loops.confirmations, self._session, callback)

    @operation
    async def receive(
        self,
        url: str,
        body: bytes,
        handler: PaymentHandler | AsyncPaymentHandler,
        *,
        signer: CallbackSigner | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> HTTPStatus:
        """Receive a callback (webhook), in any web framework; the views of FastAPI, Flask and Django call this.

        Checks the URL's token, parses the body, confirms it as `confirm` does, records the service's record in the
        client's journal, calls the handler, and marks the end as delivered. The handler gets each end once: FAILED,
        CANCELLED and EXPIRED are one, which does not follow SUCCESS or REVERSED. Without a journal, it gets repeats.

        Args:
            url: The request's whole URL, or its raw query string, as it was received and not decoded.
            body: The request's body; of a longer one than 64 KiB, its first 65,537 bytes.
            handler: Called with each `Payment` that has ended, whoever asked for it; ``async def`` only with an
                `AsyncClient`, where a plain function runs in a thread. The service waits 30 seconds for the response.
            signer: Checks the URL's token, and that the callback is of the payment that it was signed for.
            on_event: Called with a `CallbackReceived`, and with the `JournalChanged` of an entry that changed.

        Returns:
            The status to respond with: 200 if the end was handled, now or before, or is none; 400 if the body is no
            callback; 403 if it is forged; 503 if it was not confirmed or recorded, if the end is being handled
            elsewhere, or if the handler raised an error of momopay; 500 if it raised any other error. After any but
            200, the service sends the callback again. Nothing in the request makes this raise.
        """
        observers = [] if self._session.events is None else [self._session.events]
        if on_event is not None:
            observer = load("_core.events.observer_of")(on_event)
            observers.append(observer.start("transactions.receive", self._session.backend.now))
        receiver = Receiver(self._session, self._poll_loops.confirmations, handler, signer, observers)
        return await receiver.receive(url, body)

    @operation
    async def wait(
        self,
        transaction_id: TransactionRef,
        *,
        until: Callable[[Transaction], bool] = terminal,
        schedule: PollSchedule = GUIDANCE,
    ) -> Transaction:
        """Wait until a transaction has ended.

        Polls on the schedule, by default the service's guidance (service page, "GET /transactions/{id}"), and at once
        after `notify`. Waits on one client share their reads, so a success may come from the list, without the fields
        that only a single read has. An end without success is read by id for its result code, unless the rate budget
        has no slot within three poll intervals. A transient failure, a 429 or one malformed response does not end it.

        Args:
            transaction_id: An id or a record. A `Transaction` that has already ended is returned without a request.
            until: What counts as an end: `terminal`, `settled`, or a function of your own.
            schedule: When to poll, in seconds.

        Returns:
            The ended transaction.

        Raises:
            WaitTimeoutError: The schedule's limit passed; ``.last`` is the last state read. The payment may still
                succeed and move money: read it again later.
            TransactionNotFoundError: The account has no such transaction. A record's may be missing for a minute.
            ProtocolError: Two responses in a row were malformed, such as a proxy's page, or showed another
                transaction. Check the base URL. The payment continues without the wait.
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
        """Wait for many transactions, each as by `wait`, and return them as they end.

        What ends the wait for one does not end it for the others: the error comes after all that ended.

        Returns:
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``.

        Raises:
            WaitTimeoutError: After the last one, if the limit passed; ``.pending`` has the ids of all that did not end.
            MomoPayError: As for `wait`, if no other one timed out; ``.pending`` as above.
        """
        # The iterator may run later or more than once, so the ids are read and checked now.
        if isinstance(ids, str):  # each character would pass for an id
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
        zone: tzinfo | None = None,
        journal: Journal | None = None,
    ) -> DayReport:
        """Compare one or several days of the service's list with the journal and, if given, with your own orders.

        Finds unknown payments, entries that the service does not have, orders paid twice, other amounts, money that
        came back, and unresolved payments. Records what the service reports, as ``journal.settle`` does. Sends no
        payment. Reconcile a day after it is over: the list may lag. See the service page, "GET /transactions".

        Args:
            day: A date in Nairobi (UTC+3), unless `utc` or `zone` say otherwise.
            last_day: The last of several days, such as the end of a month.
            orders: Your orders of these days. Without them, a collection that is not in the journal is a difference.
            utc: Whether the days are in UTC.
            zone: Their time zone, such as ``ZoneInfo("Africa/Lagos")``.
            journal: The account's journal, by default the client's. It may have gone back in time.

        Returns:
            Sums and differences; ``.agrees`` if there are none.

        Raises:
            RequestValidationError: Not a date, or the last day is before the first.
        """
        journal, zone = journal_for(self._session, journal), UTC if utc else zone
        return await reconcile_days(self._session, journal, day=day, last_day=last_day, orders=orders, zone=zone)

    @operation
    async def sweep(
        self, *, handler: PaymentHandler | AsyncPaymentHandler | None = None, journal: Journal | None = None
    ) -> SweepReport:
        """Follow everything in the journal that has not ended, for example because a response or a callback was lost.

        Call it every minute or so, from any number of processes: one pass makes at most 15 requests, retries aside. It
        searches for unresolved payments, reads accepted ones that have not settled, and records status, result code,
        fee and end. Then it calls the handler once for each end, unless ``journal.handling`` has it as handled. A
        failed payout ends twice, FAILED and REVERSED: see ``payment.is_settled``. An end is for a handler for 30 days
        after the journal learned of it, by the database's clock.

        A prompt that ended without success is read once more ten minutes later, because a late PIN may pay it; a
        released payment is searched for once more then. A transaction on the pages under a reference of the journal
        that the journal did not send is a WARNING: another journal pays with this key. See the service page,
        "GET /transactions" and "GET /transactions/{id}".

        Args:
            handler: Called with each `Payment` that has ended; ``async def`` only with an `AsyncClient`. If it raises,
                the error is logged, and the next pass delivers the end again. Fields that only a read has may be None.
            journal: The account's journal, by default the client's.

        Raises:
            MomoPayError: A read failed. What was read before it is recorded and handled; sweep again.
        """
        return await Sweep(self._session, journal_for(self._session, journal), handler).run()

    def notify(self, callback: Callback | TransactionRef) -> None:
        """Wake the waits on this client for a callback's transaction, so that they poll at once.

        Nothing in the callback is trusted. Several waits at about the same time, or while the rate budget is short,
        share a page of the list. With an `AsyncClient`, call it from the client's own event loop, without ``await``.
        """
        # A failure makes the wait read by id. Nothing else depends on the status.
        failed = isinstance(callback, Callback) and bool(callback.status and callback.status.ended_without_success)
        self._poll_loops.waits.notify(transaction_id_of(callback), failed=failed)

    def _start_wait(
        self, ids: Iterable[TransactionRef], until: Callable[[Transaction], bool], schedule: PollSchedule
    ) -> WaitCall:
        if not callable(until) or is_async(until):
            raise ConfigurationError("until must be a function of a transaction, such as momopay.settled, not async")
        if not isinstance(schedule, PollSchedule):
            raise ConfigurationError("schedule must be a PollSchedule, such as PollSchedule(limit=60)")
        wanted = {transaction_id_of(each): each for each in ids}
        return WaitCall(self._poll_loops.waits, self._session, wanted, until, schedule)
