"""What is due when: a heap of transactions and deliveries, by instant and then by arrival."""

import heapq
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Entry = tuple[datetime, int, Literal["transaction", "delivery"], str]


@dataclass(slots=True)
class Agenda:
    """Entries are never removed early: whoever takes one checks that the thing is still due then."""

    entries: list[Entry] = field(default_factory=list[Entry])
    count: int = 0

    def add(self, due: datetime, what: Literal["transaction", "delivery"], subject: str) -> None:
        """Note that a transaction or a delivery is due."""
        self.count += 1
        heapq.heappush(self.entries, (due, self.count, what, subject))

    @property
    def next_due(self) -> datetime | None:
        """The instant of the first entry."""
        return self.entries[0][0] if self.entries else None

    def pop(self, until: datetime) -> Entry | None:
        """Take the first entry that is due by `until`."""
        if self.entries and self.entries[0][0] <= until:
            return heapq.heappop(self.entries)
        return None
