"""An exception out of a signal handler, at whatever instruction it strikes, leaves the journal as usable as before."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from journal.kit import TESTS

STRIKES = 100
HANG = 8.0
"""Seconds that no call of a healthy journal takes, on a busy machine either."""


def run(work: str, folder: Path, strikes: int, seed: int, hang: float = HANG) -> subprocess.CompletedProcess[str]:
    url = f"sqlite:///{folder / 'journal.db'}"
    arguments = [sys.executable, "-m", "safety.struck", work, url, str(seed), str(strikes), str(hang)]
    return subprocess.run(arguments, cwd=TESTS, capture_output=True, text=True, check=False, timeout=120)


def seed() -> int:
    found = random.SystemRandom().randrange(1_000_000)
    sys.stdout.write(f"seed {found}\n")
    return found


@pytest.mark.parametrize("strikes", [STRIKES, pytest.param(60 * STRIKES, marks=pytest.mark.whole)])
def test_calls_go_on_after_any_number_of_strikes(tmp_path: Path, strikes: int) -> None:
    """A tight loop of `journal.get` and `pay_once`: no lock stays held, no connection is lost, all calls end.

    Nothing is paid twice, and what was struck is found or stays unresolved.
    """
    done = run("calls", tmp_path, strikes, seed())
    assert done.returncode == 0, done.stderr[-6000:]
    result = json.loads(done.stdout)
    sys.stdout.write(f"{result}\n")
    assert (result["strikes"], result["twice"]) == (strikes, [])
    assert result["paid"] > STRIKES / 10


def test_the_strikes_break_code_that_forgets_about_signals(tmp_path: Path) -> None:
    """The control: a lock that is acquired and released by plain statements is lost, and the hang is noticed."""
    done = run("control", tmp_path, 150 * STRIKES, seed(), hang=1.0)
    assert done.returncode != 0
    assert "hold_naively" in done.stderr or "struck.py" in done.stderr
