"""The clock that nobody sets, and which processes share it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from unittest.mock import patch

import pytest

from momopay._transport import clock

PRINT = "from momopay._transport.clock import machine, now; print(machine(), now(), sep='|')"


@pytest.fixture(autouse=True)
def _ask_again() -> Generator[None]:
    clock.machine.cache_clear()
    yield
    clock.machine.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process counts by itself")
def test_the_processes_of_one_machine_share_their_clock() -> None:
    before = clock.now()
    machine, now = subprocess.check_output([sys.executable, "-c", PRINT], text=True).strip().split("|")
    assert machine == clock.machine() != ""
    assert before < float(now) < clock.now()


def test_where_the_clock_cannot_be_compared_no_process_shares_it(tmp_path: Path) -> None:
    """Another boot, a clock that a library changes, a container with an uptime of its own, or no Linux."""
    boot, uptime = tmp_path / "boot", tmp_path / "uptime"
    machines = {clock.machine()}
    for boot_id, seconds in (
        ("b", clock.now()),
        ("a", clock.now()),
        ("a", clock.now() - 600),
        ("a", None),
        ("a", None),
    ):
        clock.machine.cache_clear()
        boot.write_text(boot_id)
        uptime.write_text("" if seconds is None else f"{seconds:.2f} {time.monotonic():.2f}")
        with patch.object(clock, "_BOOT_ID", boot), patch.object(clock, "_UPTIME", uptime):
            machines.add(clock.machine())
    assert len(machines) == 6
