"""The sandbox as a command: it runs until a signal."""

from __future__ import annotations

import errno
import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.kit import Shell, signalling
from patience import LONGEST


@pytest.fixture
def signals() -> Iterator[None]:
    """Whatever a command in this process does to the handlers of signals, undone."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def port() -> int:
    """A port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number: int = listener.getsockname()[1]
    return number


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize(
    "arguments",
    [
        "--host 300.1.1.1",
        "--host a\x00b",
        "--host 192.0.2.1",
        "--allow-host http://App",
        "--callback-host App:80",
        "--state /nonexistent/state.db",
        "--state pyproject.toml",
        "--profile /nonexistent/service.toml",
        "--profile README.md",
        "--speed inf",
        "--speed -1",
        "--port 65536",
    ],
)
def test_a_wrong_option_is_named(
    momopay: Shell, signals: None, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    free = [] if arguments.startswith("--port") else ["--port", "0"]
    refused = momopay("sandbox", *free, *arguments.split(" "))
    assert (refused.code, refused.out) == (2, "")
    first, second = refused.err.splitlines()
    assert first.startswith(f"Error: {arguments.split(maxsplit=1)[0]}: ")
    assert second.startswith("What to do: ")


def test_a_port_that_needs_a_right_is_named(momopay: Shell, signals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_socket: socket.socket, _address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    refused = momopay("sandbox", "--port", "80")
    assert refused.code == 2
    assert refused.err.startswith("Error: --port: Permission denied (127.0.0.1:80)\nWhat to do: give one above 1023")


def test_it_runs_until_ctrl_c(momopay: Shell, port: int, signals: None) -> None:
    with signalling([signal.SIGINT], lambda: answers(f"http://127.0.0.1:{port}/")):
        done = momopay("sandbox", "--port", str(port), "--speed", "20")
    assert done.code == 0
    assert done.out.split()[1] == f"http://127.0.0.1:{port}/v1"
    assert "time x20, state in memory" in done.out
    assert not answers(f"http://127.0.0.1:{port}/")


def test_it_tells_a_program_where_it_is_and_ends_with_sigterm(momopay: Shell, signals: None) -> None:
    started = momopay.start("sandbox", "--port", "0", "--json")
    assert started.stdout is not None
    line = json.loads(started.stdout.readline())
    assert set(line) == {"base_url", "page"}
    assert answers(line["page"])
    second = momopay("sandbox", "--port", line["page"].rstrip("/").rpartition(":")[2], "--json")
    assert (second.code, second.out) == (1, "")
    error = json.loads(second.err)
    assert (error["exit_code"], error["remedy"]) == (1, "give another --port; 0 takes a free one")
    started.send_signal(signal.SIGTERM)
    assert started.communicate(timeout=LONGEST) == ("", "")
    assert started.returncode == 0
