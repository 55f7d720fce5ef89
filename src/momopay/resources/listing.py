"""Transactions, read and listed. Nothing here moves money."""

from __future__ import annotations

import builtins
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from math import inf

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.endpoint import Endpoint
from momopay._core.operation import Resource, operation
from momopay._core.retry import SAFE
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import clears_frames
from momopay.models.arguments import ChannelRef, TransactionRef
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import Envelope
from momopay.models.requests import Search, TransactionQuery, transaction_path
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary
from momopay.resources.pagination import TransactionIterator, Walk

GET = Endpoint("GET", SAFE, Lane.READ, Envelope[Transaction])
LIST = Endpoint("GET", SAFE, Lane.READ, Envelope[TransactionPage])
_FILTERED = frozenset({TransactionType.STK, TransactionType.B2C})
"""The types that the list can be filtered by (SPEC.md, "GET /transactions"); it shows others too."""


class Listing(Resource[BackendT]):
    """Transactions as they are read (SPEC.md, "Transaction")."""

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
        return await call(self._session, GET, transaction_path(transaction_id))

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
        return await call(self._session, LIST, "/transactions" + query.to_query())

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
        return TransactionIterator(partial(page_after, self._session, query))

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
        nothing proves nothing: a transaction may appear in the list later. The deadline holds for each page that
        is read. Rests on SPEC.md, "GET /transactions".

        Args:
            reference: The reference that it was sent with, exactly.
            since: When it was sent, an aware datetime.
            amount: Its amount, KES.
            phone: Its phone, in any form that `normalise_phone` takes.
            type: ``STK``, ``B2C`` or ``WALLET_TOPUP``.

        Returns:
            Every transaction that fits, newest first.

        Raises:
            RequestValidationError: Refused here, nothing was sent; mend the arguments in ``.fields``.
            MomoPayError: Whatever `list` raises.
        """
        wanted = Search.checked(reference=reference, since=since, amount=amount, phone=phone, type=type)
        (found,) = await search(self._session, [wanted])
        return found

    async def _read(self, transaction_id: str) -> Transaction:
        return await call(self._session, GET, transaction_path(transaction_id))


async def search(
    session: Session[BackendT], wanted: builtins.list[Search], until: float = inf
) -> builtins.list[builtins.list[TransactionSummary]]:
    """Walk the list once, back to the oldest of those that are wanted, and give what fits each.

    Each page has a deadline of its own; the walk as a whole ends by the monotonic time ``until``.
    """
    types = {each.type for each in wanted}
    only = types.pop() if len(types) == 1 else None
    query = TransactionQuery.checked(limit=100, type=only if only in _FILTERED else None)
    oldest = min(wanted, key=lambda each: each.since)
    by_reference: dict[str, dict[str, TransactionSummary]] = {each.reference: {} for each in wanted}
    walk = Walk(partial(page_after, session, query, until=until))
    while (page := await walk.next()) is not None:
        for item in page.items:
            # By id: a list that moves on while it is walked shows some a second time.
            by_reference.get(item.account_reference or "", {})[item.transaction_id] = item
        if oldest.is_past(page):
            break
    return [[item for item in by_reference[each.reference].values() if each.fits(item)] for each in wanted]


async def page_after(
    session: Session[BackendT], query: TransactionQuery, cursor: str | None, *, until: float = inf
) -> TransactionPage:
    """Fetch the page at a cursor."""
    return await call(session, LIST, "/transactions" + query.after(cursor).to_query(), until=until)
