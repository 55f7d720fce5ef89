"""An exception out of a signal handler, at whatever instruction it strikes, leaves the journal as usable as before."""

import json
import random
import sys
from pathlib import Path

import pytest

from forked import in_a_fresh_process
from postgresql import PostgresqlServer
from safety.struck import strike

STRIKES = 100
HANG = 8.0
"""Seconds that no call of a healthy journal takes, on a busy machine either."""


def run(work: str, folder: Path, strikes: int, hang: float = HANG, url: str = "") -> tuple[int | None, str]:
    """Strike so often in another process; return its exit status, and where its threads stood if a call hung."""
    seed = random.SystemRandom().randrange(1_000_000)
    sys.stdout.write(f"seed {seed}\n")
    process = in_a_fresh_process(strike, work, folder, seed, strikes, hang, url)
    process.join(120)
    code = process.exitcode
    process.kill()
    return code, (folder / "stuck").read_text()


@pytest.mark.parametrize("strikes", [STRIKES, pytest.param(10 * STRIKES, marks=pytest.mark.whole)])
def test_calls_go_on_after_any_number_of_strikes(tmp_path: Path, strikes: int) -> None:
    """A tight loop of `journal.get` and `pay_once`: no lock stays held, no connection is lost, all calls end.

    Nothing is paid twice, and what was struck is found or stays unresolved. The journal is in memory, where there is
    room: of the strikes at a call that waits for a disk, nearly all meet the same instruction.
    """
    assert run("calls", tmp_path, strikes) == (0, "")
    result = json.loads((tmp_path / "result.json").read_text())
    sys.stdout.write(f"{result}\n")
    assert (result["strikes"], result["twice"]) == (strikes, [])
    assert result["paid"] > STRIKES / 10


@pytest.mark.whole
@pytest.mark.parametrize("strikes", [3 * STRIKES])
def test_calls_over_postgresql_go_on_after_any_number_of_strikes(
    tmp_path: Path, postgresql: PostgresqlServer, strikes: int
) -> None:
    """There a strike may come while several statements are on their way at once."""
    assert run("calls", tmp_path, strikes, url=postgresql.new_database()) == (0, "")
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["strikes"], result["twice"]) == (strikes, [])
    assert result["paid"] > STRIKES / 10


@pytest.mark.whole
def test_the_strikes_break_code_that_forgets_about_signals(tmp_path: Path) -> None:
    """The control: a lock that is acquired and released by plain statements is lost, and the hang is noticed."""
    code, stuck = run("control", tmp_path, 150 * STRIKES, hang=HANG / 2)
    assert code != 0
    assert "hold_naively" in stuck or "struck.py" in stuck
