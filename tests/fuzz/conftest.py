"""A blocking client: what is drawn is read and checked by the same code in both clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drivers import Driver, unique_key


@pytest.fixture
def drive() -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def make(**options: Any) -> Driver:
        # A key of its own, because what a drawn response forbids is forbidden to every client of its key.
        drivers.append(Driver("blocking", **{"api_key": unique_key(), **options}))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()
