"""A service that gives one response to everything, and remembers the requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import pytest

import momopay
from drivers import KEY, Driver


class Recorder:
    """A transport that responds with the same data each time."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._respond)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        body = {"success": True, "data": self.data, "requestId": "r-1"}
        return httpx.Response(200, json=body, headers={"X-Served-By": "node-7"})


def assert_sent(request: httpx.Request, method: str, target: str, body: dict[str, Any] | None = None) -> None:
    """Compare a request with what the service page states, header by header where it matters."""
    assert (request.method, request.url.host, request.url.raw_path.decode()) == (method, "api.example", target)
    assert request.headers["authorization"] == "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
    assert KEY not in str(request.url)
    assert ("idempotency-key" in request.headers) is target.endswith("/topups")
    if body is None:
        assert request.content == b""
    else:
        assert request.headers["content-type"].split(";")[0] == "application/json"
        assert request.headers["content-length"] == str(len(request.content))
        assert json.loads(request.content, parse_float=Decimal) == body


def assert_came_with_its_response(record: Any) -> None:
    response = record.response
    assert (response.request_id, response.status_code, response.attempts) == ("r-1", 200, 1)
    assert response.headers["x-served-by"] == response.headers["X-Served-By"] == "node-7"
    assert 0 <= response.elapsed < 30


def refused(driver: Driver, call: Callable[[Any], Any]) -> set[str]:
    """Make a call that is refused here; return the names of the arguments at fault."""
    with pytest.raises(momopay.RequestValidationError) as caught:
        driver(call)
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert KEY not in shown
    assert "712345678" not in shown
    return set(caught.value.fields)
