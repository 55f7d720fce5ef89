"""The arithmetic: no window is overrun, a burst goes out at once, and each lane gets its share."""

import math
import random
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from momopay._ratelimit.slot_log import Lane, Place, SlotLog
from ratelimit.kit import most_in_a_window


def ahead(log: SlotLog, now: float, lane: Lane, count: int = 1) -> list[float]:
    """Take so many slots, those ahead of time included, and return their delays."""
    return [log.reserve(now, lane, math.inf) for _ in range(count)]


@pytest.mark.parametrize("lane", list(Lane))
def test_one_lane_alone_has_the_whole_of_every_window(lane: Lane) -> None:
    delays = ahead(SlotLog(58, 61.0), 0.0, lane, 232)
    assert [delays.count(61.0 * number) for number in range(4)] == [58] * 4


def test_slots_come_back_one_by_one_as_they_were_taken() -> None:
    log = SlotLog(2, 10.0)
    assert [ahead(log, now, Lane.PAYMENT) for now in (0.0, 4.0)] == [[0.0], [0.0]]
    assert ahead(log, 5.0, Lane.PAYMENT, 2) == [5.0, 9.0]


@given(
    seed=st.integers(0, 2**32),
    requests=st.integers(1, 60),
    lanes=st.lists(st.sampled_from([*Lane, None]), min_size=1, max_size=150),
)
def test_no_window_is_ever_overrun(seed: int, requests: int, lanes: list[Lane | None]) -> None:
    chance = random.Random(seed)
    log = SlotLog(requests, 61.0)
    now, sent = 0.0, list[float]()
    for lane in lanes:
        now += chance.choice([0.0, 0.0, chance.random(), chance.random() * 90])
        if lane is None:
            until = now + chance.random() * 100
            log.stop(now, until)
            sent = [time for time in sent if not now < time < until]
            continue
        within = chance.choice([math.inf, 30.0, 0.0])
        delay = log.reserve(now, lane, within)
        assert delay >= 0
        if delay <= within:
            sent.append(now + delay)
    # Half a second of jitter stays inside the second that the budget's window is longer than the service's.
    arrivals = [time + chance.random() * 0.5 for time in sent]
    assert most_in_a_window(arrivals, 60.0) <= requests


@given(st.lists(st.integers(0, 40), max_size=14), st.integers(1, 3))
def test_a_slot_fits_where_no_window_gets_more_than_it_may_have(times: list[int], requests: int) -> None:
    log = SlotLog(requests, 10.0)
    for time in times:
        after = sorted([*log.slots, float(time)])
        fits = log._fits(time, requests)
        assert fits is all(later - earlier >= 10 for earlier, later in zip(after, after[requests:], strict=False))
        log.slots = after if fits else log.slots


def test_the_overrun_check_can_fail() -> None:
    assert most_in_a_window([0.0, 59.9], 60.0) == 2
    assert most_in_a_window([0.0, 60.0], 60.0) == 1


def test_a_slot_later_than_of_use_is_not_taken_and_an_earlier_reading_of_the_clock_moves_nothing_back() -> None:
    log = SlotLog(1, 60.0)
    assert log.reserve(5.0, Lane.READ, 0.0) == 0.0
    assert log.reserve(4.999, Lane.READ, 0.0) == 60.0  # of another thread
    assert [log.reserve(6.0, Lane.READ, within) for within in (10.0, math.inf)] == [59.0, 59.0]


# Lanes.


def test_while_somebody_pays_or_reads_polling_leaves_them_a_quarter_of_the_window() -> None:
    for other in (Lane.PAYMENT, Lane.READ):
        log = SlotLog(40, 60.0)
        assert ahead(log, 0.0, other) == [0.0]
        assert ahead(log, 0.0, Lane.POLL, 30) == [0.0] * 29 + [60.0]
        assert [log.reserve(0.0, other, 0.0) for _ in range(10)] == [0.0] * 10
        assert log.reserve(0.0, other, 0.0) > 0


def test_a_quarter_is_left_to_nobody_two_windows_later() -> None:
    for lane in (Lane.PAYMENT, Lane.READ):
        for now, at_once in ((119.9, 30), (120.0, 40)):
            log = SlotLog(40, 60.0)
            ahead(log, 0.0, lane)
            assert ahead(log, now, Lane.POLL, 40).count(0.0) == at_once


def test_a_payment_that_waits_for_its_slot_is_left_a_quarter_too() -> None:
    log = full(40, lane=Lane.POLL)
    assert log.expect(30.0, Lane.PAYMENT) == 30.0
    assert ahead(log, 60.0, Lane.POLL, 40).count(0.0) == 30


