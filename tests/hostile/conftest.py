"""A client of the test's kind for one server, without repeats unless they are asked for."""

from typing import Any

import pytest

import wire
from drivers import Drive, Driver, unique_key


@pytest.fixture
def reach(drive: Drive) -> Drive:
    def make(server: wire.Server, **options: Any) -> Driver:
        own = {"base_url": server.base_url, "api_key": unique_key(), "timeout": 5.0, "max_attempts": 1}
        return drive(**{**own, **options})

    return make
