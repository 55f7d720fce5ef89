"""Notices a journal that went back in time: a restored copy, a log that was cut, a failover to an older standby.

Such a journal does not know what was paid since, and would pay it again. Each payment that begins raises a sequence
number in the database. Each process remembers the highest that it saw; beside a file of SQLite it is also kept in a
small file of its own. A lower number is refused until a person accepts it, which raises the count of restores: that
count is compared first.

Thread safety: every thread may call everything here.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self

from sqlalchemy import Connection, bindparam, func, select, update

from momopay.errors import ConfigurationError
from momopay.journal.database import Database
from momopay.journal.schema import journal, payments

logger: logging.Logger = logging.getLogger("momopay")

_SELECT: Final = select(journal.c.restored, journal.c.sequence)
_RAISE: Final = update(journal).values(sequence=journal.c.sequence + 1)
_ACCEPT: Final = update(journal).values(restored=bindparam("new_restored"), sequence=bindparam("new_sequence"))
_LATEST_PAYMENT: Final = select(func.max(payments.c.sent_at))
_NAIROBI: Final = timedelta(hours=3)


class _Mark(NamedTuple):
    """How far a journal came."""

    restored: int
    sequence: int
    seen_at: str
    """When this was seen first; ISO 8601, UTC."""

    @classmethod
    def parse(cls, line: str) -> Self:
        """Return what `str` wrote; the beginning, where the line is empty or damaged."""
        try:
            restored, sequence, seen_at = line.split()
            return cls(int(restored), int(sequence), seen_at)
        except ValueError:
            return cls(0, 0, "")

    def __str__(self) -> str:
        return f"{self.restored} {self.sequence} {self.seen_at}"

    def is_before(self, other: _Mark) -> bool:
        return self[:2] < other[:2]


class Watermark:
    """The highest sequence number that was seen of one journal."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._highest = _Mark(0, 0, "")

    def check(self, connection: Connection) -> None:
        """Raise ConfigurationError if the journal went back in time, or is a file with a second name."""
        self._database.backend().check_names()
        self.note(self._checked(connection))

    def raise_sequence(self, connection: Connection) -> _Mark:
        """Count a payment, within the transaction that begins it; the row keeps other payments out until then.

        Raises:
            ConfigurationError: The journal went back in time.
        """
        connection.execute(_RAISE)
        mark = self._checked(connection)
        highest = self._seen()
        if mark[:2] == highest[:2]:  # it is older by the very payment that is being counted
            raise self._gone_back(mark, highest)
        return mark

    def note(self, mark: _Mark) -> None:
        """Remember how far the journal came, once that is committed."""
        if self._highest.is_before(mark):
            self._highest = mark
        backend = self._database.backend()
        if _Mark.parse(backend.seen()).is_before(mark):
            backend.remember(str(mark))

    def accept(self, by: str) -> None:
        """Let the journal be used as it is; see `Journal.accept_restored`."""
        highest = self._seen()
        with self._database.transaction() as connection:
            mark = _read(connection)
            days = self._days(connection, highest)
            if not mark.is_before(highest):
                return
            restored = max(mark.restored, highest.restored) + 1
            connection.execute(_ACCEPT, {"new_restored": restored, "new_sequence": highest.sequence})
        logger.warning("%s accepted a journal that went back in time; %s", by, days)
        self.note(_Mark(restored, highest.sequence, _now()))

    def _checked(self, connection: Connection) -> _Mark:
        mark, highest = _read(connection), self._seen()
        if mark.is_before(highest):
            raise self._gone_back(mark, highest, self._days(connection, highest))
        return mark

    def _seen(self) -> _Mark:
        kept = _Mark.parse(self._database.backend().seen())
        return max(kept, self._highest)

    def _days(self, connection: Connection, highest: _Mark) -> str:
        """Return which days are to be reconciled: from the last payment that the journal has to the last one seen."""
        latest = connection.scalar(_LATEST_PAYMENT)
        moments = [datetime.fromisoformat(each) for each in (latest, highest.seen_at or _now()) if each]
        days = [f"{moment.astimezone(UTC) + _NAIROBI:%Y-%m-%d}" for moment in moments]
        return f"reconcile the days between: momopay reconcile --day {days[0]} --last-day {days[-1]} --journal URL"

    def _gone_back(self, mark: _Mark, highest: _Mark, days: str = "reconcile today") -> ConfigurationError:
        return ConfigurationError(
            f"the journal went back in time: {highest.sequence} payments were begun in it, and now it knows of"
            f" {mark.sequence}. It is an older copy, or lost what was written last, and would pay again; nothing was"
            f" sent. If it cannot be replaced by the newest one, {days}; then"
            " momopay journal accept-restored, or journal.accept_restored(by=...)"
        )


def _read(connection: Connection) -> _Mark:
    restored, sequence = connection.execute(_SELECT).one()
    return _Mark(restored, sequence, _now())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
