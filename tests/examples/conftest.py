"""One sandbox for all examples, at a hundred times real speed, with a separate account for each test."""

import random
from collections.abc import Iterator

import pytest

from drivers import PROFILE, unique_key
from examples.runs import Merchant
from momopay.sandbox import Sandbox


@pytest.fixture(scope="session")
def examples_sandbox() -> Iterator[Sandbox]:
    with Sandbox(speed=100, profile=PROFILE) as sandbox:
        yield sandbox


@pytest.fixture
def merchant(examples_sandbox: Sandbox) -> Merchant:
    key = unique_key()
    account = examples_sandbox.account(key)
    account.rate_limit = None
    return Merchant(examples_sandbox, key, account)


@pytest.fixture
def dice() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails
    return random.Random(seed)
