"""Which rule allows what."""

from __future__ import annotations

import pytest

from momopay._core import retry as _retry
from momopay._core.retry import AT_MOST_ONCE, IDEMPOTENCY_KEYED, IDEMPOTENT, MAY_HAVE_EXECUTED, SAFE, FailureKind


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
