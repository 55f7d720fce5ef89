"""Virtual time: it runs at a chosen speed relative to a wall clock passed in, and can be held and moved.

Only the event loop changes a clock. `now` may be called from any thread: what it needs is in one tuple, replaced whole.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class Clock:
    """Whole milliseconds of virtual time, so that an instant survives its ISO 8601 text unchanged."""

    def __init__(self, start: datetime, *, speed: float, wall: Callable[[], float]) -> None:
        """Start at `start`; `speed` is virtual seconds per second of `wall` (0: only moved by hand)."""
        if not 0 <= speed <= 1_000_000:  # noqa: PLR2004 - the bound is explained by the message
            raise ValueError("speed must lie between 0 and 1,000,000 virtual seconds per second")
        self.speed = speed
        self._wall = wall
        # A virtual instant, and the reading of `wall` at which it was the present; None while the clock is held.
        self._origin: tuple[datetime, float | None] = start.astimezone(UTC), wall()

    @property
    def held(self) -> bool:
        """Whether time is stopped until `release`."""
        return self._origin[1] is None

    def now(self) -> datetime:
        """Return the virtual instant, cut to the millisecond."""
        instant, since = self._origin
        if since is not None and self.speed:
            instant += timedelta(seconds=(self._wall() - since) * self.speed)
        return instant.replace(microsecond=instant.microsecond // 1000 * 1000)

    def hold(self) -> datetime:
        """Stop at the present instant and return it."""
        now = self.now()
        self._origin = now, None
        return now

    def move(self, instant: datetime) -> None:
        """Move a held clock to a later instant; an earlier one leaves it where it is."""
        self._origin = max(self._origin[0], instant), None

    def release(self) -> None:
        """Run again from the instant at which the clock is held."""
        self._origin = self._origin[0], self._wall()

    def restart(self, start: datetime) -> None:
        """Run from another instant, earlier or later; a held clock stays where it is."""
        # A held clock belongs to an `advance` under way, which has a target of its own.
        if not self.held:
            self._origin = start.astimezone(UTC), self._wall()

    def wall_seconds_until(self, instant: datetime) -> float | None:
        """Return the seconds of wall time until `instant`, or None when time does not run by itself."""
        if self.held or not self.speed:
            return None
        return max(0.0, (instant - self.now()).total_seconds() / self.speed)


def iso(instant: datetime) -> str:
    """Return ISO 8601 text in UTC with milliseconds."""
    return f"{instant.isoformat(timespec='milliseconds')[:-6]}Z"
