"""The clock that nobody sets, and which processes share it."""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.skipif(sys.platform != "linux", reason="on Windows and macOS each process counts by itself")
def test_the_processes_of_one_machine_share_their_clock() -> None:
    before = clock.now()
    machine, now = subprocess.check_output([sys.executable, "-c", PRINT], text=True).strip().split("|")
    assert machine == clock.machine() != ""
    assert before < float(now) < clock.now()


def test_where_the_clock_cannot_be_compared_no_process_shares_it(tmp_path: Path) -> None:
    """After another boot, with a clock that a library changes, or in a container with an uptime of its own."""
    boot, uptime, now = tmp_path / "sys/kernel/random/boot_id", tmp_path / "uptime", clock.now()
    machines = {clock.machine()}
    boot.parent.mkdir(parents=True)
    for boot_id, seconds in (("b", now), ("a", now), ("a", now - 600), ("a", now)):
        clock.machine.cache_clear()
        boot.write_text(boot_id)
        uptime.write_text(f"{seconds:.2f} 1.00")
        with patch.object(clock, "_PROC", tmp_path):
            machines.add(clock.machine())
    assert len(machines) == 4
