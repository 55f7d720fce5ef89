"""When the next attempt of a callback comes."""

from datetime import UTC, datetime

from momopay.sandbox._deliveries import Delivery, PostResult, next_attempt

START = datetime(2026, 1, 1, tzinfo=UTC)
REFUSED = PostResult(status=302)


def delivery(posts_left: int = 6, duplicates_left: int = 0) -> Delivery:
    return Delivery("d", "t", "x", "http://localhost/", {}, posts_left, None, duplicates_left=duplicates_left)


def delays(of: Delivery, results: list[PostResult]) -> list[float | None]:
    attempts = [next_attempt(of, result, START) for result in results]
    return [None if due is None else (due - START).total_seconds() for due in attempts]


def test_retries_come_with_the_stated_delays_and_then_end() -> None:
    assert delays(delivery(), [REFUSED] * 6) == [10, 30, 60, 120, 300, None]
    assert delays(delivery(posts_left=5), [REFUSED] * 5) == [10, 30, 60, 120, None]


def test_an_acknowledgement_ends_delivery() -> None:
    assert delays(delivery(), [REFUSED, PostResult(status=204)]) == [10, None]
    assert delays(delivery(), [PostResult(status=300)]) == [10]


def test_a_missed_answer_limit_comes_before_the_delay() -> None:
    missed = PostResult(error="no answer", timed_out=True)
    assert delays(delivery(), [missed, REFUSED]) == [40, 30]


def test_a_duplicate_follows_the_acknowledgement_once() -> None:
    acknowledged = PostResult(status=200)
    assert delays(delivery(duplicates_left=1), [REFUSED, acknowledged, acknowledged]) == [10, 1, None]
