"""What is open is counted as it is listed, on both databases."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from journal.kit import PHONE, put
from momopay import EntryKind, Journal, JournalState
from momopay.journal.ends import open_count_of
from momopay.journal.evidence import Report
from momopay.journal.journal import collections_of


def prompt(journal: Journal, transaction_id: str) -> None:
    """Bring the order to another prompt."""
    orders = collections_of(journal)
    with orders.leases.lease() as lease:
        blocking = orders.begin(
            lease,
            reference="same",
            amount=Decimal(100),
            phone=PHONE,
            body_hash="hash",
            seconds=600,
            read=orders.get("same"),
            wire_reference="same",
        )
        assert blocking is None
        assert orders.accept("same", Report(transaction_id, "PENDING"), lease=lease)


def check(journal: Journal, count: int) -> None:
    listed = journal.open()
    assert open_count_of(journal) == (count, listed[0].sent_at if listed else None)
    assert len(listed) == count


@pytest.mark.both_databases
def test_what_is_open_is_counted_as_it_is_listed(journal: Journal) -> None:
    check(journal, 0)
    put(journal, "same", JournalState.ACCEPTED)
    put(journal, "unknown", JournalState.UNKNOWN)
    put(journal, "refused", JournalState.REFUSED)
    check(journal, 1)
    prompt(journal, "a")  # an order with the reference of a payout
    check(journal, 2)
    orders = collections_of(journal)
    cancelled = Report("a", "CANCELLED", ended_at="2026-11-20T10:01:00+00:00")
    orders.report("same", cancelled)
    check(journal, 1)
    prompt(journal, "b")
    orders.report("same", replace(cancelled, status="SUCCESS"))  # a late PIN paid the first one
    entry = journal.get("same", EntryKind.COLLECTION)
    assert entry is not None
    assert entry.status == "SUCCESS"
    check(journal, 2)
    orders.report("same", replace(cancelled, transaction_id="b"))
    check(journal, 1)
