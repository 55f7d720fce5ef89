"""Finds payments that end, by polling the account's list, for whoever has no public URL for callbacks (webhooks).

It only reads. A poll is usually one request, a page of the list, and one for each end. It takes more pages while more
than a hundred payments are newer than the oldest that is open.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from momopay.client import Client
from momopay.errors import MomoPayError
from momopay.models.enums import TransactionType
from momopay.models.transactions import Transaction, TransactionSummary, transaction_from

# How far before the newest payment, or before `since`, one may have begun that is still followed. One that stays open
# must not make every later poll read deeper.
_LOOK_BACK: Final = timedelta(hours=1)
# Pages of one poll: more than five minutes of payments at the service's rate limit.
_MAX_PAGES: Final = 5
# Successes that one poll reads by id, for what the list does not show. Failures always are: their reason is needed.
_MAX_READS: Final = 5
# Callbacks for top-ups are not specified (service page, "Callbacks"), and a top-up takes no callback URL.
_CALLED_BACK: Final = frozenset({TransactionType.STK, TransactionType.B2C})


class EndWatch:
    """The ends of one account's payments, each once. For one thread.

    Args:
        client: A client of the account.
        since: From when on ends count; None means from the first poll.
    """

    def __init__(self, client: Client, since: datetime | None = None) -> None:
        self._client = client
        self._since = since
        self._is_first = True
        # What began before is ignored, because a page shows more or less of it from one poll to the next.
        self._horizon = datetime.min.replace(tzinfo=UTC)
        self._newest = self._horizon
        self._open: dict[str, datetime] = {}
        self._ended = set[str]()

    def poll(self) -> list[Transaction]:
        """Return what has ended since the last poll, in the order of the ends.

        Raises:
            MomoPayError: As for ``transactions.list``. Nothing is lost: the next poll returns it.
        """
        items = [item for item in self._read_list() if item.created_at >= self._horizon and item.type in _CALLED_BACK]
        ended = [item for item in items if item.status.is_terminal and item.transaction_id not in self._ended]
        self._ended.update(item.transaction_id for item in ended)
        followed = [item for item in items if item.created_at > self._newest - _LOOK_BACK]
        self._open = {item.transaction_id: item.created_at for item in followed if not item.status.is_terminal}
        if self._is_first:
            self._is_first = False
            ended = [] if self._since is None else [item for item in ended if item.updated_at >= self._since]
        ended.sort(key=lambda item: item.updated_at)
        return [
            self._read(item) if item.status.ended_without_success or number < _MAX_READS else _as_listed(item)
            for number, item in enumerate(ended)
        ]

    def _read_list(self) -> list[TransactionSummary]:
        """Return the newest payments, back to the oldest that may end."""
        items = list[TransactionSummary]()
        for number, page in enumerate(self._client.transactions.iter(page_size=100).pages(), start=1):
            items += page.items
            # A first poll reads as far back as `since` asks.
            is_enough = number >= _MAX_PAGES and not (self._is_first and self._since)
            if not items or is_enough or items[-1].created_at < self._back_to(items[0]):
                break
        if items:
            if self._is_first:
                self._horizon = max(self._back_to(items[0]), items[-1].created_at)
            self._newest = items[0].created_at
        return items

    def _back_to(self, newest: TransactionSummary) -> datetime:
        if self._is_first:
            return (self._since or newest.created_at) - _LOOK_BACK
        return min([*self._open.values(), self._newest])

    def _read(self, item: TransactionSummary) -> Transaction:
        # Without the read, the callback only lacks fields. A failure that lasts shows at the next poll.
        with suppress(MomoPayError):
            read = self._client.transactions.get(item)
            # A single read need not show the fee, which the list shows.
            return read if read.transaction_fee is not None else _with_fee(read, item)
        return _as_listed(item)


def _as_listed(item: TransactionSummary) -> Transaction:
    return transaction_from(item)


def _with_fee(read: Transaction, item: TransactionSummary) -> Transaction:
    return read.model_copy(update={"transaction_fee": item.transaction_fee})
