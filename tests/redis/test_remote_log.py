"""What a process does with the answers of the script, and without them. Times are the test's own."""

from __future__ import annotations

import logging

import pytest

from momopay import Lane
from momopay._ratelimit.lane import ALONE
from momopay.redis.remote_log import RETRY, RemoteLog

WINDOW = 60.0


def remote_log(requests: int = 12, sharers: int | None = 3) -> RemoteLog:
    return RemoteLog(requests, WINDOW, sharers)


def answer(
    log: RemoteLog,
    now: float,
    delay: float = 0.0,
    *,
    stop: float = 0.0,
    taken: int = 0,
    used: int = 0,
    members: int = 1,
) -> float:
    slots = " ".join([f"{round(now * 1e6)}P"] * used)
    reply = [round(delay * 1e6), round(stop * 1e6), taken, 0, members, str(round(now * 1e6)), slots.encode()]
    return log.answered(now, reply)


def fail(log: RemoteLog, now: float) -> None:
    log.failed(now, ConnectionRefusedError("refused by 10.0.0.1"))


def local(log: RemoteLog, now: float) -> float:
    delay = log.expect_locally(now, Lane.PAYMENT, ALONE)
    return delay if delay > 0 else log.reserve_locally(now, Lane.PAYMENT)


def at_once(log: RemoteLog, now: float, calls: int = 20) -> int:
    return [local(log, now) for _ in range(calls)].count(0.0)


def is_shared(log: RemoteLog, now: float) -> bool:
    """Return whether Redis alone decides."""
    return at_once(log, now) == 20


def test_while_redis_answers_it_alone_hands_out_slots() -> None:
    log = remote_log()
    assert is_shared(log, 0.0)
    assert answer(log, 0.0, 2.5) == 2.5
    assert is_shared(log, 1.0)
    assert log.should_ask(1.0)


def test_without_an_answer_the_process_keeps_to_its_share() -> None:
    log = remote_log()
    answer(log, 0.0)
    fail(log, 1.0)
    assert at_once(log, 1.0) == 4
    assert local(log, 1.0) == WINDOW


def test_the_share_is_divided_among_the_processes_that_redis_saw_last() -> None:
    log = remote_log(sharers=None)
    answer(log, 0.0, members=6)
    answer(log, 0.0, members=2)
    fail(log, 1.0)
    assert at_once(log, 1.0) == 6


def test_a_process_that_never_met_redis_assumes_eight() -> None:
    log = remote_log(requests=58, sharers=None)
    fail(log, 0.0)
    assert at_once(log, 0.0) == 7


def test_what_the_log_held_when_redis_last_answered_counts() -> None:
    log = remote_log()
    answer(log, 0.0, taken=9, used=9)
    fail(log, 1.0)
    assert at_once(log, 1.0) == 1
    assert local(log, 1.0) == WINDOW - 1.0


def test_while_redis_is_away_one_caller_in_two_seconds_asks() -> None:
    log = remote_log()
    fail(log, 0.0)
    assert not log.should_ask(RETRY - 0.01)
    assert [log.should_ask(RETRY) for _ in range(3)] == [True, False, False]
    assert log.should_ask(2 * RETRY)


def test_once_redis_is_back_the_share_holds_for_one_window_more() -> None:
    log = remote_log()
    fail(log, 0.0)
    assert at_once(log, 0.0) == 4
    answer(log, 10.0)
    assert local(log, 10.0) == 50.0
    assert at_once(log, 69.9) == 4
    assert is_shared(log, 70.0)


def test_a_second_outage_continues_with_the_same_share() -> None:
    log = remote_log()
    fail(log, 0.0)
    assert at_once(log, 0.0) == 4
    answer(log, 10.0)
    fail(log, 20.0)
    assert at_once(log, 20.0) == 0
    assert at_once(log, 1000.0) == 4


def test_a_log_that_redis_lost_unnoticed_counts_as_an_outage() -> None:
    log = remote_log()
    answer(log, 0.0, taken=9, used=9)
    answer(log, 1.0, taken=1, used=1)
    assert at_once(log, 1.0) == 1
    assert is_shared(log, 61.0)


def test_a_log_that_expired_is_no_outage() -> None:
    log = remote_log()
    answer(log, 0.0, taken=9, used=9)
    answer(log, 2 * WINDOW, taken=1)
    assert is_shared(log, 2 * WINDOW)


def test_a_stop_holds_the_share_back_whoever_ordered_it() -> None:
    for ordered_here in (True, False):
        log = remote_log()
        if ordered_here:
            fail(log, 0.0)
            log.stop(0.0, 30.0)
        else:
            answer(log, 0.0, stop=30.0)
            fail(log, 0.0)
        assert local(log, 1.0) == 29.0


def test_a_shorter_stop_does_not_end_a_longer_one() -> None:
    log = remote_log()
    log.stop(0.0, 30.0)
    log.stop(0.0, 10.0)
    fail(log, 0.0)
    assert local(log, 0.0) == 30.0


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "momopay")
    log = remote_log()
    for now in (0.0, 2.0, 4.0):
        fail(log, now)
    for now in (6.0, 8.0):
        answer(log, now)
    share = "this process goes on with 4 of 12 requests in 60 s"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"the shared rate budget is away (ConnectionRefusedError): {share}"),
        ("INFO", "the shared rate budget is back"),
    ]


def test_the_log_has_the_first_word_of_redis_and_no_address(caplog: pytest.LogCaptureFixture) -> None:
    remote_log().failed(0.0, ValueError("READONLY You can't write against a read only replica at 10.0.0.1"))
    assert "(ValueError: READONLY)" in caplog.text
    assert "10.0.0.1" not in caplog.text
