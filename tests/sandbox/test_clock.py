"""Virtual time."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from momopay.sandbox import Sandbox
from momopay.sandbox._clock import Clock, iso

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Wall:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_it_runs_while_a_test_stops_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as frozen:
        frozen.setattr("time.monotonic", lambda: 1e9)  # as freezegun does
        sandbox = Sandbox().start()
        begun = sandbox.now
        assert httpx.get(f"{sandbox.base_url}/transactions", auth=("pk_test_a", "")).is_success
    sandbox.close()  # whose timers were set while the time stood still
    assert sandbox.now - begun < timedelta(minutes=1)


def test_time_runs_at_its_speed() -> None:
    wall = Wall()
    clock = Clock(START, speed=10, wall=wall)
    wall.seconds += 1.5
    assert clock.now() == START + timedelta(seconds=15)
    assert clock.wall_seconds_until(START + timedelta(seconds=45)) == 3.0
    assert clock.wall_seconds_until(START) == 0.0


def test_a_held_clock_is_only_moved_forwards() -> None:
    wall = Wall()
    clock = Clock(START, speed=1, wall=wall)
    assert clock.hold() == START
    wall.seconds += 60
    clock.move(START + timedelta(seconds=7))
    clock.move(START + timedelta(seconds=3))
    assert clock.held
    assert clock.now() == START + timedelta(seconds=7)
    assert clock.wall_seconds_until(START + timedelta(days=1)) is None
    clock.release()
    wall.seconds += 1
    assert clock.now() == START + timedelta(seconds=8)


def test_at_speed_0_time_stops_and_nothing_is_ever_due_by_itself() -> None:
    wall = Wall()
    clock = Clock(START, speed=0, wall=wall)
    wall.seconds += 1000
    assert clock.now() == START
    assert clock.wall_seconds_until(START + timedelta(seconds=1)) is None


def test_a_restart_goes_back_but_leaves_a_held_clock_alone() -> None:
    clock = Clock(START, speed=0, wall=Wall())
    earlier = START - timedelta(days=1)
    clock.restart(earlier)
    assert clock.now() == earlier
    clock.hold()
    clock.restart(START)
    assert clock.now() == earlier


@pytest.mark.parametrize("speed", [-1, 1_000_001, float("inf"), float("nan")])
def test_an_impossible_speed_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        Clock(START, speed=speed, wall=Wall())


@given(st.floats(0, 1e6), st.floats(0, 1000))
def test_an_instant_survives_its_text(seconds: float, speed: float) -> None:
    wall = Wall()
    clock = Clock(START, speed=speed, wall=wall)
    wall.seconds += seconds
    now = clock.now()
    assert datetime.fromisoformat(iso(now)) == now
    assert iso(now).endswith("Z")
