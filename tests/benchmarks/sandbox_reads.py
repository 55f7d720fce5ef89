"""The sandbox's reads per second, over one raw connection, against a bare FastAPI route with the same JSON work."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from urllib.parse import urlsplit

from benchmarks.measure import Row, Scale, take_turns
from benchmarks.processes import AUTHORIZATION, PATIENCE, serving

READS = 500


def measure(scale: Scale) -> list[Row]:
    """Time both; no rows where the sandbox's extra is not installed."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        return []
    with serving("sandbox_ends.py") as urls, ExitStack() as connections:
        sides = {
            name: partial(_reads_per_second, _connect(url, connections), _request(url), scale.of(READS))
            for name, url in zip(("sandbox", "bare"), urls, strict=True)
        }
        taken = take_turns(sides, scale)
    work, unit, other = "sandbox: GET one record", "reads a second", "bare FastAPI route"
    return [Row(work, unit, taken["sandbox"], other, taken["bare"], 0.7, at_least=True)]


def _connect(url: str, connections: ExitStack) -> socket.socket:
    address = ("127.0.0.1", urlsplit(url).port or 80)
    return connections.enter_context(socket.create_connection(address, timeout=PATIENCE))


def _request(url: str) -> bytes:
    headers = {"Host": "127.0.0.1", **AUTHORIZATION}
    lines = [f"GET {urlsplit(url).path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _reads_per_second(connection: socket.socket, request: bytes, reads: int) -> float:
    begun = time.perf_counter()
    for _ in range(reads):
        connection.sendall(request)
        answer = connection.recv(65_536)
        while not answer.endswith(b"}"):
            answer += connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 200"), answer
    return reads / (time.perf_counter() - begun)
