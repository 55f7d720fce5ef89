"""Transactions: read, listed, searched, waited for, and held against a callback."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from functools import partial

from momopay._budget import Lane
from momopay._colours import IO, Resource, operation
from momopay._pages import TransactionIterator, Walk
from momopay._retry import READ
from momopay._schedule import PollSchedule, terminal
from momopay._session import Endpoint, Session
from momopay._waiting import WaitingRoom
from momopay._watch import Ends, Watch
from momopay.callbacks import check_agreement
from momopay.models.callbacks import Callback
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.fields import ChannelRef, TransactionRef
from momopay.models.paths import transaction_id as transaction_id_of
from momopay.models.paths import transaction_path
from momopay.models.records import Envelope
from momopay.models.transactions import (
    Search,
    Transaction,
    TransactionPage,
    TransactionQuery,
    TransactionSummary,
    TransactionWalk,
)

GET = Endpoint("GET", READ, Lane.READ, Envelope[Transaction])
LIST = Endpoint("GET", READ, Lane.READ, Envelope[TransactionPage])

GUIDANCE = PollSchedule()


class Transactions(Resource[IO]):
    """Transactions (SPEC.md, "Transaction" and "States and transitions"). Nothing here moves money."""

    def __init__(self, session: Session[IO], room: WaitingRoom) -> None:
        self._session = session
        self._room = room

    @operation
    async def get(self, transaction_id: TransactionRef) -> Transaction:
        """Read one transaction. Repeated as needed. Rests on SPEC.md, "GET /transactions/{id}".

        Args:
            transaction_id: The id that an initiation returned, or a record that carries it.

        Returns:
            The transaction as it is now.

        Raises:
            RequestValidationError: Not an id.
            TransactionNotFoundError: The account has no such transaction.
            APIConnectionError: The service was not reached, or did not answer; try again.
            ServerError: The service failed to the end; try again later.
            RateLimitExceededError: Wait ``.retry_after`` seconds.
            BudgetExhaustedError: The rate budget has no slot within the deadline.
            ProtocolError: Something else answered; check base_url.
            APIError: Any other refusal.
        """
        return await self._session.call(GET, transaction_path(transaction_id))

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
        """Read one page of the list, newest first. Repeated as needed.

        Rests on SPEC.md, "GET /transactions", which names the filters ``from_`` to ``q`` and does not show
        their formats: times go out as ISO 8601, amounts as they are written on the wire.

        Args:
            limit: How many, 1 to 100.
            cursor: The ``next_cursor`` of the page before.
            status: Only this status.
            type: Only this type; may be combined with ``status``.
            from_: Only from this time on.
            to: Only up to this time.
            channel_id: Only through this channel, or its id.
            amount_min: Only this amount and more, KES.
            amount_max: Only this amount and less, KES.
            q: Only what the service finds by this text.

        Returns:
            The page, with counts over the whole filtered set.

        Raises:
            RequestValidationError: Refused here, nothing was sent; mend the arguments in ``.fields``.
            APIConnectionError: The service was not reached, or did not answer; try again.
            ServerError: The service failed to the end; try again later.
            RateLimitExceededError: Wait ``.retry_after`` seconds.
            BudgetExhaustedError: The rate budget has no slot within the deadline.
            ProtocolError: Something else answered; check base_url.
            APIError: Any other refusal.
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
        return await self._page(query)

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
    ) -> TransactionIterator[IO]:
        """Walk the list, newest first, over as many pages as there are; the filters are those of `list`.

        Pages are fetched as the walk reaches them. Transactions that arrive meanwhile stand before the
        first page and are not seen; the cursor keeps the rest from shifting, so far as the service's
        cursors are stable, which SPEC.md does not show. One that changes its status during the walk may be
        seen in its old status, or, under a ``status`` filter, be missed.

        Args:
            status: As for `list`.
            type: As for `list`.
            from_: As for `list`.
            to: As for `list`.
            channel_id: As for `list`.
            amount_min: As for `list`.
            amount_max: As for `list`.
            q: As for `list`.
            page_size: How many to fetch at a time, 1 to 100.

        Returns:
            Something to go over with ``for`` or, from an `AsyncClient`, ``async for``; ``.pages()`` gives
            whole pages.

        Raises:
            RequestValidationError: Refused here, at once; mend the arguments in ``.fields``.
            ProtocolError: During the walk: the service gave a cursor a second time.
            MomoPayError: During the walk: whatever `list` raises.
        """
        query = TransactionWalk.checked(
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
        return TransactionIterator(partial(self._page_after, query))

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
        """Search for a payment by what is known of it, as after an OutcomeUnknownError.

        Walks the list, newest first, back to five minutes before ``since``, for clocks that differ. Finding
        nothing proves nothing: a transaction may appear in the list later. Rests on SPEC.md,
        "GET /transactions".

        Args:
            reference: The reference that it was sent with, exactly.
            since: When it was sent, an aware datetime.
            amount: Its amount, KES.
            phone: Its phone, in any form that `normalise_phone` takes.
            type: ``STK`` or ``B2C``.

        Returns:
            Every transaction that fits, newest first.

        Raises:
            RequestValidationError: Refused here, nothing was sent; mend the arguments in ``.fields``.
            MomoPayError: Whatever `list` raises.
        """
        search = Search.checked(reference=reference, since=since, amount=amount, phone=phone, type=type)
        query = TransactionWalk.checked(page_size=100, type=search.type)
        found: builtins.list[TransactionSummary] = []
        walk = Walk(partial(self._page_after, query))
        while (page := await walk.next()) is not None:
            found += [item for item in page.items if search.fits(item)]
            if search.is_past(page):
                break
        return found

    @operation
    async def confirm(self, callback: Callback) -> Transaction:
        """Hold a callback, which nobody signs, against the service's own record.

        Compares status, amount, phone and reference. SPEC.md does not show whether a read ever says
        EXPIRED, nor which of FAILED and CANCELLED a cancelled prompt reads as, so any two ends without
        success agree. Rests on SPEC.md, "Events" and "GET /transactions/{id}".

        Args:
            callback: From `parse_callback`.

        Returns:
            The transaction as the service has it; act on this.

        Raises:
            CallbackMismatchError: They disagree; answer non-2xx and act on nothing.
            TransactionNotFoundError: The account has no such transaction; act on nothing.
            MomoPayError: Whatever `get` raises; answer non-2xx, so that the callback comes again.
        """
        transaction = await self._read(callback.transaction.id)
        check_agreement(callback, transaction)
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

        Looks by the schedule, SPEC.md's guidance by default, and at once when `notify` says that news
        came. Waits on one client share what they read: a success may come from the list, with the fields
        that only a single read shows None; an end without success is always read in full. A passing
        failure or a 429 does not end the wait.

        Args:
            transaction_id: The id that an initiation returned, or a record that carries it.
            until: What counts as an end: `terminal`, `settled`, or a function of your own.
            schedule: When to look, seconds.

        Returns:
            The transaction, ended.

        Raises:
            RequestValidationError: Not an id.
            WaitTimeoutError: The schedule's limit passed; ``.last`` is the last state read. It may still
                succeed, so money may yet move: read it again later.
            TransactionNotFoundError: The account has no such transaction.
            APIError: A refusal that waiting does not mend, such as a revoked key.
        """
        watch = self._watch([transaction_id], until, schedule)
        with watch.seated():
            ended = await watch.next()
        assert ended is not None  # noqa: S101  one was waited for
        return ended

    def wait_all(
        self,
        ids: Iterable[TransactionRef],
        *,
        until: Callable[[Transaction], bool] = terminal,
        schedule: PollSchedule = GUIDANCE,
    ) -> Ends[IO]:
        """Wait for many transactions, giving each as it ends; otherwise as `wait`.

        Args:
            ids: Ids, or records that carry them.
            until: What counts as an end.
            schedule: When to look, seconds, for all of them.

        Returns:
            Something to go over with ``for`` or, from an `AsyncClient`, ``async for``.

        Raises:
            RequestValidationError: Not ids.
            WaitTimeoutError: On the way, when the limit passed; ``.pending`` names those without an end.
            TransactionNotFoundError: On the way, for the first one that the account does not have.
            APIError: On the way: a refusal that waiting does not mend.
        """
        wanted = list(ids)
        for each in wanted:
            transaction_id_of(each)
        return Ends(partial(self._watch, wanted, until, schedule))

    def notify(self, callback: Callback | TransactionRef) -> None:
        """Tell the waits on this client that there is news; those for that transaction read it once, now.

        Sends nothing itself, in neither colour. On an `AsyncClient`, call it from its own event loop.

        Args:
            callback: The callback that came, or the transaction's id.

        Raises:
            RequestValidationError: Not an id.
        """
        self._room.notify(transaction_id_of(callback))

    def _watch(
        self, ids: Iterable[TransactionRef], until: Callable[[Transaction], bool], schedule: PollSchedule
    ) -> Watch:
        wanted = {transaction_id_of(each): getattr(each, "created_at", None) for each in ids}
        return Watch(self._room, _Poll(self._session), self._session.io, wanted, until, schedule)

    async def _page(self, query: TransactionQuery | TransactionWalk) -> TransactionPage:
        return await self._session.call(LIST, "/transactions" + query.to_query())

    async def _page_after(self, query: TransactionWalk, cursor: str | None) -> TransactionPage:
        return await self._page(query.after(cursor))

    async def _read(self, transaction_id: str) -> Transaction:
        return await self._session.call(GET, transaction_path(transaction_id))


class _Poll(Resource[IO]):
    """How a wait looks: in the lane that leaves room for payments, and done before the wait ends."""

    async def read(self, transaction_id: str, until: float) -> Transaction:
        path = transaction_path(transaction_id)
        return await self._session.call(GET, path, lane=Lane.POLL, until=until)

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        query = TransactionQuery.checked(limit=100, cursor=cursor).to_query()
        return await self._session.call(LIST, "/transactions" + query, lane=Lane.POLL, until=until)
