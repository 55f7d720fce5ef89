"""A journal with thousands of entries is read and copied with the memory of a page."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from journal.kit import fill
from momopay import Journal

ENTRIES = 25_000
MOST = 20_000_000
"""Bytes. All entries at once take some 75 MB."""


def test_memory_is_bounded_by_a_page(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        fill(journal, ENTRIES)
        tracemalloc.start()
        assert sum(1 for _ in journal.entries()) == ENTRIES + 1
        journal.backup(tmp_path / "copy.db")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < MOST
    with Journal(f"sqlite:///{tmp_path / 'copy.db'}", create=False) as copy:
        assert copy.get(f"p-{ENTRIES}") is not None
