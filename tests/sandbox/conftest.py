"""Plain HTTP clients for the sandbox."""

from collections.abc import Iterator

import httpx
import pytest

from momopay.sandbox import Sandbox
from sandbox.kit import KEY, Service


@pytest.fixture
def sandbox(sandbox: Sandbox) -> Sandbox:
    sandbox.account(KEY).rate_limit = None
    return sandbox


@pytest.fixture
def api(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), timeout=5, trust_env=False) as client:
        yield client


@pytest.fixture
def control(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sandbox.url, timeout=5, trust_env=False) as client:
        yield client


@pytest.fixture
def service(api: httpx.Client) -> Service:
    return Service(api)
