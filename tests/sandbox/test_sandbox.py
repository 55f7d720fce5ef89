"""The class `Sandbox`: start, close and what it refuses."""

import importlib
import re
import sys
import threading
from pathlib import Path

import httpx
import pytest

from momopay.sandbox import Sandbox
from sandbox.kit import client, connected, data, own_sandbox


def test_close_ends_every_thread_and_leaves_the_records() -> None:
    before = threading.enumerate()
    with own_sandbox() as (sandbox, service), client(sandbox.url) as browser:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", sandbox.base_url)
        with browser.stream("GET", "/sandbox/events") as response:
            next(response.iter_lines())
            data(service.stk())
            sandbox.close()
    assert set(threading.enumerate()) <= set(before)
    assert (len(sandbox.requests), len(sandbox.ledger), sandbox.callbacks) == (1, 1, [])
    with pytest.raises(ConnectionRefusedError):
        connected(sandbox)
    sandbox.close()


def test_a_sandbox_runs_once() -> None:
    sandbox = Sandbox()
    with pytest.raises(RuntimeError, match="not been started"):
        sandbox.advance(1)
    sandbox.close()
    with sandbox:
        pass
    with pytest.raises(RuntimeError, match="not running"):
        sandbox.advance(1)
    with pytest.raises(RuntimeError, match="make a new one"):
        sandbox.start()


def test_a_failed_start_leaves_the_state_file_free(tmp_path: Path, still_sandbox: Sandbox) -> None:
    state = tmp_path / "state.db"
    taken = httpx.URL(still_sandbox.url).port or 0
    with pytest.raises(OSError, match=r"in use|10048"):
        Sandbox(port=taken, state=state).start()
    with pytest.raises(ValueError, match="speed"):
        Sandbox(speed=-1, state=state).start()
    with Sandbox(state=state):
        pass


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in ("momopay.sandbox", "momopay.sandbox._sandbox", "momopay.sandbox._server"):
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ImportError, match=r'pip install "momopay\[sandbox\]"$'):
        importlib.import_module("momopay.sandbox")
