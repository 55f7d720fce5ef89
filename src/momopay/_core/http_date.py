"""Times in HTTP headers. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def http_date(text: str) -> datetime | None:
    """Return the time of a header such as ``Date`` or ``Retry-After``; None if it is no HTTP date."""
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # the last two for numbers without measure
        return None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)  # "-0000" means UTC of an unknown zone
