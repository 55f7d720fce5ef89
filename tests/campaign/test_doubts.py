"""The careful person of the campaigns waits anew after each attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from campaign.doubts import Doubts
from momopay import EntryKind, JournalEntry, JournalState

ENTRY = JournalEntry.model_validate(
    {
        "kind": EntryKind.PAYOUT,
        "reference": "SAL-7",
        "wire_reference": "SAL-7",
        "amount": Decimal(10),
        "phone": "254712345678",
        "state": JournalState.UNKNOWN,
        "attempts": 1,
        "sent_at": datetime(2026, 1, 1, tzinfo=UTC),
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
)


def test_the_time_counts_anew_with_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    now, doubts = [100.0], Doubts()
    monkeypatch.setattr("campaign.doubts.time.monotonic", lambda: now[0])
    again = ENTRY.model_copy(update={"attempts": 2})
    assert doubts.older_than(2.5, [ENTRY]) == []
    now[0] += 2.5
    assert doubts.older_than(2.5, [ENTRY]) == [ENTRY]
    # Released and attempted between two looks: it is in doubt at both, and the second attempt may be under way.
    assert doubts.older_than(2.5, [again]) == []
    now[0] += 2.5
    assert doubts.older_than(2.5, [again]) == [again]
