"""Shared by the tests of the sandbox: a receiver of callbacks, the endpoints, checks of the envelope."""

import json
import socket
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from momopay.sandbox import MovementKind, Sandbox
from served import server_runs

KEY = "pk_test_suite"


LISTS = {"list_phone": "masked", "list_amount": "with_fee", "list_type": "lower", "list_times": "local"}
"""Switches that change what lists show."""


class Receiver:
    """A loopback endpoint that records callbacks and answers as `answer` says."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.text = b"ok"
        self.answer: Callable[[dict[str, Any]], int] = lambda _body: 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                receiver.paths.append(self.path)
                receiver.bodies.append(body)
                self.send_response(receiver.answer(body))
                self.send_header("content-length", str(len(receiver.text)))
                self.end_headers()
                with suppress(ConnectionError):
                    self.wfile.write(receiver.text)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        with ExitStack() as stack:
            self.url = f"{stack.enter_context(server_runs(ThreadingHTTPServer(('127.0.0.1', 0), Handler)))}/momo"
            self.close = stack.pop_all().close


class BusyReceiver:
    """Makes a receiver hold each callback until `release`; `finished` lists what it has answered."""

    def __init__(self, receiver: Receiver, status: int = 200) -> None:
        self.arrived, self.release = threading.Event(), threading.Event()
        self.finished: list[int] = []

        def answer(_body: dict[str, Any]) -> int:
            self.arrived.set()
            self.release.wait(30)
            self.finished.append(status)
            return status

        receiver.answer = answer


class Routes:
    """The endpoints, with bodies that are valid unless changed."""

    def __init__(self, api: httpx.Client) -> None:
        self.api = api

    def stk(self, **changes: Any) -> httpx.Response:
        body: dict[str, Any] = {"amount": 100, "phone": "0712345678", "accountReference": "INV-42"}
        return self.api.post("/payments/stk", json={**body, "transactionDesc": "Order 42", **changes})

    def payout(self, **changes: Any) -> httpx.Response:
        body: dict[str, Any] = {"amount": 250.5, "phone": "+254712345678", "reference": "SAL-7"}
        return self.api.post("/b2c/payouts", json={**body, "description": "Salary", **changes})

    def top_up(self, key: str | None = None, **changes: Any) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        body: dict[str, Any] = {"amount": 500, "phone": "0112345678", **changes}
        return self.api.post("/wallets/service/topups", json=body, headers=headers)

    def read(self, initiated: httpx.Response) -> dict[str, Any]:
        record: dict[str, Any] = data(self.api.get(f"/transactions/{transaction_id(initiated)}"))
        return record

    def channel(self, **changes: Any) -> httpx.Response:
        body: dict[str, Any] = {"name": "Shop", "type": "TILL_NUMBER", "shortcode": "512345"}
        return self.api.post("/payment-wallet/channels", json={**body, **changes})


def client(base_url: str, key: str = KEY) -> httpx.Client:
    return httpx.Client(base_url=base_url, auth=(key, ""), timeout=30, trust_env=False, verify=False)


@contextmanager
def own_sandbox(**options: Any) -> Generator[tuple[Sandbox, Routes]]:
    with Sandbox(**options) as sandbox, client(sandbox.base_url) as api:
        yield sandbox, Routes(api)


def set_switches(sandbox: Sandbox, key: str = KEY, **switches: Any) -> None:
    for name, value in switches.items():
        setattr(sandbox.account(key).switches, name, value)


def posts(sandbox: Sandbox, path: str) -> int:
    """Return how many requests to make something there were, whatever came of them."""
    return [(request.method, request.path) for request in sandbox.requests].count(("POST", path))


def payouts(sandbox: Sandbox) -> int:
    return sum(entry.kind is MovementKind.payout for entry in sandbox.ledger)


def connected(sandbox: Sandbox) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx.URL(sandbox.url).port or 0), timeout=30)


def execute(path: Path, statement: str) -> None:
    """Change what an SQLite file has, as time or an accident would."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def data(response: httpx.Response) -> Any:
    """The data of a success, once the envelope around it is right."""
    assert response.status_code == 200, response.text
    envelope = response.json()
    assert (set(envelope), envelope["success"]) == ({"success", "data", "requestId"}, True)
    return envelope["data"]


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Status and code of an error, once the envelope around it is right."""
    envelope = response.json()
    assert (set(envelope), envelope["success"]) == ({"success", "error", "requestId"}, False)
    assert set(envelope["error"]) == {"message", "code", "details"}
    assert isinstance(envelope["error"]["details"], dict)
    return response.status_code, envelope["error"]["code"]


def transaction_id(response: httpx.Response) -> str:
    identifier: str = data(response)["transactionId"]
    return identifier
