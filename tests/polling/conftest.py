"""Both clients in virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from polling.kit import MakeSdk, Sdk


@pytest.fixture(params=["blocking", "asynchronous"])
def sdk(request: Any) -> MakeSdk:
    """Make a client of each kind: ``sdk(service, **options)``."""
    return partial(Sdk, request.param)
