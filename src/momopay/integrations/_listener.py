"""Forwards the ends of payments to an application under development, as the service would call it back.

The service only calls public HTTPS addresses (service page, "Callbacks"), which a laptop does not have. `EndWatch`
finds the ends by polling the account's list. `Listener` POSTs each end to the application, and again after the
service's delays while the response is not 2xx. A poll usually sends one request for a page of the list and one for each
end. It reads more pages if a hundred payments began in the last ten minutes.

Invariants: only reads go to the service. Callbacks hold real phones and amounts, so redirects are not followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final

from momopay._core.operation import run_sync
from momopay._polling.loop import is_transient
from momopay._transport.attempt import NoResponseError, Progress, common_headers
from momopay._transport.sync_backend import SyncBackend
from momopay.callbacks import callback_body
from momopay.client import Client
from momopay.errors import MomoPayError
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.requests import earlier, oldest_time
from momopay.models.transactions import Transaction, TransactionSummary, transaction_from
from momopay.signing import CallbackSigner

# Seconds that the service waits for a response, and its delays before the next deliveries.
RESPONSE_LIMIT: Final = 30.0
RETRY_DELAYS: Final = (10.0, 30.0, 60.0, 120.0, 300.0)

# Payments that began up to this long before the newest one are followed. There is a limit so that one that stays open
# for ever does not make every later poll read more pages.
_LOOK_BACK: Final = timedelta(minutes=10)
# Callbacks for top-ups are not specified (service page, "Callbacks"), and a top-up takes no callback URL.
_CALLED_BACK: Final = frozenset({TransactionType.STK, TransactionType.B2C})


class EndWatch:
    """Finds each end of an account's payments since the first poll, once. For use by one thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._since: datetime | None = None
        self._open = set[str]()
        self._ended = set[str]()

    def poll(self) -> list[Transaction]:
        """Return the payments that ended since the last poll that raised no error, in the order of their ends."""
        items = self._read_list()
        ended = [item for item in items if item.status.is_terminal and item.transaction_id not in self._ended]
        if self._since is None:  # the first poll
            self._since = max((item.updated_at for item in items), default=datetime.min.replace(tzinfo=UTC))
            new = list[TransactionSummary]()
        else:
            # By time, because from one poll to the next a page may show other payments that ended long ago.
            new = [item for item in ended if item.transaction_id in self._open or item.updated_at >= self._since]
        self._ended.update(item.transaction_id for item in ended)
        self._open = {item.transaction_id for item in items if not item.status.is_terminal}
        return [self._read(item) for item in sorted(new, key=lambda item: item.updated_at)]

    def _read_list(self) -> list[TransactionSummary]:
        """Return the newest payments, back to the oldest that may still end."""
        items = list[TransactionSummary]()
        for page in self._client.transactions.iter(page_size=100).pages():
            items += page.items
            oldest = oldest_time(page)
            if oldest is not None and oldest < earlier(items[0].created_at, _LOOK_BACK):
                break
        return [item for item in items if item.type in _CALLED_BACK]

    def _read(self, item: TransactionSummary) -> Transaction:
        # Without the read, the callback only lacks fields. A lasting failure shows at the next poll.
        with suppress(MomoPayError):
            read = self._client.transactions.get(item)
            # The list shows the fee; a read may not.
            fee = item.transaction_fee if read.transaction_fee is None else read.transaction_fee
            return read.model_copy(update={"transaction_fee": fee})
        return transaction_from(item)


@dataclass(frozen=True)
class ForwardedEnd:
    """One POST of one end. `problem` is why no whole response came; the next attempt is in `retry_in` seconds."""

    at: datetime
    transaction_id: str
    reference: str | None
    status: TransactionStatus
    attempt: int
    http_status: int | None
    problem: str | None
    retry_in: float | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether the response was 2xx."""
        return self.http_status is not None and HTTPStatus.OK <= self.http_status < HTTPStatus.MULTIPLE_CHOICES


@dataclass
class _Pending:
    transaction: Transaction
    url: str
    body: bytes  # serialised once, so that every delivery has the same bytes
    due: float
    attempts: int = 0


class Listener:
    """Forwards the ends of one account's payments to `forward_to`, which the caller has checked."""

    def __init__(
        self,
        client: Client,
        forward_to: str,
        *,
        every: float = 10.0,
        signer: CallbackSigner | None = None,
        backend: SyncBackend | None = None,
    ) -> None:
        self._url = forward_to
        self._watch = EndWatch(client)
        self._every = every
        self._signer = signer
        self._backend = backend or SyncBackend()
        self._pending = list[_Pending]()

    def run(self) -> Iterator[ForwardedEnd | MomoPayError]:
        """Forward ends for ever; yield each delivery, and each transient error of a poll."""
        now = self._backend.now
        self._add(self._watch.poll())
        next_poll = now() + self._every
        while True:
            for pending in [each for each in self._pending if each.due <= now()]:
                yield self._deliver(pending)
            run_sync(self._backend.sleep(max(0.0, min([next_poll, *(each.due for each in self._pending)]) - now())))
            if now() >= next_poll:
                try:
                    self._add(self._watch.poll())
                except MomoPayError as error:
                    if not is_transient(error):
                        raise
                    yield error
                next_poll = now() + self._every

    def _add(self, ended: list[Transaction]) -> None:
        for transaction in ended:
            reference = transaction.account_reference
            url = self._signer.url(self._url, reference=reference) if self._signer and reference else self._url
            self._pending.append(_Pending(transaction, url, callback_body(transaction), self._backend.now()))

    def _deliver(self, pending: _Pending) -> ForwardedEnd:
        at = datetime.now(UTC)
        status, _, problem = post_callback(pending.url, pending.body, self._backend)
        pending.attempts += 1
        ended = pending.transaction
        delivery = ForwardedEnd(
            at=at,
            transaction_id=ended.transaction_id,
            reference=ended.account_reference,
            status=ended.status,
            attempt=pending.attempts,
            http_status=status,
            problem=problem,
        )
        if delivery.is_acknowledged or pending.attempts > len(RETRY_DELAYS):
            self._pending.remove(pending)
            return delivery
        delay = RETRY_DELAYS[pending.attempts - 1]
        pending.due = self._backend.now() + delay
        return replace(delivery, retry_in=delay)


def post_callback(url: str, body: bytes, backend: SyncBackend | None = None) -> tuple[int | None, bytes, str | None]:
    """POST a callback once; return the response's status and body, and why there was no response."""
    headers = common_headers(url, {"User-Agent": "momopay"})
    # With a `Progress`, each request has a connection of its own: a development server may restart at any time.
    sending = (backend or SyncBackend()).send("POST", url, headers, body, timeout=RESPONSE_LIMIT, progress=Progress())
    try:
        response = run_sync(sending)
    except NoResponseError as error:
        return None, b"", str(error)
    return response.status, response.body, None
