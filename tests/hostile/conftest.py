"""A client of the test's colour for one server, without repeats unless they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

import wire
from drivers import Driver


@pytest.fixture
def reach(drive: Callable[..., Driver]) -> Callable[..., Driver]:
    def make(server: wire.Server, **options: Any) -> Driver:
        own = {"base_url": server.base_url, "api_key": f"pk_test_{uuid4().hex}", "timeout": 5.0, "max_attempts": 1}
        return drive(**{**own, **options})

    return make
