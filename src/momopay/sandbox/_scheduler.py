"""What is due when: a heap of transactions and callback deliveries, by instant and then by arrival."""

import heapq
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Subject = Literal["transaction", "delivery"]
# The running number keeps what is due at the same instant in its order of arrival.
Entry = tuple[datetime, int, Subject, str]


@dataclass(slots=True)
class Scheduler:
    """A heap from which nothing is removed early.

    A transaction that a user cancels, or a delivery that is planned anew, leaves its old entry behind. Whoever pops
    an entry compares its instant with the `due` of the thing itself: only where they agree is the entry still right.
    """

    entries: list[Entry] = field(default_factory=list[Entry])
    count: int = 0

    def add(self, due: datetime, subject: Subject, subject_id: str) -> None:
        """Add a transaction or a delivery that is due at an instant."""
        self.count += 1
        heapq.heappush(self.entries, (due, self.count, subject, subject_id))

    @property
    def next_due(self) -> datetime | None:
        """The instant of the first entry."""
        return self.entries[0][0] if self.entries else None

    def pop(self, until: datetime) -> Entry | None:
        """Remove and return the first entry, if it is due by `until`."""
        if self.entries and self.entries[0][0] <= until:
            return heapq.heappop(self.entries)
        return None
