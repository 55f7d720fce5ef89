"""A client of the test's colour whose key is its own: what a fuzzer's answers forbid is forbidden to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from drivers import Driver, unique_key


@pytest.fixture
def drive(drive: Callable[..., Driver]) -> Callable[..., Driver]:
    return partial(drive, api_key=unique_key())
