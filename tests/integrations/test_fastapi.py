"""What is particular to the endpoint of FastAPI and Starlette."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from durable.receiving import BODY, QUERY, SIGNER, client_of, unreachable
from momopay.integrations import fastapi

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/momo", "query_string": b"", "headers": []}


async def deliver(endpoint: Callable[[Request], Awaitable[Response]], query: bytes = QUERY.encode()) -> Response:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    return await endpoint(Request({**SCOPE, "query_string": query}, receive))


def test_a_query_that_is_not_ascii_is_forged() -> None:
    endpoint = fastapi.callback_endpoint(unreachable, client=client_of(), signer=SIGNER)
    assert asyncio.run(deliver(endpoint, b"momo_token=\xff")).status_code == 403


def test_at_most_64_kib_of_a_body_are_read() -> None:
    chunks = 0

    async def receive() -> dict[str, Any]:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b" " * 16_384, "more_body": True}

    async def run() -> Response:
        return await fastapi.callback_endpoint(unreachable, client=client_of())(Request(SCOPE, receive))

    assert asyncio.run(run()).status_code == 400
    assert chunks == 5


def test_the_endpoint_is_named_after_its_handler() -> None:
    assert getattr(fastapi.callback_endpoint(unreachable, client=client_of()), "__name__", "") == "unreachable"
