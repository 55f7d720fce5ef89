"""Forwards the ends of payments to an application under development, as the service would call it back.

The service only calls public HTTPS addresses (service page, "Callbacks"), which a laptop does not have. `EndWatch`
finds the ends by polling; this POSTs each to the application, once for each transaction, and again after the service's
delays while the response is not 2xx.

Invariants: nothing but reads goes to the service. Callbacks hold real phones and amounts, so they go to this machine,
or to a host that was named, and redirects are not followed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NoReturn
from urllib.parse import urlsplit

from momopay._core.operation import run_sync
from momopay._polling.schedule import is_transient
from momopay._transport import Headers, NoResponseError, Progress, common_headers
from momopay._transport.sync_backend import SyncBackend
from momopay.callbacks import callback_body
from momopay.client import Client
from momopay.errors import MomoPayError, RequestValidationError
from momopay.integrations._end_watch import EndWatch
from momopay.models.enums import TransactionStatus
from momopay.models.transactions import Transaction
from momopay.signing import CallbackSigner
from momopay.urls import check_callback_url, is_loopback

# Seconds that the service gives an application to respond, and its pauses before the next deliveries.
RESPONSE_LIMIT: Final = 30.0
RETRY_DELAYS: Final = (10.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(frozen=True)
class Delivery:
    """One POST of one end.

    Attributes:
        at: When it was made.
        transaction_id: Of the payment.
        reference: Of the payment.
        status: How the payment ended.
        attempt: 1 for the first.
        http_status: What the application responded; None if there was no whole response.
        problem: Why there was none.
        retry_in: Seconds until the next attempt; None if there is none.
    """

    at: datetime
    transaction_id: str
    reference: str | None
    status: TransactionStatus
    attempt: int
    http_status: int | None
    problem: str | None
    retry_in: float | None

    @property
    def is_acknowledged(self) -> bool:
        """Whether the response was 2xx."""
        return self.http_status is not None and self.http_status // 100 == 2  # noqa: PLR2004  any 2xx


@dataclass
class _Pending:
    transaction: Transaction
    url: str
    body: bytes  # serialised once: a second delivery is the same bytes
    due: float
    attempts: int = 0


class Listener:
    """Forwards what ends on one account.

    Args:
        client: A client of the account.
        forward_to: The application's callback URL, on this machine.
        every: Seconds between polls.
        since: From when on ends are forwarded; None means from the start.
        signer: Signs the URL for the reference of each payment that has one.
        allowed_hosts: Other hosts that `forward_to` may name.
        backend: How to send, wait and tell the time; for tests.

    Raises:
        RequestValidationError: ``forward_to`` is no URL, or names a host that is not allowed. Nothing was sent.
    """

    def __init__(
        self,
        client: Client,
        forward_to: str,
        *,
        every: float = 10.0,
        since: datetime | None = None,
        signer: CallbackSigner | None = None,
        allowed_hosts: Collection[str] = (),
        backend: SyncBackend | None = None,
    ) -> None:
        self._url = _checked(forward_to, allowed_hosts)
        self._watch = EndWatch(client, since)
        self._every = every
        self._signer = signer
        self._backend = backend or SyncBackend()
        self._headers: Headers = common_headers(self._url, {"User-Agent": "momopay listen"})
        self._pending = list[_Pending]()

    def run(self) -> Iterator[Delivery | MomoPayError]:
        """Forward ends for ever, and yield each delivery, and each failure of a poll after which it goes on.

        Raises:
            MomoPayError: The first poll failed, or a later one in a way that trying again does not change.
        """
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

    def _deliver(self, pending: _Pending) -> Delivery:
        at = datetime.now(UTC)
        status, problem = None, None
        # With a `Progress`, each request has a connection of its own: a development server restarts at any time.
        sending = self._backend.send(
            "POST", pending.url, self._headers, pending.body, timeout=RESPONSE_LIMIT, progress=Progress()
        )
        try:
            status = run_sync(sending).status
        except NoResponseError as error:
            problem = str(error)
        pending.attempts += 1
        delivery = Delivery(
            at=at,
            transaction_id=pending.transaction.transaction_id,
            reference=pending.transaction.account_reference,
            status=pending.transaction.status,
            attempt=pending.attempts,
            http_status=status,
            problem=problem,
            retry_in=None,
        )
        if delivery.is_acknowledged or pending.attempts > len(RETRY_DELAYS):
            self._pending.remove(pending)
            return delivery
        delay = RETRY_DELAYS[pending.attempts - 1]
        pending.due = self._backend.now() + delay
        return replace(delivery, retry_in=delay)


def _checked(url: str, allowed_hosts: Collection[str]) -> str:
    try:
        # Only the form: the service's rule for hosts is the opposite of this one.
        checked = check_callback_url(url, on_loopback=True)
    except ValueError as error:
        _refuse(str(error))
    if not is_loopback(checked) and urlsplit(checked).hostname not in {host.lower() for host in allowed_hosts}:
        _refuse("is not on this machine")
    return checked


def _refuse(problem: str) -> NoReturn:
    raise RequestValidationError({"forward_to": problem})
