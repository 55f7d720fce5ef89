"""The outermost ASGI layers: requests within this process, the log of requests under /v1, and faults on demand.

A fault before the commit ends the request in `FaultMiddleware`. For a fault after the commit, the app writes its
response to a buffer, and the fault decides what reaches the client. ASGI cannot express resets and hang-ups, so they
act on the connection below it. Requests outside /v1 only get a Date header by the virtual clock.
"""

import asyncio
import json
import math
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import format_datetime
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from momopay.sandbox._accounts import is_key, key_of, mask_key, tenant_id_of
from momopay.sandbox._bodies import MAXIMUM_BYTES
from momopay.sandbox._engine import Engine
from momopay.sandbox._faults import Fault, PlannedFault
from momopay.sandbox._records import ReceivedRequest, Transaction, json_number
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import ServiceState

PREFIX = "/v1"
# Keys of the ASGI scope for the connection of a request, and for what was read or planned here.
CONNECTION = "momopay.connection"
EFFECT = "momopay.effect"
BODY = "momopay.body"
_HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
_TEXT_HTML = {"content-type": "text/html"}
_SOMEBODY_ELSE = "254799999999"
DRIP_INTERVAL = 0.05  # real seconds per byte


class MemoryConnection(asyncio.Transport):
    """The connection of a request without a socket. A fault that would break a socket raises at the caller."""

    def __init__(self) -> None:
        super().__init__()
        # None marks the end. The engine's thread fills the queue and the caller's empties it.
        self.messages: SimpleQueue[Message | None] = SimpleQueue()
        self.broken = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.messages.put(message)

    async def wait_for_end(self) -> Message:
        """Return the message for a disconnected client once a fault has ended the request."""
        await self.broken.wait()
        return {"type": "http.disconnect"}

    def close(self) -> None:
        """End the request without a response, or without the rest of it."""
        self.broken.set()

    abort = close


