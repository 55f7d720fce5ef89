"""A journal, and telemetry in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integrations.telemetry import Telemetry
from momopay import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(f"sqlite:///{tmp_path / 'shop.db'}") as journal:
        yield journal


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.shutdown()
