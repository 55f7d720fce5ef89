"""How many entries of the journal are open or unresolved: from the database, else from the latest sweep."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from momopay._transport import clock
from momopay.errors import MomoPayError
from momopay.events import SweepEnded
from momopay.journal import Journal
from momopay.journal.journal import parts_of

logger: logging.Logger = logging.getLogger("momopay")

# Seconds. A collection waits no longer for the database: the exporter's other metrics are behind it.
_LONGEST: Final = 5.0
# Seconds for which an answer serves: the four gauges of one collection ask once.
_FRESH: Final = 1.0


@dataclass(frozen=True)
class _Counts:
    open: int
    unresolved: int
    oldest_open: datetime | None = None
    oldest_unresolved: datetime | None = None


class JournalGauges:
    """The four gauges. A collection may come from any thread."""

    def __init__(self, meter: Meter, journal: Journal | None) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._counts: _Counts | None = None
        self._read_at: float | None = None

        def gauge(name: str, unit: str, text: str, value: Callable[[_Counts], float | None]) -> None:
            def observe(_options: CallbackOptions) -> Iterable[Observation]:
                counts = self._current()
                observed = None if counts is None else value(counts)
                return [] if observed is None else [Observation(observed)]

            meter.create_observable_gauge(name, [observe], unit, text)

        gauge("momopay.journal.open", "{entry}", "Payments that were accepted and have not settled.", lambda c: c.open)
        gauge("momopay.journal.unresolved", "{entry}", "Unresolved payments.", lambda c: c.unresolved)
        if journal is not None:
            gauge("momopay.journal.open.age", "s", "Age of the oldest open entry.", lambda c: _age(c.oldest_open))
            gauge(
                "momopay.journal.unresolved.age",
                "s",
                "Age of the oldest unresolved entry.",
                lambda c: _age(c.oldest_unresolved),
            )

    def remember(self, event: SweepEnded) -> None:
        """Keep what a sweep found, if the journal cannot be asked."""
        if self._journal is None:
            self._counts = _Counts(event.open, event.unknown)

    def _current(self) -> _Counts | None:
        if self._journal is None:
            return self._counts
        with self._lock:
            now = clock.now()
            if self._read_at is None or now - self._read_at >= _FRESH:
                self._read_at, self._counts = now, _read(self._journal)
            return self._counts


def _read(journal: Journal) -> _Counts | None:
    """Return what the database says; None if it fails, so that the gauges end rather than show what was."""
    from momopay.journal.database import bounded  # noqa: PLC0415  it needs SQLAlchemy, which the journal has loaded

    try:
        with bounded(_LONGEST):
            count, oldest = parts_of(journal).reports.count_open()
            unresolved = journal.unresolved()  # few: each one waits for a person
    except MomoPayError as error:
        logger.warning("the journal's gauges are missing: %s", error)
        return None
    return _Counts(count, len(unresolved), oldest, unresolved[0].sent_at if unresolved else None)


def _age(since: datetime | None) -> float:
    """Return the seconds since then; 0 if there is nothing."""
    return 0.0 if since is None else max(0.0, (datetime.now(UTC) - since).total_seconds())
