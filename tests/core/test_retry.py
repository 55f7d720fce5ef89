"""Which rule allows what, and times in headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from momopay._core import retry as _retry
from momopay._core.retry import (
    AT_MOST_ONCE,
    IDEMPOTENCY_KEYED,
    IDEMPOTENT,
    MAY_HAVE_EXECUTED,
    SAFE,
    FailureKind,
    http_date,
    retry_after,
)


def test_a_payment_is_repeated_only_where_it_surely_did_not_execute() -> None:
    assert not AT_MOST_ONCE.retries_on & MAY_HAVE_EXECUTED
    assert AT_MOST_ONCE.retries_on == {FailureKind.NOT_SENT, FailureKind.RATE_LIMITED}


@pytest.mark.parametrize("rule", [SAFE, IDEMPOTENCY_KEYED, IDEMPOTENT])
def test_what_is_harmless_twice_is_repeated_after_an_unclear_end(rule: _retry.RetryPolicy) -> None:
    assert rule.retries_on == {
        FailureKind.NOT_SENT,
        FailureKind.RATE_LIMITED,
        FailureKind.NO_REPLY,
        FailureKind.SERVER_ERROR,
    }


# Headers.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("17", 17.0),
        (" 17 ", 17.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("9" * 400, 1e9),
        ("Wed, 99 Nov 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00", 0.0),
    ],
)
def test_retry_after_is_digits_or_a_date_and_junk_is_ignored(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds


def test_no_header_is_no_pause() -> None:
    assert retry_after({}) is None


def test_retry_after_as_a_date_to_come() -> None:
    when = datetime.now(UTC) + timedelta(seconds=100)
    seconds = retry_after({"retry-after": format_datetime(when, usegmt=True)})
    assert seconds is not None
    assert 90 < seconds <= 100


@given(st.text())
def test_any_header_at_all_is_a_pause_or_none(text: str) -> None:
    seconds = retry_after({"retry-after": text})
    assert seconds is None or seconds >= 0


WHEN = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["Sun, 22 Nov 2026 14:00:00 GMT", "Sun, 22 Nov 2026 17:00:00 +0300", "Sun, 22 Nov 2026 14:00:00 -0000"]
)
def test_a_date_has_a_zone(text: str) -> None:
    assert http_date(text) == WHEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "30",
        "Sun, 32 Nov 2026 14:00:00 GMT",
        "Sun, 22 Nov 2026 14:00:00 +99999999999999",
        "Sun, 99999999999999999999 Nov 2026 14:00:00 GMT",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert http_date(text) is None
