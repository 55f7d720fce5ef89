"""Virtual time: it runs at a chosen speed beside a wall clock passed in, and can be held and moved."""

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
        self._base = start.astimezone(UTC)
        self._since: float | None = wall()

    @property
    def held(self) -> bool:
        """Whether time stands still until `release`."""
        return self._since is None

    def now(self) -> datetime:
        """The virtual instant, cut to the millisecond."""
        instant = self._base
        if self._since is not None and self.speed:
            instant += timedelta(seconds=(self._wall() - self._since) * self.speed)
        return instant.replace(microsecond=instant.microsecond // 1000 * 1000)

    def hold(self) -> datetime:
        """Stand still at the present instant and return it."""
        self._base, self._since = self.now(), None
        return self._base

    def move(self, instant: datetime) -> None:
        """While held, stand at a later instant; an earlier one leaves the clock where it is."""
        self._base = max(self._base, instant)

    def release(self) -> None:
        """Run again from where the clock stands."""
        self._since = self._wall()

    def restart(self, start: datetime) -> None:
        """Run from another instant, earlier or later; a held clock stays where it is."""
        if self._since is not None:
            self._base, self._since = start.astimezone(UTC), self._wall()

    def wall_seconds_until(self, instant: datetime) -> float | None:
        """Seconds of wall time until `instant`, or None when time does not run by itself."""
        if self.held or not self.speed:
            return None
        return max(0.0, (instant - self.now()).total_seconds() / self.speed)


def iso(instant: datetime) -> str:
    """ISO 8601 in UTC with milliseconds."""
    return f"{instant.isoformat(timespec='milliseconds')[:-6]}Z"
