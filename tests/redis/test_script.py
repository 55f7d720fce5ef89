"""The script on a real server: RateBudget's arithmetic, and what it keeps in Redis."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from momopay import Lane, RateBudget
from momopay.redis.script import arguments, script_text
from redis_server import RedisServer, connect

TICK = 1 / 64
"""Seconds; a whole number of microseconds and of binary digits, so that both arithmetics are exact."""


class Script:
    """The script, by a clock of the test's own."""

    def __init__(self, server: RedisServer, requests: int, window: float) -> None:
        self.redis = connect(server.url, decode_responses=True)
        self.key = uuid4().hex
        self._script = self.redis.register_script(script_text("local now = tonumber(ARGV[8])\n"))
        self._size = requests, window

    def run(
        self,
        now: float,
        operation: str,
        span: float = 0.0,
        lane: Lane = Lane.READ,
        *,
        earliest: float = 0.0,
        member: str = "a",
    ) -> list[float]:
        """Return delay, what is left of a stop, free slots and members."""
        asked = arguments(member, *self._size, operation, lane, earliest, span)
        delay, stop, free, members, _born = self._script([self.key], [*asked, str(round(now * 1e6))])
        return [delay / 1e6, stop / 1e6, free, members]

    def reserve(self, now: float, lane: Lane = Lane.PAYMENT, within: float = math.inf) -> float:
        return self.run(now, "reserve", within, lane)[0]

    def close(self) -> None:
        self.redis.delete(self.key)
        self.redis.close()


@pytest.fixture
def script(server: RedisServer) -> Iterator[Callable[[int, float], Script]]:
    made: list[Script] = []

    def make(requests: int, window: float) -> Script:
        made.append(Script(server, requests, window))
        return made[-1]

    yield make
    for each in made:
        each.close()


@given(seed=st.integers(0, 2**32), requests=st.integers(1, 60), pace=st.integers(64, 9 * 64))
@example(seed=0, requests=58, pace=560)
@settings(max_examples=60)
def test_the_script_hands_out_the_slots_that_the_local_budget_would(
    server: RedisServer, seed: int, requests: int, pace: int
) -> None:
    chance = random.Random(seed)
    window = max(1, requests // 8) * pace * TICK  # the pace of polling is whole ticks
    local, script, now = RateBudget(requests, window), Script(server, requests, window), 1000.0

    def span(longest: float) -> float:
        return chance.randrange(1 + int(longest / TICK)) * TICK

    lanes = chance.choices(list(Lane), [chance.random() for _ in Lane], k=100)
    try:
        for lane in lanes:
            now += chance.choice([0.0, 0.0, 0.0, TICK, span(window / 8), span(2 * window / requests)])
            if chance.random() < 0.04:
                until = now + span(window)
                local.stop(now, until)
                script.run(now, "stop", until - now)
            within = chance.choice([math.inf, math.inf, 0.0, span(2 * window)])
            assert script.reserve(now, lane, within) == local.reserve(now, lane, within)
    finally:
        script.close()


def test_times_of_a_real_clock_keep_every_digit(script: Callable[..., Script]) -> None:
    one, now = script(1, 60.0), 1_790_000_000.123457
    assert one.reserve(now) == 0.0
    assert [one.reserve(now + later, within=0.0) for later in (0.000001, 59.999999, 60.0)] == [59.999999, 0.000001, 0.0]


def test_no_slot_comes_sooner_than_the_caller_can_use_it(script: Callable[..., Script]) -> None:
    one = script(2, 60.0)
    assert one.run(1000.0, "reserve", 60.0, earliest=5.0)[0] == 5.0
    assert one.run(1000.0, "reserve", 4.0, earliest=5.0)[0] == 5.0  # later than of use: not taken
    assert one.reserve(1000.0) == 0.0


def test_it_counts_what_is_free_and_a_queue_leaves_nothing(script: Callable[..., Script]) -> None:
    one = script(3, 60.0)
    assert [one.run(1000.0, "reserve", 60.0)[2] for _ in range(5)] == [2, 1, 0, 0, 0]
    assert one.run(1000.0, "stop", 70.0)[2] == 0
    assert one.run(1060.0, "stopped")[2] == 3  # the stop revoked the queue


def test_it_counts_the_members_of_the_last_two_windows(script: Callable[..., Script]) -> None:
    one = script(9, 10.0)
    seen = [
        one.run(1000.0 + now, "reserve", member=member)[3] for now, member in ((0, "a"), (1, "b"), (2, "b"), (19, "c"))
    ]
    assert seen == [1, 2, 2, 3]
    assert [one.run(1000.0 + now, "reserve", member="c")[3] for now in (20, 21, 22)] == [2, 2, 1]
    assert "a" not in one.redis.hget(one.key, "members")


def test_to_ask_whether_a_stop_is_in_force_takes_no_slot(script: Callable[..., Script]) -> None:
    one = script(9, 10.0)
    assert one.run(1000.0, "stopped") == [0.0, 0.0, 9, 1]
    one.run(1000.0, "stop", 5.0)
    assert one.run(1002.0, "stopped", member="b") == [0.0, 3.0, 9, 2]


def test_a_log_keeps_the_time_at_which_it_began(script: Callable[..., Script]) -> None:
    one = script(9, 10.0)
    one.run(1000.0, "stopped")
    one.reserve(1005.0)
    assert one.redis.hget(one.key, "born") == "1000000000"


def test_everything_expires_two_windows_after_its_last_slot(script: Callable[..., Script]) -> None:
    one = script(1, 10.0)
    for _ in range(3):
        one.reserve(1000.0)
    assert 39_000 < one.redis.pttl(one.key) <= 40_000
    one.run(1000.0, "stop", 100.0)
    assert 119_000 < one.redis.pttl(one.key) <= 120_000


def test_endless_spans_stay_exact() -> None:
    assert arguments("m", 58, 61.0, "reserve", Lane.POLL, 0.0, math.inf) == [
        "reserve", "m", "58", "61000000", "L", "0", "4503599627370496",
    ]  # fmt: skip
