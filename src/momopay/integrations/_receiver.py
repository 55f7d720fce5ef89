"""What the views of all frameworks share.

A callback (webhook) is passed to ``transactions.receive``. How a payment stands is read from the journal alone. A
scheduler starts a sweep where no process can run all the time.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

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
SWEEP_HEADERS: Final = {"Allow": "POST", "Cache-Control": "no-store"}
_SHORTEST_SECRET: Final = 16  # characters
_BEARER: Final = "bearer "


ClientSource: TypeAlias = Client | AsyncClient | Callable[[], Client | AsyncClient]


def client_source(client: ClientSource, *, blocks: bool = False) -> Callable[[], Any]:
    """Return a function that returns the client of a view at each request. A view that blocks needs a `Client`."""

    def checked(found: object) -> Any:
        if not isinstance(found, Client | AsyncClient):
            raise ConfigurationError(
                "client must be a momopay.Client or a momopay.AsyncClient, or a function that returns the same one each"
                " time"
            )
        if blocks and isinstance(found, AsyncClient):
            raise ConfigurationError("this view blocks: it needs a momopay.Client, not an AsyncClient")
        return found

    if isinstance(client, (Client, AsyncClient, type)) or not callable(client):
        found = checked(client)
        return lambda: found
    if is_async(client):
        raise ConfigurationError("client must be a client, or a plain function that returns one: not async")
    return lambda: checked(client())


def view_name(handler: PaymentHandler | AsyncPaymentHandler) -> str:
    """Return the name for a handler's view, by which frameworks distinguish routes."""
    return str(getattr(handler, "__name__", "momopay_callback"))


async def _call_with(client: Client | AsyncClient, operation: Callable[..., Any], handler: Any) -> Any:
    """Call an operation of a client with a handler: in a thread if the client blocks."""
    if isinstance(client, AsyncClient):
        return await operation(handler)

    def call(payment: Payment) -> object:
        """Await the handler on the event loop, from a thread."""
        return in_event_loop(partial(handler, payment))

    return await in_thread(partial(operation, call if is_async(handler) else handler))


class CallbackView:
    """Responds to requests. It has no state of its own, so any thread may use it."""

    def __init__(
        self,
        handler: PaymentHandler | AsyncPaymentHandler,
        client: ClientSource,
        signer: CallbackSigner | None,
        on_event: Callable[[Event], object] | None,
        *,
        blocks: bool = False,
    ) -> None:
        check_handler(handler)
        self._client = client_source(client, blocks=blocks)
        self._handler: Any = handler
        self._options: dict[str, Any] = {"signer": signer}
        if on_event is not None:
            self._options["on_event"] = Observer(on_event)

    def respond(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run."""
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        status: HTTPStatus = self._client().transactions.receive(query, body, self._handler, **self._options)
        return status

    async def respond_async(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run. A blocking client works in a thread.

        Cancellation cancels an async handler of an AsyncClient, and the callback may come again. Any other handler runs
        to its end, and the end counts as delivered.
        """
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        client = self._client()
        receive = partial(client.transactions.receive, query, body, **self._options)
        status: HTTPStatus = await _call_with(client, receive, self._handler)
        return status


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

    def __init__(self, client: ClientSource, signer: CallbackSigner) -> None:
        self._client = client_source(client)
        if isinstance(client, Client | AsyncClient):
            _journal_of(client)  # raises
        if not isinstance(signer, CallbackSigner):
            raise ConfigurationError("signer must be a CallbackSigner: without a token, anybody could read any payment")
        self._signer = signer

    def respond(self, method: str, query: str) -> Answer:
        """Return the response. Blocks while the database works."""
        if method != "GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            reference = self._signer.verify_status(query)
            journal = _journal_of(self._client())
            found = (journal.get(reference, kind) for kind in (EntryKind.COLLECTION, EntryKind.PAYOUT))
            entry = next((each for each in found if each is not None), None)
        except ForgedCallbackError:
            return _refusal(HTTPStatus.FORBIDDEN)
        except MomoPayError as error:
            logger.warning("the status of a payment was not read: %s", error)
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        amount, receipt = (None, None) if entry is None else (_number(entry.amount), entry.receipt)
        document = {"reference": reference, "state": state_of(entry), "amount": amount, "receipt": receipt}
        return Answer(HTTPStatus.OK, to_json(document))


def _journal_of(client: Client | AsyncClient) -> Journal:
    if client.journal is None:
        raise ConfigurationError("client must be a momopay.Client or a momopay.AsyncClient with a journal")
    return client.journal


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


def check_secret(secret: object) -> None:
    """Raise ConfigurationError if a secret can be guessed, or cannot be sent in a header."""
    if not isinstance(secret, str) or len(secret) < _SHORTEST_SECRET:
        raise ConfigurationError(
            f"the secret of a sweep must be text of at least {_SHORTEST_SECRET} characters, such as secrets.token_hex()"
        )
    if not secret.isprintable() or secret != secret.strip():
        raise ConfigurationError("the secret of a sweep has spaces at an end or invisible characters: remove them")


class SweepView:
    """Responds to the requests of a scheduler. One sweep at a time; any thread may call it."""

    def __init__(
        self,
        client: ClientSource,
        handler: PaymentHandler | AsyncPaymentHandler | None,
        secret: str,
        *,
        blocks: bool = False,
    ) -> None:
        if handler is not None:
            check_handler(handler)
        check_secret(secret)
        self._client = client_source(client, blocks=blocks)
        self._handler: Any = handler
        self._secret = secret.encode()
        self._sweeping = threading.Lock()

    def respond(self, method: str, authorization: str) -> Answer:
        """Sweep and return the response. `authorization` is the header, decoded as Latin-1."""
        if (refusal := self._begin(method, authorization)) is not None:
            return refusal
        try:
            return _answer(self._client().transactions.sweep(handler=self._handler))
        except MomoPayError as error:
            return _failed(error)
        finally:
            self._sweeping.release()

    async def respond_async(self, method: str, authorization: str) -> Answer:
        """Sweep and return the response. A blocking client works in a thread."""
        if (refusal := self._begin(method, authorization)) is not None:
            return refusal
        try:
            client = self._client()

            def sweep(handler: Any) -> Any:
                return client.transactions.sweep(handler=handler)

            return _answer(await _call_with(client, sweep, self._handler))
        except MomoPayError as error:
            return _failed(error)
        finally:
            self._sweeping.release()

    def _begin(self, method: str, authorization: str) -> Answer | None:
        """Return why there is no sweep; None if this one may begin."""
        if method != "POST":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
        given = authorization[len(_BEARER) :].strip(" ").encode("latin-1", "replace")
        if not (hmac.compare_digest(given, self._secret) and is_bearer):
            return _refusal(HTTPStatus.FORBIDDEN)
        return None if self._sweeping.acquire(blocking=False) else _refusal(HTTPStatus.CONFLICT)


def _answer(report: Any) -> Answer:
    return Answer(HTTPStatus.OK, to_json(asdict(report)))


def _failed(error: MomoPayError) -> Answer:
    logger.warning("a sweep failed, and the next one goes on: %s", error)
    return _refusal(HTTPStatus.SERVICE_UNAVAILABLE)


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(status, status.phrase.encode())


def _number(amount: Decimal) -> int | float:
    return int(amount) if amount == amount.to_integral_value() else float(amount)
