"""A service that plays a script and remembers the requests; one call of each kind, and what the sandbox counted."""

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx

from bodies import REQUEST_ID, envelope
from drivers import KEY, Drive
from events_kit import Watcher
from models.kit import Sample
from momopay import PollSchedule
from momopay.events import AttemptEnded
from momopay.sandbox import Fault, Sandbox


class Recorder:
    """A transport that gives one answer after another, the last for ever: data, a whole response, or an error."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._respond)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        return httpx.Response(200, json=envelope(answer), headers={"X-Served-By": "node-7"})


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
    assert (response.request_id, response.status_code, response.attempts) == (REQUEST_ID, 200, 1)
    assert response.headers["x-served-by"] == response.headers["X-Served-By"] == "node-7"
    assert 0 <= response.elapsed < 30


def exchange(
    drive: Drive,
    answer: Sample,
    call: Callable[[Any], Any],
    method: str,
    target: str,
    body: dict[str, Any] | None = None,
    key: str | None = None,
) -> Any:
    """Make a call of a service that answers with this record; check the one request and what the call returned."""
    service, seen = Recorder(answer.camel), Watcher()
    record = drive(transport=service.transport, on_event=seen)(call)
    (request,) = service.requests
    assert_sent(request, method, target, body)
    assert request.headers.get("idempotency-key") == key
    folder, _, last = target.removeprefix("/v1").rpartition("/")
    (attempt,) = seen.of(AttemptEnded)
    assert attempt.route == f"{folder}/{'{id}' if folder in {'/transactions', '/payment-wallet/channels'} else last}"
    assert type(record) is answer.kind
    assert_came_with_its_response(record)
    return record


AT_ONCE = PollSchedule(first=0.0, every=0.05, limit=5.0)
UNRESOLVED = [
    *((Fault.reset_after_commit, 1), (Fault.hang_after_commit, 1), (Fault.error_after_commit, 1), (Fault.truncated, 1)),
    *((Fault.error_before_commit, 0), (Fault.html_502, 0), (Fault.refuse, 0), (Fault.reset_before_read, 0)),
]
"""Faults after which a payment's outcome is unknown, and how many payments the service makes in spite of each."""


def paid(sandbox: Sandbox, kind: str) -> int:
    return [str(movement.kind) for movement in sandbox.ledger].count(kind)


def pushed(sandbox: Sandbox, path: str) -> int:
    return [request.path for request in sandbox.requests].count(path)
