"""Read and list transactions. Nothing here moves money."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Coroutine
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.operation import Resource, as_operation, operation
from momopay._redaction import clears_frames, redacted_repr
from momopay.durable.search import GET, LIST, page_at, search
from momopay.models.arguments import ChannelRef, TransactionRef
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.requests import Search, TransactionQuery, transaction_path
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary
from momopay.resources.pagination import TransactionIterator

logger: logging.Logger = logging.getLogger("momopay")


class Listing(Resource[BackendT]):
    """The reading half of `Transactions` (service page, "Transaction")."""

    @operation
    async def get(self, transaction_id: TransactionRef) -> Transaction:
        """Read one transaction. Retried as needed. See the service page, "GET /transactions/{id}".

        Args:
            transaction_id: The id that an initiation returned, or a record that carries it.

        Returns:
            The transaction as it is now.

        Raises:
            TransactionNotFoundError: The account has no such transaction.
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
        """Read one page of the list, newest first. Retried as needed.

        The formats of the filters ``from_`` to ``q`` are not specified: times are sent as ISO 8601, amounts as
        numbers. See the service page, "GET /transactions".

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

        Pages are fetched as the walk reaches them. Transactions that arrive meanwhile are not seen, and one that
        changes its status may be seen with its old status or, under a ``status`` filter, be missed. Each transaction
        is seen once, although the list may shift under the walk and give one again: the walk remembers the ids of the
        last ten pages.

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
            An iterable for ``for`` or, from an `AsyncClient`, ``async for``; ``.pages()`` gives whole pages.

        Raises:
            ProtocolError: During the walk: the service gave a cursor a second time.
            MomoPayError: During the walk: whatever `list` raises.
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
            return as_operation(self._session, "transactions.iter", page_at, None, query, cursor)

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
