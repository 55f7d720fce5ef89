"""What the journal's tests begin with, beside the `journal` of each database."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from momopay import Journal


@pytest.fixture
def other(url: str, journal: Journal) -> Generator[Journal]:
    """The same journal as another process has it."""
    journal.get("r")  # the tables are there
    with Journal(url) as other:
        yield other


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the journal, over SQLite."""
    return tmp_path / "payouts.db"
