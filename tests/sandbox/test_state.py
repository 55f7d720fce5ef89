"""The rate limit, transaction health and the abuse ban."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from in_turn import in_turn
from momopay.sandbox import Account, Outcome, Refusal, Sandbox, phone_for
from momopay.sandbox._state import RateWindow, StkHealth
from sandbox.kit import KEY, Routes, data, error_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def admitted(window: Literal["fixed", "sliding"], seconds: list[float]) -> list[bool]:
    rate = RateWindow()

    def is_admitted(second: float) -> bool:
        try:
            rate.admit(START + timedelta(seconds=second), 2, window)
        except Refusal:
            return False
        return True

    return [is_admitted(second) for second in seconds]


def test_a_fixed_window_opens_with_its_first_request_and_a_sliding_one_holds_in_any_minute() -> None:
    assert admitted("fixed", [0, 59, 59.9, 60, 61, 62]) == [True, True, False, True, True, False]
    assert admitted("sliding", [0, 59, 59.9, 60, 61, 119]) == [True, True, False, True, False, True]


def test_the_wait_is_never_short_of_the_reset() -> None:
    rate = RateWindow()
    rate.admit(START, 1, "fixed")
    for passed, left in ((59.5, 1), (10.5, 50)):
        with pytest.raises(Refusal) as refused:
            rate.admit(START + timedelta(seconds=passed), 1, "fixed")
        assert refused.value.details["resetInSeconds"] == left
        assert refused.value.headers == {"retry-after": str(left)}


def health_after(results: list[bool]) -> StkHealth:
    health = StkHealth()
    for succeeded in results:
        health.add_result(START, succeeded=succeeded)
    return health


@in_turn(
    ("results", "blocked"),
    [
        ([False] * 99, False),
        ([False] * 100, True),
        ([True] * 29 + [False] * 71, True),
        ([True] * 30 + [False] * 70, False),
        ([True] * 60 + [False] * 130, True),
        ([False] * 50 + [True] * 80, False),
    ],
)
def test_a_hundred_completed_payments_are_judged(results: list[bool], blocked: bool) -> None:
    assert (health_after(results).blocked_until is not None) is blocked


def test_the_pause_says_until_when_and_ends_and_counting_restarts_from_zero() -> None:
    health = health_after([True] * 29 + [False] * 71)
    health.add_result(START, succeeded=False)
    after = START + timedelta(minutes=30)
    with pytest.raises(Refusal) as refused:
        health.check(START + timedelta(seconds=0.5))
    assert refused.value.details == {
        "retryAfterSeconds": 1800,
        "blockedUntil": "2026-01-01T00:30:00.000Z",
        "successRate": 0.29,
        "sampleSize": 100,
        "minSuccessRate": 0.3,
    }
    assert (refused.value.status, refused.value.headers) == (429, {"retry-after": "1800"})
    with pytest.raises(Refusal, match="TRANSACTION_HEALTH_BLOCKED"):
        health.check(after - timedelta(milliseconds=1))
    health.check(after)
    for _ in range(99):
        health.add_result(after, succeeded=False)
    health.check(after)
    health.add_result(after, succeeded=False)
    with pytest.raises(Refusal):
        health.check(after)


def test_health_stops_stk_alone_unless_it_is_switched_off(service: Routes, sandbox: Sandbox, account: Account) -> None:
    health = sandbox._running.state.account_of(KEY, sandbox.now).health
    for _ in range(99):
        health.add_result(sandbox.now, succeeded=False)
    for health_rule, status in ((False, 200), (True, 429)):
        account.switches.health_rule = health_rule
        data(service.stk(phone=phone_for(Outcome.cancelled)))
        sandbox.advance(5)
        assert service.stk().status_code == status
    assert error_of(service.stk()) == (429, "TRANSACTION_HEALTH_BLOCKED")
    data(service.payout())
    data(service.top_up())
    sandbox.advance(1800)
    data(service.stk())


def test_the_ban_by_its_thresholds(service: Routes, sandbox: Sandbox) -> None:
    switches = sandbox.account(KEY).switches
    switches.ban_pushes, switches.ban_window, switches.ban_success_rate = 4, 60, 0.5
    data(service.stk(phone=phone_for(Outcome.cancelled)))
    sandbox.advance(61)
    # What has not completed does not count.
    for outcome in (Outcome.success, Outcome.cancelled, Outcome.cancelled, *[Outcome.by_hand] * 5):
        data(service.stk(phone=phone_for(outcome)))
        data(service.payout())  # which does not count either
    sandbox.advance(35)
    data(service.stk(phone=phone_for(Outcome.cancelled)))
    sandbox.advance(5)
    response = service.stk()
    assert error_of(response) == (429, "STK_TEMP_BANNED")
    assert response.json()["error"]["details"] == {"retryAfterSeconds": 3600}
    assert response.headers["retry-after"] == "3600"
    data(service.payout())
    sandbox.advance(3599)
    assert error_of(service.stk()) == (429, "STK_TEMP_BANNED")
    sandbox.advance(1)
    data(service.stk())
