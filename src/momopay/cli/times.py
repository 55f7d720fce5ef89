"""Times as people type and read them: of Nairobi, or of UTC where a command has ``--utc``."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from momopay.cli.exit_codes import CommandError

# Kenya has no daylight saving time, so this needs no database of time zones.
_NAIROBI: Final = timezone(timedelta(hours=3))
# The smallest step that every ISO 8601 parser reads.
_STEP: Final = timedelta(milliseconds=1)
# Set by each command that has --utc, before it runs, so that what shows a time need not be handed the zone.
_ZONE: Final[ContextVar[tzinfo]] = ContextVar("zone", default=_NAIROBI)


def use_utc(utc: bool) -> bool:
    """Set the zone of all times of this command; the callback of ``--utc``."""
    _ZONE.set(UTC if utc else _NAIROBI)
    return utc


def local(when: datetime) -> datetime:
    """Return the same moment in the zone of this command."""
    return when.astimezone(_ZONE.get())


def moment_of(text: str, option: str) -> datetime:
    """Parse a time; a date is its beginning, and a time without a zone is in the zone of this command."""
    try:
        parsed = datetime.fromisoformat(text)
        parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=_ZONE.get())
        parsed.astimezone(UTC)  # of the year 1, it may be before all times of UTC
    except (ValueError, OverflowError):
        kind = "time" if ":" in text else "date"
        remedy = "give one such as 2026-11-30 or 2026-11-30T08:00"
        raise CommandError(f"{option}: {text or repr(text)} is not a {kind}", remedy=remedy) from None
    return parsed


def end_of(text: str, option: str) -> datetime:
    """Parse a time as `moment_of` does; a date is its last moment, because people mean the whole day."""
    begin = moment_of(text, option)
    if len(text) > len("2026-11-30"):
        return begin
    try:
        return begin + timedelta(days=1) - _STEP
    except OverflowError:
        return begin
