"""What the journal's tests begin with, beside the `journal` of each database."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from durable.conftest import empty
from journal.database_kit import another_process
from momopay import Journal

__all__ = ["empty"]


@pytest.fixture
def journal(url: str, empty: Path) -> Generator[Journal]:
    if url.startswith("sqlite"):
        shutil.copyfile(empty, url.removeprefix("sqlite:///"))
    with Journal(url) as journal:
        yield journal


@pytest.fixture
def other(url: str, journal: Journal) -> Generator[Journal]:
    """The same journal as another process has it."""
    journal.get("r")  # the tables are there
    with another_process(url) as other:
        yield other


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the journal, over SQLite."""
    return tmp_path / "payouts.db"
