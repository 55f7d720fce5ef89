"""The programs of the pages about functions and shared hosts, served by gunicorn as they are printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import httpx
import pytest

from docs.blocks import ROOT, blocks_in
from momopay.sandbox import Sandbox
from patience import LONGEST, until
from postgresql import PostgresqlServer
from sandbox.kit import posts

pytestmark = pytest.mark.whole

SECRET = {"MOMOPAY_CALLBACK_SECRET": "a secret of more than 16 bytes", "SWEEP_SECRET": "the scheduler's own"}
PAID = "INV-1 SUCCESS"


def programs(page: str, folder: Path) -> None:
    """Write the programs of a page into a folder, under the names in their first lines."""
    for block in blocks_in(ROOT / f"docs/operate/deploying/{page}.md"):
        if block.noted("recipe:"):
            name = block.text.partition("\n")[0].removeprefix("# ")
            (folder / name).write_text(block.text)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(speed=0) as sandbox:
        yield sandbox


@contextmanager
def served(app: str, folder: Path, environment: dict[str, str], workers: int) -> Generator[tuple[str, int, Path]]:
    """Serve an app with gunicorn; give its address, its process group, and the file of what it prints."""
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}", folder / "log"
    command = [sys.executable, "-m", "gunicorn", app, f"--bind=127.0.0.1:{port}", f"--workers={workers}"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--no-control-socket"] if has_control_socket() else command,
            cwd=folder,
            env=environment | {"SHOP_URL": address},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        until(lambda: "Booting worker" in log.read_text() and answers(address))
        yield address, process.pid, log
    except BaseException as error:
        error.add_note(log.read_text())
        raise
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        process.terminate()
        process.wait(LONGEST)


def has_control_socket() -> bool:
    """Return whether this gunicorn has an option for its control socket, which needs a folder of its own."""
    found = subprocess.run([sys.executable, "-m", "gunicorn", "--help"], capture_output=True, text=True, check=True)
    return "--no-control-socket" in found.stdout


def answers(address: str) -> bool:
    try:
        httpx.get(address)
    except httpx.TransportError:
        return False
    return True


def ordered(address: str) -> str:
    """Order, and return the state that the page of the checkout sees."""
    poll = httpx.post(f"{address}/orders/INV-1", timeout=LONGEST).raise_for_status().json()["poll"]
    state: str = httpx.get(address + poll).raise_for_status().json()["state"]
    return state


def settings_of(sandbox: Sandbox) -> dict[str, str]:
    return {"MOMOPAY_API_KEY": "pk_test_hosting", "MOMOPAY_BASE_URL": sandbox.base_url, **SECRET}


def test_a_function_that_is_frozen_between_requests(
    sandbox: Sandbox, postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    programs("serverless", tmp_path)
    environment = settings_of(sandbox) | {"DATABASE_URL": postgresql.new_database()}  # no HOME, no PATH
    with served("app:app", tmp_path, environment, workers=1) as (address, group, log):
        sandbox.fail_next("POST", "/payments/stk", "callback_lost")
        assert ordered(address) == "waiting"
        os.killpg(group, signal.SIGSTOP)
        sandbox.advance(1200)  # the customer pays
        os.killpg(group, signal.SIGCONT)
        assert PAID not in log.read_text()
        right = {"Authorization": f"Bearer {SECRET['SWEEP_SECRET']}"}
        assert httpx.post(f"{address}/sweep").status_code == 403
        os.killpg(group, signal.SIGSTOP)
        os.killpg(group, signal.SIGCONT)
        swept = httpx.post(f"{address}/sweep", headers=right, timeout=LONGEST)
        assert (swept.status_code, swept.json()["handled"]) == (200, 1)
        assert ordered(address) == "paid"
        assert log.read_text().count(PAID) == 1
    assert posts(sandbox, "/payments/stk") == 1


def test_passengers_entry_file_and_cron(sandbox: Sandbox, tmp_path: Path) -> None:
    programs("shared-hosts", tmp_path)
    environment = settings_of(sandbox) | {"HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    with served("passenger_wsgi:application", tmp_path, environment, workers=2) as (address, _, log):
        assert {ordered(address) for _ in range(4)} == {"waiting"}
        sandbox.advance(60)
        until(lambda: PAID in log.read_text())
        assert ordered(address) == "paid"
        sweep = [sys.executable, "sweep.py"]
        done = subprocess.run(
            sweep, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=LONGEST
        )
        assert done.stdout + done.stderr == ""  # cron would mail it
    data = tmp_path / "home" / "momopay"
    assert data.stat().st_mode & 0o077 == 0
    assert {"payments.db", "momopay.budget"} <= {each.name for each in data.iterdir()}
    assert posts(sandbox, "/payments/stk") == 1
