"""Every behaviour is tested over both clients: `drive(...)` makes one of the test's colour and runs calls on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers import Driver

TESTS = Path(__file__).parent
WHOLE = {"benchmarks", "docs", "examples", "hostile", "scale"}
"""Folders whose tests take their time, and run where the marker `whole` is asked for."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in WHOLE:
            item.add_marker("whole")


@pytest.fixture(autouse=True)
def _heard() -> None:
    """Let each test hear the package's log, whatever a framework's logging set-up did to it before."""
    logger = logging.getLogger("momopay")
    logger.disabled, logger.propagate = False, True
    logger.setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)


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
