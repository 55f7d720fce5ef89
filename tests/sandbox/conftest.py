"""A sandbox whose time stands still between calls, a client for it, and a receiver of its callbacks."""

from collections.abc import Iterator

import httpx
import pytest

from momopay.sandbox import Sandbox
from sandbox.kit import KEY, Receiver, Service


@pytest.fixture(scope="session")
def shared_sandbox() -> Iterator[Sandbox]:
    with Sandbox(speed=0) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(shared_sandbox: Sandbox) -> Sandbox:
    shared_sandbox.reset()
    shared_sandbox.account(KEY).rate_limit = None
    return shared_sandbox


@pytest.fixture
def api(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), timeout=5, trust_env=False) as client:
        yield client


@pytest.fixture
def control(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sandbox.url, timeout=5, trust_env=False) as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def service(api: httpx.Client) -> Service:
    return Service(api)
