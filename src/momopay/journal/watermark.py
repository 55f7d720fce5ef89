"""Notices a journal that went back in time: a restored copy, a log that was cut, a failover to an older standby.

Such a journal does not know what was paid since, and would pay it again. Each payment that begins raises a sequence
number in the database. Each process remembers the highest that it saw; beside a file of SQLite it is also kept in a
small file of its own. A lower number is refused until a person accepts it, which raises the count of restores: that
count is compared first.

Thread safety: every thread may call everything here.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Self

from sqlalchemy import Connection, bindparam, func, select, update

from momopay.errors import ConfigurationError
from momopay.journal.database import Database, database_errors
from momopay.journal.schema import journal, payments

logger: logging.Logger = logging.getLogger("momopay")

_SELECT: Final = select(journal.c.restored, journal.c.sequence)
_RAISE: Final = update(journal).values(sequence=journal.c.sequence + 1)
_ACCEPT: Final = update(journal).values(restored=bindparam("new_restored"), sequence=bindparam("new_sequence"))
_LATEST_PAYMENT: Final = select(func.max(payments.c.sent_at))
_NAIROBI: Final = timedelta(hours=3)
# Bytes of the line in the file. Always as many, so that one write replaces it whole.
_LINE: Final = 80


class Mark(NamedTuple):
    """How far a journal came."""

    restored: int
    sequence: int

    @classmethod
    def parse(cls, line: str) -> Self:
        """Return what a line of the file says; the beginning, where it is damaged."""
        try:
            restored, sequence, _seen_at = line.split()
            return cls(int(restored), int(sequence))
        except ValueError:
            return cls(0, 0)


class Watermark:
    """The highest sequence number that was seen of one journal."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._file: Path | None = database.beside("sequence")
        self._highest = Mark(0, 0)

    def check(self, connection: Connection) -> None:
        """Raise ConfigurationError if the journal went back in time."""
        # Before the database is read: a payment that another call begins in between must not look like a loss.
        kept = self._kept()
        highest = max(kept, self._highest)
        mark = _read(connection)
        if mark < highest:
            raise self._gone_back(connection, mark, highest)
        if kept < mark:
            self.note(mark)

    def raise_sequence(self, connection: Connection) -> Mark:
        """Count a payment, within the transaction that begins it; the row keeps other payments out until then.

        Raises:
            ConfigurationError: The journal went back in time since `check`.
        """
        connection.execute(_RAISE)
        mark = _read(connection)
        if mark <= self._highest:  # equal: it is older by the very payment that is being counted
            raise self._gone_back(connection, mark, self._highest)
        return mark

    def note(self, mark: Mark) -> None:
        """Remember how far the journal came, once that is committed."""
        self._highest = max(mark, self._highest)
        if self._file is not None and self._kept() < mark:  # another call may have committed, and noted, more
            with database_errors():
                self._file.parent.mkdir(mode=0o700, exist_ok=True)
                descriptor = os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600)
                try:
                    line = f"{mark.restored} {mark.sequence} {datetime.now(UTC).isoformat(timespec='seconds')}"
                    os.pwrite(descriptor, line.ljust(_LINE - 1).encode() + b"\n", 0)
                finally:
                    os.close(descriptor)

    def accept(self, by: str) -> str:
        """Let the journal be used as it is; see `Journal.accept_restored`."""
        with self._database.transaction() as connection:
            highest = max(self._kept(), self._highest)
            mark, days = _read(connection), self._days(connection)
            if mark >= highest:
                return ""
            accepted = Mark(max(mark.restored, highest.restored) + 1, highest.sequence)
            connection.execute(_ACCEPT, {"new_restored": accepted.restored, "new_sequence": accepted.sequence})
        logger.warning("%s accepted a journal that went back in time; %s", by, days)
        self.note(accepted)
        return days

    def _kept(self) -> Mark:
        """Return what any process kept beside the file."""
        if self._file is None:
            return Mark(0, 0)
        try:
            return Mark.parse(self._file.read_text(errors="replace"))
        except FileNotFoundError:
            return Mark(0, 0)

    def _days(self, connection: Connection) -> str:
        """Return which days are to be reconciled: from the last payment that the journal has to the last one seen."""
        moments = [datetime.now(UTC)]
        if self._file is not None and self._file.exists():
            moments = [datetime.fromtimestamp(self._file.stat().st_mtime, UTC)]
        latest = connection.scalar(_LATEST_PAYMENT)
        if latest is not None:
            moments.insert(0, datetime.fromisoformat(latest))
        days = [f"{moment + _NAIROBI:%Y-%m-%d}" for moment in moments]
        return f"reconcile the days between: momopay reconcile --day {days[0]} --last-day {days[-1]} --journal URL"

    def _gone_back(self, connection: Connection, mark: Mark, highest: Mark) -> ConfigurationError:
        return ConfigurationError(
            f"the journal went back in time: {highest.sequence} payments were begun in it, and now it knows of"
            f" {mark.sequence}. It is an older copy, or lost what was written last, and would pay again; nothing was"
            f" sent. If it cannot be replaced by the newest one, {self._days(connection)}; then"
            " momopay journal accept-restored, or journal.accept_restored(by=...)"
        )


def _read(connection: Connection) -> Mark:
    return Mark(*connection.execute(_SELECT).one())
