"""A client of either kind on a sandbox of its own."""

import pytest

from drivers import Drive, Driver
from momopay.sandbox import Sandbox


@pytest.fixture
def sdk(drive: Drive, sandbox: Sandbox, key: str) -> Driver:
    return drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)
