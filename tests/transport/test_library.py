"""Transports of httpx2 beside those of httpx: requests of their own library, and what their errors say was sent."""

import asyncio
import ssl
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import httpcore
import httpx
import pytest

import wire
from momopay import APIConnectionError, AsyncClient, Client, MomoPayError, OutcomeUnknownError
from momopay._transport.library import attempt_errors, library_of

httpx2: Any = import_module("httpx2")  # of another module than the types of `transport` name
httpcore2: Any = import_module("httpcore2")
LIBRARIES = (httpx, httpx2)
KEY = "pk_test_x"


def test_every_error_of_the_libraries_is_known_as_theirs() -> None:
    def errors_of(library: Any) -> set[type[Exception]]:
        found: list[object] = [getattr(library, name) for name in dir(library)]
        return {each for each in found if isinstance(each, type) and issubclass(each, Exception)}

    of_clients = {httpx.CookieConflict, httpx2.CookieConflict}  # which are not used
    theirs = set[type[Exception]]().union(*map(errors_of, (*LIBRARIES, httpcore, httpcore2)))
    for error in theirs - of_clients | {OSError, TimeoutError, ssl.SSLError}:
        assert issubclass(error, attempt_errors()), error
    assert not issubclass(AssertionError, attempt_errors())


@dataclass
class Caller:
    """Either client over a transport of one library."""

    library: Any
    is_async: bool

    def pay(self, base_url: str, transport: Any) -> Any:
        values: Any = {"amount": 100, "phone": "0712345678", "reference": "R-1"}
        if not self.is_async:
            with Client(KEY, base_url=base_url, transport=transport, budget=None, max_attempts=1) as client:
                return client.payouts.initiate(**values)

        async def pay() -> Any:
            async with AsyncClient(KEY, base_url=base_url, transport=transport, budget=None, max_attempts=1) as client:
                return await client.payouts.initiate(**values)

        return asyncio.run(pay())

    def own(self, **options: Any) -> Any:
        return (self.library.AsyncHTTPTransport if self.is_async else self.library.HTTPTransport)(**options)


@pytest.fixture(params=[(library, is_async) for library in LIBRARIES for is_async in (False, True)])
def caller(request: pytest.FixtureRequest) -> Caller:
    return Caller(*request.param)


def test_a_transport_gets_requests_of_its_own_library(caller: Caller) -> None:
    seen = list[Any]()

    def answer(request: Any) -> Any:
        seen.append(request)
        data = {"transactionId": "tx-1", "status": "PENDING", "type": "B2C", "amount": 100, "currency": "KES"}
        return caller.library.Response(202, json={"success": True, "data": data, "requestId": "r-1"})

    assert caller.pay("https://api.example/v1", caller.library.MockTransport(answer)).transaction_id == "tx-1"
    (request,) = seen
    assert isinstance(request, caller.library.Request)
    assert b'"reference":"R-1"' in request.content


def test_a_transport_reaches_the_service(caller: Caller) -> None:
    with wire.serve(wire.succeeds()) as server:
        assert caller.pay(server.base_url, caller.own()).transaction_id
        assert len(server.requests) == 1


def test_what_was_not_sent_is_no_unknown_outcome(caller: Caller) -> None:
    with wire.serve(wire.succeeds()) as server:
        refusing = server.base_url
    with pytest.raises(APIConnectionError) as caught:
        caller.pay(refusing, caller.own())
    assert not caught.value.may_have_executed


def test_a_lost_answer_is_an_unknown_outcome(caller: Caller) -> None:
    with wire.serve(wire.closes()) as server:
        with pytest.raises(OutcomeUnknownError):
            caller.pay(server.base_url, caller.own())
        assert len(server.requests) == 1


def raising(error: Exception, cause: Exception | None, caller: Caller) -> Any:
    def fail(_request: Any) -> Any:
        raise error from cause

    return caller.library.MockTransport(fail)


@pytest.mark.parametrize(
    ("core", "name", "is_known"),
    [
        (httpcore, "ConnectTimeout", True),
        (httpcore2, "ConnectTimeout", True),
        (httpcore2, "PoolTimeout", True),
        (httpcore2, "ReadTimeout", False),
        (httpcore2, "RemoteProtocolError", False),
    ],
)
def test_an_error_says_whether_it_was_sent(core: Any, name: str, is_known: bool, caller: Caller) -> None:
    """Whether the core's error comes as it is, or as the cause of one of the library above it."""
    own = getattr(caller.library, name)("it failed")
    for error, cause in ((getattr(core, name)("it failed"), None), (own, getattr(core, name)("it failed"))):
        with pytest.raises(MomoPayError) as caught:
            caller.pay("https://api.example/v1", raising(error, cause, caller))
        assert isinstance(caught.value, OutcomeUnknownError) is not is_known


def test_a_connect_error_for_another_reason_proves_nothing(caller: Caller) -> None:
    """As httpx-aiohttp raises one for a server that hung up."""
    error = caller.library.ConnectTimeout("it failed")
    with pytest.raises(OutcomeUnknownError):
        caller.pay("https://api.example/v1", raising(error, ValueError("read"), caller))


def test_a_transport_of_neither_library_gets_requests_of_httpx() -> None:
    assert library_of(object()) is httpx
    assert library_of(None) is httpx
    assert library_of(httpx2.HTTPTransport()) is httpx2
