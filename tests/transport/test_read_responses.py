"""Transports that have read the response before they return it, as every one does that logs bodies."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import momopay
import wire
from drivers import Driver

Drive = Callable[..., Driver]


def payout(client: Any) -> Any:
    return client.payouts.initiate(amount=100, phone="0712345678", reference="INV-42")


def balance(client: Any) -> Any:
    return client.wallet.balance()


class Wrapping(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Does something with each response of httpx's own transport, and returns that or another."""

    def __init__(self, client_kind: str) -> None:
        self.blocking = httpx.HTTPTransport() if client_kind == "blocking" else None
        self.suspending = httpx.AsyncHTTPTransport() if client_kind == "async" else None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert self.blocking is not None
        return self.look(self.blocking.handle_request(request))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert self.suspending is not None
        return await self.look_async(await self.suspending.handle_async_request(request))

    def look(self, response: httpx.Response) -> httpx.Response:
        raise NotImplementedError

    async def look_async(self, response: httpx.Response) -> httpx.Response:
        raise NotImplementedError

    def close(self) -> None:
        if self.blocking is not None:
            self.blocking.close()

    async def aclose(self) -> None:
        if self.suspending is not None:
            await self.suspending.aclose()


class Logging(Wrapping):
    def look(self, response: httpx.Response) -> httpx.Response:
        response.read()
        return response

    async def look_async(self, response: httpx.Response) -> httpx.Response:
        await response.aread()
        return response


class Copying(Wrapping):
    """Returns a response of its own, with the content of the other."""

    def look(self, response: httpx.Response) -> httpx.Response:
        return httpx.Response(response.status_code, content=response.read())

    async def look_async(self, response: httpx.Response) -> httpx.Response:
        return httpx.Response(response.status_code, content=await response.aread())


class Swallowing(Wrapping):
    """Reads the body and keeps nothing of it."""

    def look(self, response: httpx.Response) -> httpx.Response:
        list(response.iter_raw())
        return response

    async def look_async(self, response: httpx.Response) -> httpx.Response:
        async for _chunk in response.aiter_raw():
            pass
        return response


class Closing(Wrapping):
    def look(self, response: httpx.Response) -> httpx.Response:
        response.close()
        return response

    async def look_async(self, response: httpx.Response) -> httpx.Response:
        await response.aclose()
        return response


def compressed() -> wire.Step:
    def play(exchange: wire.Exchange) -> bool:
        body = gzip.compress(wire.envelope(wire.record_for(exchange.request)))
        exchange.sock.sendall(wire.whole(200, body, {"Content-Encoding": "gzip"}))
        return True

    return wire.Step(play, commits=True)


ANSWERS = {"plain": wire.succeeds(), "compressed": compressed()}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("kind", [Logging, Copying])
def test_a_response_that_was_read_is_accepted(
    drive: Drive, client_kind: str, kind: type[Wrapping], answer: wire.Step
) -> None:
    with wire.serve(answer) as server:
        driver = drive(base_url=server.base_url, transport=kind(client_kind), timeout=2.0)
        begun = time.process_time()
        assert driver(payout).transaction_id == wire.TRANSACTION_ID
        assert driver(balance).currency == "KES"
        assert time.process_time() - begun < 1.0  # httpcore's stream, read again at its end, would never return
        assert (len(server.requests), server.payments) == (2, 1)


@pytest.mark.parametrize("kind", [Swallowing, Closing])
def test_a_response_whose_body_is_gone_is_no_answer(drive: Drive, client_kind: str, kind: type[Wrapping]) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, transport=kind(client_kind), timeout=2.0, max_attempts=1)
        with pytest.raises(momopay.OutcomeUnknownError):
            driver(payout)
        with pytest.raises(momopay.APIConnectionError):
            driver(balance)
        assert server.payments == 1


def test_a_response_that_was_read_has_the_same_limit_of_size(drive: Drive, client_kind: str) -> None:
    with wire.serve(wire.padded(8 * wire.MEBIBYTE + 1)) as server:
        driver = drive(base_url=server.base_url, transport=Logging(client_kind), max_attempts=1)
        with pytest.raises(momopay.ProtocolError, match="8 MiB"):
            driver(balance)


def test_a_mocks_response_may_be_returned_twice(drive: Drive) -> None:
    record = wire.record_for(wire.Request("GET", "/balance", {}, b"", 0.0))
    answer = httpx.Response(200, content=wire.envelope(record))
    driver = drive(transport=httpx.MockTransport(lambda _request: answer))
    assert [driver(balance).currency for _ in range(2)] == ["KES", "KES"]
