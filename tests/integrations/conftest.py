"""A journal that holds a callback until its context ends, and telemetry in memory."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from integrations.telemetry import Telemetry
from momopay import Callback, Journal
from momopay.types import TransactionSummary


class KeepingJournal(Journal):
    """Keeps each context that it returned, so that only its end releases a callback, not the garbage collector."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._given: list[AbstractContextManager[bool]] = []

    def handling(self, callback: Callback | TransactionSummary) -> AbstractContextManager[bool]:
        self._given.append(super().handling(callback))
        return self._given[-1]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with KeepingJournal(f"sqlite:///{tmp_path / 'shop.db'}") as journal:
        yield journal


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.shutdown()
