"""Every behaviour is tested over both clients: `drive(...)` makes one of the test's colour and runs calls on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drivers import Driver


@pytest.fixture(params=["blocking", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def drive(colour: str) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def make(**options: Any) -> Driver:
        drivers.append(Driver(colour, **options))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()
