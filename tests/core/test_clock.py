"""The offset between this machine's clock and the service's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from momopay._core.clock import ServiceClock


def date(seconds: float) -> dict[str, str]:
    """Return the header of a service whose clock is so many seconds behind this machine's."""
    return {"date": format_datetime(datetime.now(UTC) - timedelta(seconds=seconds), usegmt=True)}


@pytest.mark.parametrize(("seconds", "ahead"), [(360, 360), (0, 0), (-360, 0)])
def test_the_offset_is_measured_by_the_date(seconds: int, ahead: int) -> None:
    clock = ServiceClock()
    assert (clock.offset, clock.ahead) == (None, 0)
    clock.observe(date(seconds))
    assert clock.offset == pytest.approx(seconds, abs=2)
    assert clock.ahead == pytest.approx(ahead, abs=2)


@pytest.mark.parametrize("headers", [{}, {"date": "soon"}, {"date": "Mon, 99 Xyz 2026 10:00:00 GMT"}])
def test_a_response_without_a_date_says_nothing(headers: dict[str, str]) -> None:
    clock = ServiceClock()
    clock.observe(headers)
    assert clock.offset is None


def test_a_clock_that_is_off_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ServiceClock()
    for seconds in (59, 61, 62, -90, -91):
        clock.observe(date(seconds))
    assert [record.message.split("clock is ")[1].split(" s ")[1] for record in caplog.records] == [
        "ahead of the service's: set it",
        "behind the service's: set it",
    ]
