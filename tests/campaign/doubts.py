"""How long a payment has been in doubt since it was last attempted: what a careful person waits for."""

from __future__ import annotations

import time
from collections.abc import Iterable

from momopay import JournalEntry


class Doubts:
    """Remembers when each attempt was first seen in doubt.

    An attempt may be executed a moment after its call has ended. So the time counts anew with each attempt, also if
    somebody released the reference, and attempted it again, between two looks.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def older_than(self, seconds: float, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
        """Return, of the entries that are in doubt now, those that have been for so long, by reference."""
        now = time.monotonic()
        doubtful = {(entry.reference, entry.attempts): entry for entry in entries}
        self._since = {attempt: self._since.get(attempt, now) for attempt in doubtful}
        return [doubtful[attempt] for attempt in sorted(doubtful) if now - self._since[attempt] >= seconds]
