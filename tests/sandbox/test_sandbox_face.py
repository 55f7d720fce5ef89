import ast
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

import momopay.sandbox
from momopay.sandbox import Sandbox
from momopay.sandbox.__main__ import main
from sandbox.kit import KEY, Service, data, refusal

if TYPE_CHECKING:
    from momopay.sandbox._engine import Engine

ROOM = Path(momopay.sandbox.__file__).parent
NOT_PURE = {"asyncio", "fastapi", "starlette", "uvicorn", "httpx", "threading", "socket", "time", "sqlite3"}
DRIVERS = {
    "__init__",
    "__main__",
    "_app",
    "_callback_sender",
    "_connections",
    "_control_api",
    "_engine",
    "_envelope",
    "_fault_middleware",
    "_guard",
    "_pages",
    "_routes",
    "_sandbox",
    "_server",
    "_snapshot",
    "_store",
}
PURE = sorted(path.stem for path in ROOM.glob("*.py") if path.stem not in DRIVERS)


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    return names


def test_nothing_of_the_rest_of_momopay_is_imported() -> None:
    for path in ROOM.glob("*.py"):
        for name in _imports(path):
            assert not name.startswith("momopay") or name.startswith("momopay.sandbox"), (path.name, name)


@pytest.mark.parametrize("name", PURE)
def test_rules_know_no_clock_no_socket_and_no_framework(name: str) -> None:
    names = _imports(ROOM / f"{name}.py")
    assert not {module.split(".")[0] for module in names} & NOT_PURE
    assert not {module.rsplit(".", 1)[-1] for module in names if module.startswith("momopay")} & DRIVERS


def test_the_public_names_are_complete_and_sorted() -> None:
    assert momopay.sandbox.__all__ == sorted(momopay.sandbox.__all__)
    assert all(hasattr(momopay.sandbox, name) for name in momopay.sandbox.__all__)


def test_nothing_is_left_behind() -> None:
    before = threading.enumerate()
    with Sandbox() as sandbox:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", sandbox.base_url)
        api = httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False)
        events = httpx.Client(base_url=sandbox.url, trust_env=False)
        with events.stream("GET", "/sandbox/events") as response:
            next(response.iter_lines())
            data(Service(api).stk())
            sandbox.close()
    api.close()
    events.close()
    assert threading.enumerate() == before
    assert len(sandbox.requests) == 1
    assert len(sandbox.ledger) == 1
    port = httpx.URL(sandbox.base_url).port or 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    sandbox.close()


def test_what_a_sandbox_says_before_and_after() -> None:
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


def test_a_port_that_is_taken_and_a_senseless_speed(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            Sandbox(port=taken.getsockname()[1], state=tmp_path / "state.db").start()
    with pytest.raises(ValueError, match="speed"):
        Sandbox(speed=-1).start()


def test_advance_is_exact_and_refuses_to_go_back(sandbox: Sandbox) -> None:
    before = sandbox.now
    sandbox.advance(12.345)
    assert (sandbox.now - before).total_seconds() == 12.345
    sandbox.advance(0)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds"):
            sandbox.advance(seconds)


def test_reset_restores_accounts_in_place(sandbox: Sandbox, service: Service) -> None:
    account = sandbox.account(KEY)
    account.kyc_approved, account.channels, account.fee = False, [], account.fee + 1
    sandbox.fail_next("POST", "/payments/stk", "html_502")
    sandbox.reset()
    assert sandbox.account(KEY) is account
    assert account.kyc_approved
    assert account.rate_limit == 60
    assert account.fee == 1
    data(service.stk())
    assert len(sandbox.requests) == 1


def test_main_serves_until_it_is_told_to_stop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    state = tmp_path / "state.db"
    assert main(["--port", "0", "--speed", "10", "--state", str(state)], stop=stop) == 0
    said = capsys.readouterr().out
    assert "/v1" in said
    assert "x10, state in" in said
    assert main(["--port", "0", "--speed", "-1"], stop=stop) == 1
    assert main(["--port", "99999999"], stop=stop) == 1
    assert "speed" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_stops_on_a_signal(number: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "momopay.sandbox", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOM.parents[1])},
    )
    assert program.stdout is not None
    line = program.stdout.readline()
    url = line.split()[1]
    assert httpx.get(f"{url}/transactions", trust_env=False).status_code == 401
    program.send_signal(number)
    _, errors = program.communicate(timeout=10)
    assert (program.returncode, errors) == (0, "")


def test_a_defect_is_an_envelope_too(service: Service, sandbox: Sandbox) -> None:
    engine: Engine = vars(sandbox)["_engine"]
    vars(engine)["catch_up"] = None
    response = httpx.get(f"{sandbox.url}/sandbox/state", trust_env=False)
    del vars(engine)["catch_up"]
    assert refusal(response) == (500, "INTERNAL_ERROR")


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; import momopay.sandbox"
    program = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOM.parents[1])},
        check=False,
    )
    assert program.stderr.rstrip().endswith("pip install 'momopay[sandbox]'")


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Sandbox() as sandbox:
        port = sandbox.url.rpartition(":")[2]
        assert main(["--port", port]) == 1
    assert f"(127.0.0.1:{port})" in capsys.readouterr().err
