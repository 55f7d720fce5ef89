"""Times in headers: whatever is in one, it is a time with a zone, or none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from momopay._core.http_date import http_date

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
