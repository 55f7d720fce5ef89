"""What is particular to the endpoint of FastAPI and Starlette."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from integrations.kit import BODY, LARGEST, QUERY, SIGNER, TOO_LARGE, Handler, handle_later, unreachable
from momopay import CallbackSigner, Journal
from momopay.integrations import fastapi

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/momo", "query_string": b"", "headers": []}


def respond(endpoint: Callable[[Request], Awaitable[Response]], chunks: list[bytes], **scope: Any) -> Response:
    """Send a request whose body comes in chunks; the last chunk is repeated for ever."""
    chunks = [*chunks]

    async def receive() -> dict[str, Any]:
        more = len(chunks) > 1
        return {"type": "http.request", "body": chunks.pop(0) if more else chunks[0], "more_body": more}

    async def run() -> Response:
        return await endpoint(Request({**SCOPE, **scope}, receive))

    return asyncio.run(run())


def test_a_body_in_chunks_and_a_signed_query_are_passed_on() -> None:
    for handler in (Handler(), Handler()):
        endpoint = fastapi.callback_endpoint(handler.handle, signer=SIGNER)
        response = respond(endpoint, [BODY[:10], b"", BODY[10:]], query_string=QUERY.encode())
        assert (response.status_code, response.body, response.headers["allow"]) == (200, b"OK", "POST")
        assert len(handler.calls) == 1


def test_a_query_that_is_not_ascii_is_forged() -> None:
    endpoint = fastapi.callback_endpoint(unreachable, signer=SIGNER)
    assert respond(endpoint, [BODY], query_string=b"momo_token=\xff").status_code == 403


def test_an_async_handler_is_awaited() -> None:
    assert respond(fastapi.callback_endpoint(handle_later), [BODY]).status_code == 200


def test_a_body_of_64_kib_is_accepted_and_a_larger_one_refused() -> None:
    endpoint = fastapi.callback_endpoint(handle_later)
    assert [respond(endpoint, [body]).status_code for body in (LARGEST, TOO_LARGE)] == [200, 400]


def test_at_most_64_kib_of_a_body_are_read() -> None:
    chunks = 0

    async def receive() -> dict[str, Any]:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b" " * 16_384, "more_body": True}

    async def run() -> Response:
        return await fastapi.callback_endpoint(unreachable)(Request(SCOPE, receive))

    assert asyncio.run(run()).status_code == 400
    assert chunks == 5


def test_the_endpoint_is_named_after_its_handler_and_its_annotations_resolve() -> None:
    assert getattr(fastapi.callback_endpoint(unreachable), "__name__", "") == "unreachable"
    hints = typing.get_type_hints(fastapi.callback_endpoint)
    assert (hints["signer"], hints["journal"]) == (CallbackSigner | None, Journal | None)