def test_reads_that_queue_leave_a_quarter_to_payments_while_somebody_pays() -> None:
    log = SlotLog(20, 60.0)
    assert ahead(log, 0.0, Lane.PAYMENT) == [0.0]
    reads = ahead(log, 0.0, Lane.READ, 55)
    assert [reads.count(delay) for delay in (0.0, 60.0, 120.0)] == [19, 15, 15]
    alone = ahead(SlotLog(20, 60.0), 0.0, Lane.READ, 55)
    assert [alone.count(delay) for delay in (0.0, 60.0, 120.0)] == [20, 20, 15]


def test_while_somebody_polls_payments_leave_what_polling_has_not_used_of_its_eighth() -> None:
    log = SlotLog(16, 60.0)
    assert ahead(log, 0.0, Lane.POLL) == [0.0]
    assert ahead(log, 0.0, Lane.PAYMENT, 15) == [0.0] * 14 + [60.0]
    assert ahead(log, 1.0, Lane.POLL) == [29.0]  # evenly over the window
    for now, at_once in ((119.9, 14), (120.0, 16)):
        earlier = SlotLog(16, 60.0)
        ahead(earlier, 0.0, Lane.POLL)
        assert ahead(earlier, now, Lane.PAYMENT, 16).count(0.0) == at_once
    fast = SlotLog(16, 60.0)
    assert ahead(fast, 0.0, Lane.PAYMENT, 40) == [0.0] * 16 + [60.0] * 16 + [120.0] * 8  # nobody polls


def delays_of_polling(log: SlotLog, payers: int) -> tuple[list[float], int]:
    """Return the delays of polls beside payers who pay without a pause for twenty minutes, and count the payments."""
    calls = [(0.0, "payment")] * payers + [(15.0, "poll")]
    delays, payments = list[float](), 0
    while calls[0][0] < 1200.0:
        now, lane = heappop(calls)
        delay = log.reserve(now, Lane(lane), math.inf)
        if lane == "poll":
            delays.append(delay)
        else:
            payments += now + delay < 1200.0
        heappush(calls, (now + delay + (10.0 if lane == "poll" else 0.001), lane))
    return delays, payments


@pytest.mark.parametrize("payers", [1, 3, 40, 300])
def test_endless_payments_leave_polling_its_pace_and_take_the_rest(payers: int) -> None:
    delays, payments = delays_of_polling(SlotLog(58, 61.0), payers)
    assert max(delays[1:]) <= 61.0 / 7
    assert payments >= 20 * 50


def test_without_its_floor_polling_would_starve() -> None:
    log = SlotLog(58, 61.0)
    log._floor = 0
    delays, _ = delays_of_polling(log, 300)
    assert max(delays[1:]) > 200.0


# Places in the line.


def full(requests: int, window: float = 60.0, lane: Lane = Lane.PAYMENT) -> SlotLog:
    log = SlotLog(requests, window)
    ahead(log, 0.0, lane, requests)
    return log


