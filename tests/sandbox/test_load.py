"""Reads per second, held against a bare FastAPI route that does the same JSON work on the same server."""

import asyncio
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
from fastapi import FastAPI

from momopay.sandbox import Sandbox
from momopay.sandbox._server import Server, listen
from sandbox.kit import KEY, Service, data, transaction_id

READS = 250
ROUNDS = 8
LEAST = 0.7
AUTHORIZATION = b64encode(f"{KEY}:".encode()).decode()


@contextmanager
def _bare(record: dict[str, Any]) -> Generator[int]:
    app = FastAPI()
    records = {record["transactionId"]: record}

    async def read(transaction_id: str) -> dict[str, Any]:
        return {"success": True, "data": records[transaction_id], "requestId": str(uuid4())}

    app.add_api_route("/v1/transactions/{transaction_id}", read)
    listener, ready = listen(0), threading.Event()
    server = Server(app, listener, ready.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve_listener()))
    thread.start()
    assert ready.wait(5)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()


def _reads_per_second(port: int, path: str) -> float:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic {AUTHORIZATION}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        started = time.perf_counter()
        for _ in range(READS):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200")
        return READS / (time.perf_counter() - started)


def test_reads_are_about_as_fast_as_a_bare_route(sandbox: Sandbox, service: Service, api: httpx.Client) -> None:
    path = f"/v1/transactions/{transaction_id(service.stk())}"
    record = data(api.get(path.removeprefix("/v1")))
    mine = int(sandbox.url.rsplit(":", 1)[1])
    best, rates = 0.0, [0.0, 0.0]
    with _bare(record) as bare:
        for _ in range(ROUNDS):
            rates = [_reads_per_second(mine, path), _reads_per_second(bare, path)]
            best = max(best, rates[0] / rates[1])
            if best >= 1:
                break
    assert best >= LEAST, f"ratio {best:.2f}, last {rates[0]:.0f}/s against {rates[1]:.0f}/s"
