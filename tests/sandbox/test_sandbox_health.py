from datetime import UTC, datetime, timedelta

import pytest

from momopay.sandbox import Outcome, Refusal, Sandbox, phone_for
from momopay.sandbox._throttling import StkHealth
from sandbox.kit import KEY, Service, data, refusal

START = datetime(2026, 1, 1, tzinfo=UTC)


def _completed(results: list[bool]) -> StkHealth:
    health = StkHealth()
    for succeeded in results:
        health.add_result(START, succeeded=succeeded)
    return health


@pytest.mark.parametrize(
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
    assert (_completed(results).blocked_until is not None) is blocked


def test_the_pause_ends_and_counting_restarts_from_zero() -> None:
    health = _completed([False] * 100)
    health.add_result(START, succeeded=False)
    with pytest.raises(Refusal, match="TRANSACTION_HEALTH_BLOCKED"):
        health.check(START + timedelta(minutes=30) - timedelta(milliseconds=1))
    after = START + timedelta(minutes=30)
    health.check(after)
    for _ in range(99):
        health.add_result(after, succeeded=False)
    health.check(after)
    health.add_result(after, succeeded=False)
    with pytest.raises(Refusal):
        health.check(after)


def test_the_block_over_the_connections(service: Service, sandbox: Sandbox) -> None:
    for _ in range(100):
        data(service.stk(phone=phone_for(Outcome.cancelled)))
    data(service.stk())
    sandbox.advance(5)
    response = service.stk()
    assert refusal(response) == (429, "TRANSACTION_HEALTH_BLOCKED")
    details = response.json()["error"]["details"]
    until = sandbox.now + timedelta(seconds=1800)
    assert datetime.fromisoformat(details.pop("blockedUntil")) == until
    assert details == {
        "retryAfterSeconds": 1800,
        "successRate": 0.0,
        "sampleSize": 100,
        "minSuccessRate": 0.3,
    }
    assert response.headers["retry-after"] == "1800"
    data(service.payout())
    data(service.top_up())
    sandbox.advance(1800)
    data(service.stk())


def test_the_health_rule_can_be_switched_off(service: Service, sandbox: Sandbox) -> None:
    sandbox.account(KEY).switches.health_rule = False
    for _ in range(100):
        service.stk(phone=phone_for(Outcome.cancelled))
    sandbox.advance(5)
    data(service.stk())


def test_the_ban_by_its_thresholds(service: Service, sandbox: Sandbox) -> None:
    switches = sandbox.account(KEY).switches
    switches.ban_pushes, switches.ban_window, switches.ban_success_rate = 4, 60, 0.5
    data(service.stk(phone=phone_for(Outcome.cancelled)))
    sandbox.advance(61)
    for outcome in (Outcome.success, Outcome.cancelled, Outcome.cancelled):
        data(service.stk(phone=phone_for(outcome)))
    sandbox.advance(35)
    data(service.stk(phone=phone_for(Outcome.cancelled)))
    sandbox.advance(5)
    response = service.stk()
    assert refusal(response) == (429, "STK_TEMP_BANNED")
    assert response.json()["error"]["details"] == {"retryAfterSeconds": 3600}
    assert response.headers["retry-after"] == "3600"
    data(service.payout())
    sandbox.advance(3599)
    assert refusal(service.stk()) == (429, "STK_TEMP_BANNED")
    sandbox.advance(1)
    data(service.stk())


def test_enough_success_or_nothing_completed_is_no_abuse(service: Service, sandbox: Sandbox) -> None:
    switches = sandbox.account(KEY).switches
    switches.ban_pushes, switches.ban_success_rate = 3, 0.5
    for _ in range(5):
        data(service.stk(phone=phone_for(Outcome.by_hand)))
    for _ in range(3):
        data(service.stk())
    sandbox.advance(40)
    data(service.stk())


def test_pauses_at_will(service: Service, sandbox: Sandbox) -> None:
    sandbox.ban_stk(KEY)
    assert refusal(service.stk()) == (429, "STK_TEMP_BANNED")
    sandbox.block_stk(KEY)
    assert refusal(service.stk()) == (429, "TRANSACTION_HEALTH_BLOCKED")
    sandbox.reset()
    data(service.stk())
