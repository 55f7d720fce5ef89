"""The offset between this machine's clock and the service's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import format_datetime
from typing import Self

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


def test_the_offset_follows_a_clock_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class Machine(datetime):
        ahead = 0.0

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(1e9 + boot + cls.ahead, tz)

    boot = 10.0
    monkeypatch.setattr("momopay._core.clock.datetime", Machine)
    monkeypatch.setattr("momopay._core.clock.now", lambda: boot)
    clock = ServiceClock()
    clock.observe({"date": format_datetime(Machine.now(UTC), usegmt=True)})
    boot, Machine.ahead = 500.0, 3600.0
    assert clock.offset == pytest.approx(3600, abs=1)
    assert clock.service_now().timestamp() == pytest.approx(1e9 + boot, abs=1)


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


def test_the_virtual_clock_of_a_sandbox_is_measured_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    clock = ServiceClock(on_loopback=True)
    clock.observe(date(-3600))
    assert clock.offset == pytest.approx(-3600, abs=2)
    assert caplog.records == []
