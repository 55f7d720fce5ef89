"""An exception out of a signal handler, at whatever instruction it strikes, leaves the journal as usable as before."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safety.kit import TESTS

STRIKES = 1500


HANG = 8.0
"""Seconds that no call of a healthy journal takes, on a busy machine either."""


def run(work: str, url: str, strikes: int, seed: int, hang: float = HANG) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "safety.struck", work, url, str(seed), str(strikes), str(hang)]
    return subprocess.run(arguments, cwd=TESTS, capture_output=True, text=True, check=False, timeout=120)


def seed() -> int:
    found = random.SystemRandom().randrange(1_000_000)
    sys.stdout.write(f"seed {found}\n")
    return found


def result_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-6000:]
    result = json.loads(done.stdout)
    sys.stdout.write(f"{result}\n")
    return result


def test_reads_go_on_after_any_number_of_strikes(tmp_path: Path) -> None:
    """A tight loop of `journal.get`: no lock stays held, no connection is lost, no call has lost its bound."""
    result = result_of(run("read", f"sqlite:///{tmp_path / 'journal.db'}", STRIKES, seed()))
    assert result["strikes"] == STRIKES


def test_payments_go_on_after_any_number_of_strikes(tmp_path: Path) -> None:
    """A tight loop of `pay_once`: nothing is paid twice, and what was struck is found or stays unresolved."""
    result = result_of(run("pay", f"sqlite:///{tmp_path / 'journal.db'}", STRIKES, seed()))
    assert result["strikes"] == STRIKES
    assert result["twice"] == []
    assert result["paid"] > STRIKES / 10


@pytest.mark.whole
@pytest.mark.parametrize("work", ["read", "pay"])
def test_ten_times_as_many_strikes(tmp_path: Path, work: str) -> None:
    result = result_of(run(work, f"sqlite:///{tmp_path / 'journal.db'}", 10 * STRIKES, seed()))
    assert (result["strikes"], result["twice"]) == (10 * STRIKES, [])


def test_the_strikes_break_code_that_forgets_about_signals(tmp_path: Path) -> None:
    """The control: a lock that is acquired and released by plain statements is lost, and the hang is noticed."""
    done = run("control", f"sqlite:///{tmp_path / 'journal.db'}", 10 * STRIKES, seed(), hang=2.0)
    assert done.returncode != 0
    assert "hold_naively" in done.stderr or "struck.py" in done.stderr
