"""The script on a real server: RateBudget's arithmetic, and what it keeps in Redis."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from momopay import Lane, RateBudget
from momopay._ratelimit.budget import LocalSlots
from momopay._ratelimit.lane import ALONE, Place
from momopay.redis.script import Reply, arguments, parsed, script_text
from redis_server import RedisServer, connect

TICK = 1 / 64
"""Seconds; a whole number of microseconds and of binary digits, so that both arithmetics are exact."""


class Script:
    """The script, by a clock of the test's own."""

    def __init__(self, server: RedisServer, requests: int, window: float) -> None:
        self.redis = connect(server.url, decode_responses=True)
        self.key = uuid4().hex
        self._script = self.redis.register_script(script_text("local now = tonumber(ARGV[11])\n"))
        self._size = requests, window

    def run(
        self,
        now: float,
        operation: str = "reserve",
        lane: Lane = Lane.READ,
        place: Place = ALONE,
        *,
        span: float = 0.0,
        member: str = "a",
    ) -> Reply:
        asked = arguments(member, *self._size, operation, lane, place, span)
        return parsed(self._script([self.key], [*asked, str(round(now * 1e6))]))

    def reserve(self, now: float, lane: Lane = Lane.PAYMENT, place: Place = ALONE) -> float:
        return self.run(now, "reserve", lane, place).delay

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
            now += chance.choice([0.0, 0.0, 0.0, TICK, span(window / 8), span(2 * window / requests), span(3 * window)])
            if chance.random() < 0.04:
                until = now + span(window)
                local.stop(now, until)
                script.run(now, "stop", span=until - now)
            crowd = Place(True, chance.randrange(2 * requests) * (lane is not Lane.PAYMENT), chance.randrange(requests))
            place = chance.choice([ALONE, ALONE, Place(queued=True), crowd])
            assert script.reserve(now, lane, place) == LocalSlots(local).reserve_now(now, lane, place)
    finally:
        script.close()


def test_times_of_a_real_clock_keep_every_digit(script: Callable[..., Script]) -> None:
    one, now = script(1, 60.0), 1_790_000_000.123457
    assert one.reserve(now) == 0.0
    assert [one.reserve(now + later) for later in (0.000001, 59.999999, 60.0)] == [59.999999, 0.000001, 0.0]


def test_a_clock_that_was_set_back_gives_nothing_away_and_blocks_nothing_for_long(
    script: Callable[..., Script],
) -> None:
    one = script(2, 60.0)
    assert [one.reserve(now) for now in (10_000.0, 10_010.0)] == [0.0, 0.0]
    one.run(10_010.0, "stop", span=5.0)
    assert one.reserve(1000.0) == 50.0
    assert [one.reserve(now) for now in (1050.0, 1051.0)] == [0.0, 9.0]


def test_payments_that_wait_in_other_processes_go_before_reads_and_polls(script: Callable[..., Script]) -> None:
    one = script(4, 60.0)
    assert [one.reserve(1000.0) for _ in range(4)] == [0.0] * 4
    assert one.run(1001.0, "reserve", Lane.PAYMENT, Place(True, 0, 1, payments=2), member="b").delay == 59.0
    assert one.run(1002.0, "reserve", Lane.READ, member="a").delay == 58.0  # a quarter is left, too
    assert one.run(1002.0, "reserve", Lane.POLL, Place(True, 1), member="a").delay == 118.0
    assert one.run(1060.0, "reserve", Lane.READ, Place(queued=True), member="a").delay == 0.0
    assert one.run(1060.0, "reserve", Lane.READ, Place(queued=True), member="a").delay == 60.0
    taken = [one.run(1060.0, "reserve", Lane.PAYMENT, Place(True, 0, 0, left), member="b").delay for left in (2, 1)]
    assert taken == [0.0] * 2


def test_a_process_that_died_holds_nobody_back_for_long(script: Callable[..., Script]) -> None:
    one = script(1, 60.0)
    one.reserve(1000.0)
    assert one.run(1001.0, "reserve", Lane.PAYMENT, Place(True, payments=1), member="b").delay == 59.0
    assert one.run(1060.9, "reserve", Lane.READ, Place(queued=True), member="a").delay == 60.0
    assert one.run(1061.0, "reserve", Lane.READ, Place(queued=True), member="a").delay == 0.0


def test_payments_that_gave_up_hold_nobody_back_once_their_process_asks_again(script: Callable[..., Script]) -> None:
    one = script(1, 60.0)
    one.reserve(1000.0)
    one.run(1001.0, "reserve", Lane.PAYMENT, Place(True, payments=1), member="b")
    assert one.run(1002.0, "reserve", Lane.READ, ALONE, member="b").delay == 58.0
    assert one.run(1060.0, "reserve", Lane.READ, Place(queued=True), member="a").delay == 0.0


def test_it_returns_the_log_and_the_number_of_each_member(script: Callable[..., Script]) -> None:
    one = script(3, 10.0)
    replies = [one.run(1000.0 + now, member=member) for now, member in ((0, "b"), (1, "a"), (2, "c"))]
    assert [(each.taken, each.number, each.members) for each in replies] == [(1, 0, 1), (2, 0, 2), (3, 2, 3)]
    assert replies[-1].ages() == [2.0, 1.0, 0.0]
    last = one.run(1011.0, member="b")
    assert (last.taken, last.number, last.ages()) == (4, 1, [9.0, 0.0])


def test_it_counts_the_members_of_the_last_two_windows(script: Callable[..., Script]) -> None:
    one = script(9, 10.0)
    asked = ((0, "a"), (1, "b"), (2, "b"), (19, "c"), (20, "c"), (21, "c"), (22, "c"))
    assert [one.run(1000.0 + now, member=member).members for now, member in asked] == [1, 2, 2, 3, 2, 2, 1]


def test_a_stop_takes_no_slot_and_is_told_to_everybody(script: Callable[..., Script]) -> None:
    one = script(9, 10.0)
    assert one.run(1000.0, "stop", span=5.0).stop == 5.0
    reply = one.run(1002.0, member="b")
    assert (reply.delay, reply.stop, reply.taken) == (3.0, 3.0, 0)
    one.run(1002.0, "stop", span=1.0)  # a shorter one ends no longer one
    assert one.reserve(1002.0) == 3.0


def test_a_process_with_a_shorter_window_forgets_nothing_that_others_count(script: Callable[..., Script]) -> None:
    one = script(2, 60.0)
    assert [one.reserve(1000.0) for _ in range(2)] == [0.0, 0.0]
    one._size = 9, 10.0
    assert one.reserve(1011.0) == 0.0
    one._size = 2, 60.0
    assert one.reserve(1012.0) == 48.0


def test_everything_expires_two_windows_after_it_was_last_asked(script: Callable[..., Script]) -> None:
    one = script(1, 10.0)
    one.reserve(1000.0)
    assert 19_000 < one.redis.pttl(one.key) <= 20_000
    one.run(1000.0, "stop", span=100.0)
    assert 119_000 < one.redis.pttl(one.key) <= 120_000


def test_the_arguments_are_whole_numbers() -> None:
    assert arguments("m", 58, 61.0, "stop", Lane.POLL, Place(True, 1, 2, 3), 0.5) == [
        "stop", "m", "58", "61000000", "L", "1", "1", "2", "3", "500000",
    ]  # fmt: skip
