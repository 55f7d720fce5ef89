"""Entries: what they show, and what their states mean."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal

from journal.kit import PHONE
from momopay import JournalEntry, JournalState
from momopay.journal.entries import MAY_BE_SENT, OPEN

ENTRY = JournalEntry(
    reference=f"for {PHONE}",
    amount=Decimal("10.50"),
    phone=PHONE,
    state=JournalState.UNKNOWN,
    transaction_id=None,
    code=None,
    sent_at=datetime(2026, 11, 20, 10, tzinfo=UTC),
    body_hash="a hash of the body",
)


def test_an_entry_shows_neither_phone_nor_hash_and_pickles() -> None:
    for text in (repr(ENTRY), str(ENTRY), f"{ENTRY}"):
        assert PHONE not in text
        assert "hash of the body" not in text
        assert "2547*****678" in text
    assert pickle.loads(pickle.dumps(ENTRY)) == ENTRY


def test_a_state_allows_sending_or_is_open_or_is_accepted() -> None:
    assert sorted([*MAY_BE_SENT, *OPEN, JournalState.ACCEPTED]) == sorted(JournalState)
