"""What a process begins with when Redis goes away."""

from __future__ import annotations

import pytest

from momopay import Lane
from momopay._ratelimit.slot_log import SlotLog
from momopay.redis.fallback import fallback
from momopay.redis.script import Reply

WINDOW = 70.0
NOW = 1000.0


def reply(*ages: float, taken: int | None = None, number: int = 0, members: int = 8) -> Reply:
    words = [f"{round((NOW - age) * 1e6)}P" for age in sorted(ages, reverse=True)]
    taken = len(words) if taken is None else taken
    return Reply(0.0, 0.0, taken, number, members, round(NOW * 1e6), " ".join(words))


def begun(
    last: Reply | None, requests: int = 58, sharers: int = 8, *, now: float = NOW, answered_at: float = NOW
) -> SlotLog:
    return fallback(requests, WINDOW, sharers, now=now, answered_at=answered_at, reply=last)


def slots(log: SlotLog, count: int, now: float = NOW) -> list[float]:
    return [round(log.reserve(now, Lane.PAYMENT, 1e9), 6) for _ in range(count)]


@pytest.mark.parametrize(("requests", "sharers", "share"), [(58, 8, 7), (58, 1, 58), (12, 3, 4), (3, 8, 1)])
def test_a_process_that_never_met_redis_has_its_whole_share(requests: int, sharers: int, share: int) -> None:
    assert slots(begun(None, requests, sharers), share + 1) == [0.0] * share + [WINDOW]


def test_all_processes_together_send_when_the_slots_of_the_log_come_back() -> None:
    ages = [60.0] * 40 + [1.0] * 18
    logs = [begun(reply(*ages, taken=580 + 58, number=number)) for number in range(8)]
    sent = [slot for log in logs for slot in slots(log, 7)]
    assert sent.count(0.0) == 0
    assert sent.count(10.0) <= 40
    assert sent.count(10.0) + sent.count(69.0) == len(sent)


@pytest.mark.parametrize("taken", [58, 61, 1000])
@pytest.mark.parametrize("used", [0, 1, 30, 57, 58])
def test_what_was_free_is_divided_and_nothing_of_it_twice(used: int, taken: int) -> None:
    last = [reply(*([5.0] * used), taken=taken, number=number) for number in range(8)]
    at_once = [slots(begun(each), 8).count(0.0) for each in last]
    assert sum(at_once) <= 58 - used
    assert sum(at_once) >= 58 - used - 8  # seven for each of eight are two fewer than all


def test_an_old_answer_gives_a_part_of_what_was_free_then_and_the_rest_evenly() -> None:
    log = begun(reply(*([1.0] * 34)), now=NOW + 3.0)
    assert slots(log, 8, NOW + 3.0) == [0.0, 0.0, 0.0, 17.5, 35.0, 52.5, 70.0, 70.0]
    full = begun(reply(*([1.0] * 58)), now=NOW + 3.0)
    assert slots(full, 2, NOW + 3.0) == [0.0, pytest.approx(70.0 / 6)]


def test_no_window_holds_more_than_the_share() -> None:
    taken = slots(begun(reply(*([1.0] * 42)), now=NOW + 3.0), 60, NOW + 3.0)
    assert all(sum(start <= each < start + WINDOW for each in taken) <= 7 for start in taken)
