"""The server: heads that do not come, and how quickly it ends."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from momopay.sandbox import Sandbox, _server
from momopay.sandbox._server import listen
from patience import LONGEST


def test_it_listens_on_loopback_without_delay() -> None:
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("sent", [b"", b"GET /v1/transactions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "])
def test_a_head_that_does_not_come_closes_the_connection(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    assert _server.HEAD_LIMIT == 30
    monkeypatch.setattr(_server, "HEAD_LIMIT", 0.1)
    with Sandbox() as sandbox:
        port = httpx.URL(sandbox.url).port or 0
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(sent)
            assert client.recv(1) == b""


def test_a_body_may_take_longer_than_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "HEAD_LIMIT", 0.1)
    with Sandbox() as sandbox:
        port = httpx.URL(sandbox.url).port or 0
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(b"POST /v1/payments/stk HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{")
            time.sleep(0.2)
            client.sendall(b"}")
            assert client.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_the_program_serves_until_a_signal() -> None:
    source = str(Path(_server.__file__).parents[2])
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "momopay.sandbox", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": source},
    )
    assert program.stdout is not None
    url = program.stdout.readline().split()[1]
    with httpx.Client(trust_env=False) as http:
        assert http.get(f"{url}/transactions").status_code == 401
        # With an idle connection and an open page, which uvicorn would wait for.
        with http.stream("GET", f"{url.removesuffix('/v1')}/sandbox/events") as events:
            next(events.iter_lines())
            program.send_signal(signal.SIGTERM)
            _, errors = program.communicate(timeout=LONGEST)
    assert (program.returncode, errors) == (0, "")
