"""A client of either kind on a sandbox of its own."""

from functools import partial

import pytest

from drivers import Drive, Driver
from momopay.sandbox import Account, Sandbox
from resources.kit import prompt


@pytest.fixture
def sdk(drive: Drive, sandbox: Sandbox, key: str) -> Driver:
    return drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)


@pytest.fixture
def listed(sdk: Driver, account: Account) -> list[str]:
    """The ids of 25 transactions, oldest first."""
    account.rate_limit = None
    return [sdk(partial(prompt, amount=number + 1)).transaction_id for number in range(25)]
