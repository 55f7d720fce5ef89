"""The outermost ASGI layer under /v1: notes every request and lets planned faults act on its connection."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from momopay.sandbox._answers import error_body
from momopay.sandbox._bodies import MAXIMUM_BYTES
from momopay.sandbox._engine import Engine
from momopay.sandbox._faults import Fault, Planned
from momopay.sandbox._requests import ReceivedRequest
from momopay.sandbox._wire import Answer, Wires

PREFIX = "/v1"
TWIST = "momopay.twist"
BODY = "momopay.body"
_HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"

TransportOf = Callable[[Scope], asyncio.Transport | None]


class Gate:
    """Stands before the app; everything outside /v1 passes untouched."""

    def __init__(self, app: ASGIApp, engine: Engine, wires: Wires, transport_of: TransportOf) -> None:
        """`transport_of` finds the connection that a request came in on."""
        self._app = app
        self._engine = engine
        self._wires = wires
        self._transport_of = transport_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(f"{PREFIX}/"):
            await self._app(scope, receive, send)
            return
        request = self._note(scope)
        # Routed as sent: an encoded slash belongs to the id that it stands in.
        scope["path"] = PREFIX + request.path
        planned = self._engine.faults.take(request.method, request.path)
        if planned is not None and planned.fault in {Fault.refuse, Fault.reset_before_read}:
            await self._break_off(scope, receive, planned.fault)
            return
        if request.method not in {"GET", "HEAD"}:
            body = await self._read(scope, receive)
            if body is None:
                return
            request.body = body
        scope[BODY] = request.body

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
            await send(message)

        if planned is None:
            await self._app(scope, receive, noting)
        elif planned.fault.is_twist:
            scope[TWIST] = planned.fault
            await self._app(scope, receive, noting)
        elif planned.fault.is_before_commit:
            html = planned.fault is Fault.html_502
            await _send(noting, _plain(502, _HTML, b"text/html") if html else _error())
        else:
            await self._after_commit(scope, receive, noting, planned, request)

    def _note(self, scope: Scope) -> ReceivedRequest:
        request = ReceivedRequest(
            method=scope["method"],
            path=scope["raw_path"].decode("latin-1")[len(PREFIX) :],
            query=scope["query_string"].decode("latin-1"),
            headers={
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in scope["headers"]
                if name != b"authorization"
            },
            at=self._engine.clock.now(),
        )
        self._engine.requests.add(request)
        return request

    async def _break_off(self, scope: Scope, receive: Receive, fault: Fault) -> None:
        if transport := self._transport_of(scope):
            if fault is Fault.refuse:
                transport.close()
            else:
                self._wires.reset(transport)
        await _hung_up(receive)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body, or None when the client hung up before its end: half a request moves no money."""
        transport = self._transport_of(scope)
        if transport is None:
            return None
        body: bytes = b""
        self._wires.take(transport)
        try:
            while (message := await receive())["type"] != "http.disconnect":
                # One byte over the limit is enough to be refused; the rest is read and dropped.
                body += message.get("body", b"")[: MAXIMUM_BYTES + 1 - len(body)]
                if not message.get("more_body", False):
                    return body
        finally:
            self._wires.taken.discard(transport)
        return None

    async def _after_commit(
        self, scope: Scope, receive: Receive, send: Send, planned: Planned, request: ReceivedRequest
    ) -> None:
        answer = Answer()

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status, answer.headers = message["status"], list(message["headers"])
            else:
                answer.body += message.get("body", b"")

        await self._app(scope, receive, keep)
        if planned.fault is Fault.error_after_commit:
            await _send(send, _error())
            return
        transport = self._transport_of(scope)
        if transport is None:
            return
        match planned.fault:
            case Fault.reset_after_commit:
                self._wires.reset(transport)
            case Fault.truncated:
                request.status = answer.status
                self._wires.truncate(transport, answer, content_length=planned.content_length)
            case Fault.slow_drip:
                request.status = answer.status
                await self._wires.drip(transport, answer)
            case _:
                self._wires.take(transport)
        await _hung_up(receive)
        self._wires.taken.discard(transport)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _plain(status: int, body: bytes, media_type: bytes) -> Answer:
    length = str(len(body)).encode()
    return Answer(status, [(b"content-type", media_type), (b"content-length", length)], body)


def _error() -> Answer:
    body = error_body("INTERNAL_ERROR", "The service failed (a fault on demand)").encode()
    return _plain(500, body, b"application/json")


async def _send(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