def test_what_others_sent_leaves_the_window_when_it_ends_for_the_service() -> None:
    log = SlotLog(4, 60.0)
    assert log.reserve(0.0, Lane.PAYMENT, 0.0) == 0.0
    log.leave(10.0, 1, 20.0)
    assert [log.reserve(10.0, Lane.PAYMENT, 0.0) for _ in range(2)] == [0.0, 20.0]
    log.leave(10.0, 3, 20.0)  # less than is known
    assert log.slots == sorted(log.slots) == [-30.0, -30.0, 0.0, 10.0]
    assert log.reserve(10.0, Lane.PAYMENT, 20.0) == 20.0
    known = list(log.slots)
    log.leave(200.0, 0, 0.0)  # a window that has ended
    assert log.slots == known
    log.leave(200.0, 3, 0.5)
    assert [log.reserve(200.0, Lane.PAYMENT, 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    log.leave(300.0, 0, 1e9)
    assert log.reserve(300.0, Lane.PAYMENT, 0.0) == 60.0


def test_a_call_expects_the_slot_that_those_before_it_leave() -> None:
    log = full(4)
    expected = [log.expect(1.0, Lane.PAYMENT, Place(queued=True, same=number)) for number in range(10)]
    assert expected == [59.0] * 4 + [119.0] * 4 + [179.0] * 2
    assert [log.expect(60.0, Lane.READ, Place(queued=True, before=before)) for before in (2, 3)] == [0.0, 60.0]


def test_those_before_a_call_keep_their_slots_even_if_they_are_free() -> None:
    log = SlotLog(4, 60.0)
    assert log.expect(0.0, Lane.READ, Place(queued=True, before=3)) == 0.0
    assert log.reserve(0.0, Lane.READ, 0.0, Place(queued=True, before=4)) == 60.0


def test_a_poll_of_the_floor_goes_before_payments_and_reads_that_wait() -> None:
    log = full(16)
    crowd = Place(queued=True, before=100)
    assert log.expect(10.0, Lane.POLL, crowd) == 50.0
    assert log.expect(10.0, Lane.POLL, crowd._replace(same=1)) == 80.0
    assert full(8).expect(10.0, Lane.POLL, crowd._replace(same=1)) == 110.0  # a floor of one request
    assert log.expect(60.0, Lane.POLL, crowd) == 0.0
    log.reserve(60.0, Lane.POLL, 0.0)
    assert log.expect(60.0, Lane.POLL, crowd) == 30.0
    assert [log.reserve(60.0, Lane.PAYMENT, 0.0) for _ in range(15)] == [0.0] * 14 + [60.0]
    assert [log.expect(now, Lane.POLL, crowd) for now in (90.0, 100.0)] == [0.0, 0.0]
    log.reserve(100.0, Lane.POLL, 0.0, crowd)
    assert log.expect(100.0, Lane.POLL, crowd) == 30.0


def test_a_poll_of_the_floor_comes_when_the_floor_and_the_window_have_room() -> None:
    log = SlotLog(16, 60.0)
    assert [ahead(log, now, Lane.PAYMENT, count)[-1] for now, count in ((0.0, 1), (5.0, 15))] == [0.0, 0.0]
    assert log.expect(10.0, Lane.POLL, Place(queued=True, before=100)) == 50.0
    log = SlotLog(16, 60.0)
    for lane, count in ((Lane.POLL, 2), (Lane.PAYMENT, 11)):
        ahead(log, 0.0, lane, count)
    assert log.expect(1.0, Lane.POLL) == 59.0  # the floor is of two requests


def test_a_read_that_has_waited_leaves_the_quarter_and_no_newer_one_overtakes_it() -> None:
    log = SlotLog(20, 60.0)
    ahead(log, 0.0, Lane.PAYMENT, 18)
    assert log.expect(0.0, Lane.READ, Place(queued=True)) == 60.0
    assert log.expect(0.0, Lane.READ, Place(queued=True, same=1)) == 60.0
    assert log.expect(0.0, Lane.READ) == 0.0  # nobody waits
    log = SlotLog(16, 60.0)
    for lane, count in ((Lane.POLL, 2), (Lane.PAYMENT, 14)):
        ahead(log, 0.0, lane, count)
    delays = [log.expect(0.0, Lane.READ, Place(queued=True, same=same)) for same in (9, 10)]
    assert delays == [60.0, 120.0]  # a window later, polling has its floor to use again
    log = SlotLog(16, 60.0)
    for lane, count, delay in ((Lane.POLL, 1, 0.0), (Lane.PAYMENT, 9, 0.0), (Lane.PAYMENT, 1, 60.0)):
        ahead(log, 0.0, lane, count)
        assert log.expect(0.0, Lane.READ, Place(queued=True)) == delay  # and what is left of the floor of polling


def test_a_lane_with_slots_ahead_stays_in_use_after_a_call_that_takes_none() -> None:
    log = SlotLog(8, 60.0)
    assert ahead(log, 0.0, Lane.PAYMENT, 30)[-1] == 180.0
    assert log.reserve(1.0, Lane.PAYMENT, 0.0) > 0
    assert log.expect(130.0, Lane.READ, Place(queued=True)) == 110.0  # the quarter of the window before is held back


# A 429.


def test_a_stop_holds_every_lane_back_and_revokes_the_slots_in_between() -> None:
    log = SlotLog(2, 10.0)
    assert ahead(log, 0.0, Lane.PAYMENT, 3) == [0.0, 0.0, 10.0]
    log.stop(1.0, until=30.0)
    assert ahead(log, 2.0, Lane.PAYMENT, 3) == [28.0, 28.0, 38.0]
    assert [log.expect(2.0, lane) for lane in Lane] == [38.0] * 3
    log.stop(2.0, until=10.0)  # a shorter one does not end it
    assert log.expect(2.0, Lane.POLL) == 38.0


def test_a_stop_revokes_no_slot_that_was_used() -> None:
    log = SlotLog(1, 10.0)
    ahead(log, 5.0, Lane.PAYMENT)
    log.stop(4.999, until=6.0)  # a thread that read the clock before the other
    assert ahead(log, 6.0, Lane.PAYMENT) == [9.0]


# Cost.


@pytest.mark.parametrize("lane", list(Lane))
def test_a_call_behind_a_thousand_others_searches_a_sorted_log(lane: Lane) -> None:
    def counted(queued: int) -> int:
        log = SlotLog(58, 61.0)
        ahead(log, 0.0, lane, queued)
        looked = 0

        class Slots(list[Any]):
            def __getitem__(self, index: Any) -> Any:
                nonlocal looked
                looked += 1
                return super().__getitem__(index)

        log.slots = Slots(log.slots)
        ahead(log, 0.0, lane)
        return looked

    assert counted(1058) < 60
    assert counted(4 * 1058) < 70  # each search of twice as many slots takes one step more