class InProcess:
    """The outermost layer of the application. Requests from the sandbox's own server pass through unchanged.

    The engine lives on one event loop, on a thread of its own. A request from elsewhere (httpx's ASGITransport on
    asyncio or trio, a test client, another server) runs on that loop, and its response is passed back message by
    message. `loop_of` returns the loop, or raises RuntimeError if it has ended.
    """

    def __init__(self, app: ASGIApp, loop_of: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._app = app
        self._loop_of = loop_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or CONNECTION in scope:
            await self._app(scope, receive, send)
            return
        loop = self._loop_of()
        body = await read_body(receive)
        if body is None:
            return
        connection = MemoryConnection()
        inside: Scope = {**scope, CONNECTION: connection}

        async def answer() -> None:
            await self._app(inside, replay(body, connection.wait_for_end), connection.send)

        work = asyncio.run_coroutine_threadsafe(answer(), loop)
        work.add_done_callback(lambda _: connection.messages.put(None))
        # Any number of requests may hang at once, and a thread waits for each.
        threads = anyio.CapacityLimiter(math.inf)

        async def next_message() -> Message | None:
            return await anyio.to_thread.run_sync(connection.messages.get, abandon_on_cancel=True, limiter=threads)

        try:
            while (message := await next_message()) is not None:
                await send(message)
        finally:
            work.cancel()
        if connection.broken.is_set() or work.cancelled():
            raise ConnectionResetError("the sandbox ended the connection (a fault on demand, or it was closed)")


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns a body that was read already."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return whole.pop() if whole else await receive()

    return receive_again


async def read_body(receive: Receive, limit: int | None = None) -> bytes | None:
    """Return the body, or its first `limit` bytes; None if the client disconnected before its end."""
    body: bytes = b""
    while (message := await receive())["type"] != "http.disconnect":
        if limit is None or len(body) < limit:
            body = (body + message.get("body", b""))[:limit]
        if not message.get("more_body", False):
            return body
    return None


class FaultMiddleware:
    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_for_service = scope["type"] == "http" and scope["path"].startswith(f"{PREFIX}/")
        request = self._log_request(scope) if is_for_service else None

        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                if request is not None:
                    self._engine.requests.set_status(request, message["status"])
                date = format_datetime(self._engine.clock.now(), usegmt=True)
                message = {**message, "headers": [*message["headers"], (b"date", date.encode())]}
            await send(message)

        if request is None:
            await self._app(scope, receive, send_dated)
        else:
            await self._serve(scope, receive, send_dated, request)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request: ReceivedRequest) -> None:
        # Routed as sent, because an encoded slash is part of an id.
        scope["path"] = PREFIX + request.path
        planned = self._engine.faults.take(request.method, request.path)
        if planned is not None and planned.fault in {Fault.refuse, Fault.reset_before_read}:
            (_hang_up if planned.fault is Fault.refuse else _reset)(scope)
            await _wait_for_disconnect(receive)
            return
        if request.method not in {"GET", "HEAD"}:
            body = await self._read_body(scope, receive)
            if body is None:
                return
            request.body = body
            # The app takes the body from the scope. Middleware in between, such as Sentry's, may read it again, and
            # would wait for ever for a second one.
            receive = replay(body, receive)
        scope[BODY] = request.body
        if planned is not None and planned.fault.is_effect:
            scope[EFFECT] = planned.fault
        if planned is None or planned.fault.is_effect:
            await self._app(scope, receive, send)
        elif planned.fault.is_before_commit:
            await self._refuse(planned, request)(scope, receive, send)
        else:
            await self._after_commit(scope, receive, send, planned, request)

    def _refuse(self, planned: PlannedFault, request: ReceivedRequest) -> Response:
        """Return the response of a fault that shows an error, as the account's switches show errors."""
        if planned.fault is Fault.html_502:
            return Response(_HTML, 502, _TEXT_HTML)
        state, known = self._engine.state, self._engine.state.accounts.get(request.tenant_id or "")
        switches = known.account.switches if known else state.switches
        return refusal_response(planned.refusal(), switches.error_messages)

    def _log_request(self, scope: Scope) -> ReceivedRequest:
        headers = Headers(scope=scope)
        try:
            key, _ = key_of(headers.get("authorization"), self._engine.state.switches)
        except Refusal:
            key = ""
        request = ReceivedRequest(
            method=scope["method"],
            path=scope["raw_path"].decode("latin-1")[len(PREFIX) :],
            query=scope["query_string"].decode("latin-1"),
            # Without the key, because a page shows the log and test reports quote it.
            headers={name: value for name, value in headers.items() if name != "authorization"},
            at=self._engine.clock.now(),
            key=mask_key(key) if key else "",
            tenant_id=tenant_id_of(key) if is_key(key) else None,
        )
        self._engine.requests.add(request)
        return request

    async def _read_body(self, _scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, or None if the client disconnected before its end: half a request moves no money."""
        # One byte over the limit is enough for a refusal; the rest is read and dropped.
        return await read_body(receive, MAXIMUM_BYTES + 1)

    async def _after_commit(
        self, scope: Scope, receive: Receive, send: Send, planned: PlannedFault, request: ReceivedRequest
    ) -> None:
        start: Message = {}
        body = b""

        async def keep(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
            else:
                body += message.get("body", b"")

        await self._app(scope, receive, keep)
        match planned.fault:
            case Fault.error_after_commit | Fault.refused_after_commit:
                await self._refuse(planned, request)(scope, receive, send)
            case fault if fault.names_another:
                another = name_another(fault, body, self._engine.state)
                await json_response(another, start["status"])(scope, receive, send)
            case Fault.truncated:
                # Without a length, the server sends it in chunks, so that it seems complete.
                has_length = planned.content_length
                headers = [each for each in start["headers"] if has_length or each[0] != b"content-length"]
                await send({**start, "headers": headers})
                await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": has_length})
                if has_length:
                    _hang_up(scope)
                    await _wait_for_disconnect(receive)
            case Fault.reset_after_commit:
                _reset(scope)
                # If the app returned without a response, uvicorn would send a 500 of its own.
                await _wait_for_disconnect(receive)
            case Fault.slow_drip:
                await _drip(start, body, receive, send)
            case _:
                await _wait_for_disconnect(receive)


def _hang_up(scope: Scope) -> None:
    connection: asyncio.Transport = scope[CONNECTION]
    connection.close()


def _reset(scope: Scope) -> None:
    """End the connection of a request with a TCP RST."""
    connection: asyncio.Transport = scope[CONNECTION]
    raw: socket.socket | None = connection.get_extra_info("socket")
    if raw is not None and not connection.is_closing():
        # A linger time of zero makes the kernel drop what is unsent and send RST instead of FIN.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.abort()


async def _drip(start: Message, body: bytes, receive: Receive, send: Send) -> None:
    """Send a response whose body comes byte by byte, until the client disconnects."""
    await send(start)
    for byte in body:
        await send({"type": "http.response.body", "body": bytes((byte,)), "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(DRIP_INTERVAL):
                await _wait_for_disconnect(receive)
                return
    await send({"type": "http.response.body"})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def json_response(body: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


def refusal_response(refusal: Refusal, messages: str = "text") -> Response:
    """Return the error envelope of a refusal under the switch `error_messages`."""
    return json_response(refusal.body(messages), refusal.status, refusal.headers)


def name_another(fault: Fault, body: bytes, state: ServiceState) -> str:
    """Return a success with one field of its transaction changed. A body without a transaction is not changed."""
    envelope = json.loads(body or b"{}")
    record: dict[str, Any] = envelope.get("data") or {}
    transaction = state.transactions.get(str(record.get("transactionId", record.get("transaction_id"))))
    if transaction is None:
        return body.decode()
    changes: dict[Fault, dict[str, Any]] = {
        Fault.other_transaction: dict.fromkeys(("transactionId", "transaction_id"), _another_id(transaction, state)),
        Fault.other_amount: {"amount": json_number(transaction.amount + 67)},
        Fault.other_phone: dict.fromkeys(("phone", "phone_number"), _SOMEBODY_ELSE),
        Fault.other_reference: dict.fromkeys(
            ("reference", "accountReference", "external_reference"), f"{transaction.reference}-2"
        ),
    }
    envelope["data"] = {name: changes[fault].get(name, shown) for name, shown in record.items()}
    return json.dumps(envelope, separators=(",", ":"))


def _another_id(transaction: Transaction, state: ServiceState) -> str:
    # A real one if possible: the first read would expose an id that does not exist.
    history = state.accounts[transaction.tenant_id].history
    return next((each.id for each in reversed(history) if each is not transaction), str(uuid4()))
