"""Both clients in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from polling.kit import MakeSdk, Sdk, TimedService


@pytest.fixture
def sdk(client_kind: str) -> Iterator[MakeSdk]:
    """Make a client of each kind: ``sdk(service, **options)``."""
    made = list[Sdk]()

    def make(service: TimedService, **options: Any) -> Sdk:
        made.append(Sdk(client_kind, service, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def service() -> TimedService:
    return TimedService()
