"""The server, and `python -m momopay.sandbox`; what it prints, tests/cli/test_development.py tests."""

import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Sandbox, _server
from momopay.sandbox.__main__ import main
from patience import LONGEST
from sandbox.kit import Routes, client, connected


@pytest.mark.parametrize("sent", [b"", b"GET /v1/transactions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "])
def test_a_head_that_does_not_come_closes_the_connection(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    assert _server.HEAD_LIMIT == 30
    monkeypatch.setattr(_server, "HEAD_LIMIT", 0.1)
    with Sandbox() as sandbox, connected(sandbox) as client:
        client.sendall(sent)
        assert client.recv(1) == b""


def test_clients_that_hang_up_before_they_are_accepted_leave_it_listening() -> None:
    with Sandbox() as sandbox, client(sandbox.base_url) as api:
        for number in range(100):
            with socket.socket() as one:
                one.setblocking(False)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hhi", 1, 0, 0))  # ended by a reset
                one.connect_ex(("127.0.0.1", httpx.URL(sandbox.url).port))
                time.sleep(0.001 * (number % 2))
        assert api.get("/transactions").status_code == 200


def test_a_body_may_take_longer_than_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "HEAD_LIMIT", 0.1)
    with Sandbox() as sandbox, connected(sandbox) as client:
        client.sendall(b"POST /v1/payments/stk HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{")
        time.sleep(0.2)
        client.sendall(b"}")
        assert client.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.whole
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX signals")
def test_the_program_serves_until_a_signal() -> None:
    command = [sys.executable, "-W", "error", "-m", "momopay.sandbox", "--port", "0", "--host", "0.0.0.0"]
    program = subprocess.Popen(
        [*command, "--allow-host", "sandbox", "--callback-host", "app"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(_server.__file__).parents[2])},
    )
    assert program.stdout is not None
    url = program.stdout.readline().split()[1]
    with client(url) as api:
        assert api.get("/transactions", headers={"Host": "sandbox"}).status_code == 200
        assert Routes(api).stk(callbackUrl="http://app/momo").status_code == 200
        # With an idle connection and an open page, which uvicorn would wait for.
        with api.stream("GET", f"{url.removesuffix('/v1')}/sandbox/events") as events:
            next(events.iter_lines())
            program.send_signal(signal.SIGTERM)
            _, errors = program.communicate(timeout=LONGEST)
    assert (program.returncode, errors) == (0, "")


@in_turn("options", ["--speed -1", "--port 99999999", "--host 192.0.2.1"])
def test_impossible_options_are_refused(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "0", *options.split(" ")]) == 1
    assert capsys.readouterr().err.startswith("momopay.sandbox: ")
