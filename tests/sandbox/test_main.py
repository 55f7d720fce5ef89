"""`python -m momopay.sandbox`."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import momopay.sandbox
from momopay.sandbox.__main__ import main, stop_on_signals

SOURCE = Path(momopay.sandbox.__file__).parents[2]


@pytest.fixture(autouse=True)
def _restored_signals() -> Iterator[None]:
    """Leave the handlers of this process as they were: other tests interrupt it."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in handlers.items():
        signal.signal(each, handler)


def stopped() -> threading.Event:
    stop = threading.Event()
    stop.set()
    return stop


def test_it_says_where_it_is_and_how_fast_time_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--port", "0", "--speed", "10", "--state", str(tmp_path / "state.db")]
    assert main(arguments, stop=stopped()) == 0
    out = capsys.readouterr().out
    assert "/v1" in out
    assert "x10, state in" in out


@pytest.mark.parametrize("arguments", [["--port", "0", "--speed", "-1"], ["--port", "99999999"]])
def test_impossible_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, stop=stopped()) == 1
    assert capsys.readouterr().err.startswith("momopay.sandbox: ")


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str], still_sandbox: momopay.sandbox.Sandbox) -> None:
    port = still_sandbox.url.rpartition(":")[2]
    assert main(["--port", port]) == 1
    assert f"(127.0.0.1:{port})" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_stop_it(number: signal.Signals) -> None:
    stop = stop_on_signals()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.is_set()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_the_program_serves_until_a_signal() -> None:
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "momopay.sandbox", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert program.stdout is not None
    url = program.stdout.readline().split()[1]
    assert httpx.get(f"{url}/transactions", trust_env=False).status_code == 401
    program.send_signal(signal.SIGTERM)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, "")
