"""What the views of all frameworks share.

A callback (webhook) is passed to ``transactions.receive``. How a payment stands is read from the journal alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from momopay._core.config import check_handler, is_async
from momopay._core.events import Observer
from momopay._transport.threads import in_event_loop, in_thread
from momopay.callbacks import MAX_BODY_BYTES
from momopay.client import AsyncClient, Client
from momopay.errors import ConfigurationError, ForgedCallbackError, MomoPayError
from momopay.events import Event
from momopay.journal.entries import UNRESOLVED, JournalEntry, JournalState
from momopay.journal.journal import Journal
from momopay.models.enums import EntryKind
from momopay.models.payments import AsyncPaymentHandler, Payment, PaymentHandler
from momopay.signing import CallbackSigner

logger: logging.Logger = logging.getLogger("momopay")

READ_LIMIT: Final = MAX_BODY_BYTES + 1  # bytes of a body; one more than a callback may have is enough to refuse it
HEADERS: Final = {"Allow": "POST"}  # of every response, although only a 405 needs them
STATUS_HEADERS: Final = {"Allow": "GET", "Cache-Control": "no-store"}


def view_name(handler: PaymentHandler | AsyncPaymentHandler) -> str:
    """Return the name for a handler's view, by which frameworks distinguish routes."""
    return str(getattr(handler, "__name__", "momopay_callback"))


class CallbackView:
    """Responds to requests. It has no state of its own, so any thread may use it."""

    def __init__(
        self,
        handler: PaymentHandler | AsyncPaymentHandler,
        client: Client | AsyncClient,
        signer: CallbackSigner | None,
        on_event: Callable[[Event], object] | None,
        *,
        blocks: bool = False,
    ) -> None:
        check_handler(handler)
        if not isinstance(client, Client | AsyncClient):
            raise ConfigurationError("client must be a momopay.Client or a momopay.AsyncClient")
        if blocks and isinstance(client, AsyncClient):
            raise ConfigurationError("this view blocks: it needs a momopay.Client, not an AsyncClient")
        self._client: Any = client
        self._handler: Any = handler
        self._options: dict[str, Any] = {"signer": signer}
        if on_event is not None:
            self._options["on_event"] = Observer(on_event)

    def respond(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run."""
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        status: HTTPStatus = self._client.transactions.receive(query, body, self._handler, **self._options)
        return status

    async def respond_async(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run. A blocking client works in a thread.

        Cancellation cancels an async handler of an AsyncClient, and the callback may come again. Any other handler runs
        to its end, and the end counts as delivered.
        """
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        receive = partial(self._client.transactions.receive, query, body, **self._options)
        if isinstance(self._client, AsyncClient):
            status: HTTPStatus = await receive(self._handler)
            return status
        return await in_thread(partial(receive, self._call if is_async(self._handler) else self._handler))

    def _call(self, payment: Payment) -> object:
        """Await the handler on the event loop, from a thread."""
        return in_event_loop(partial(self._handler, payment))


class Answer(NamedTuple):
    """A response: JSON if its status is 200."""

    status: HTTPStatus
    body: bytes

    @property
    def content_type(self) -> str:
        """The content type of the body."""
        return "application/json" if self.status is HTTPStatus.OK else "text/plain; charset=utf-8"


class StatusView:
    """Responds to requests with what the journal knows. It sends nothing. Any thread may use it."""

    def __init__(self, client: Client | AsyncClient, signer: CallbackSigner) -> None:
        journal = client.journal if isinstance(client, Client | AsyncClient) else None
        if journal is None:
            raise ConfigurationError("client must be a momopay.Client or a momopay.AsyncClient with a journal")
        if not isinstance(signer, CallbackSigner):
            raise ConfigurationError("signer must be a CallbackSigner: without a token, anybody could read any payment")
        self._journal: Journal = journal
        self._signer = signer

    def respond(self, method: str, query: str) -> Answer:
        """Return the response. Blocks while the database works."""
        if method != "GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            reference = self._signer.verify_status(query)
            found = (self._journal.get(reference, kind) for kind in (EntryKind.COLLECTION, EntryKind.PAYOUT))
            entry = next((each for each in found if each is not None), None)
        except ForgedCallbackError:
            return _refusal(HTTPStatus.FORBIDDEN)
        except MomoPayError as error:
            logger.warning("the status of a payment was not read: %s", error)
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        amount, receipt = (None, None) if entry is None else (_number(entry.amount), entry.receipt)
        document = {"reference": reference, "state": state_of(entry), "amount": amount, "receipt": receipt}
        return Answer(HTTPStatus.OK, to_json(document))


def state_of(entry: JournalEntry | None) -> str:
    """Return how a payment stands: ``waiting``, ``paid``, ``not_paid`` or ``unknown``.

    Unknown is a payment that the journal does not know, or that may or may not have been made. One that was not paid
    may be paid yet: a customer may try again, or type the PIN late.
    """
    if entry is None:
        return "unknown"
    if any(each.is_paid for each in entry.transactions):
        return "paid"
    if entry.state is JournalState.SENDING or any(each.is_open for each in entry.transactions):
        return "waiting"
    return "unknown" if entry.state in UNRESOLVED else "not_paid"


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(status, status.phrase.encode())


def _number(amount: Decimal) -> int | float:
    return int(amount) if amount == amount.to_integral_value() else float(amount)
