"""The command line with the settings of a fresh account of the sandbox."""

from __future__ import annotations

import pytest

from cli.kit import Shell
from momopay.sandbox import Account, Sandbox


@pytest.fixture
def account(account: Account) -> Account:
    account.rate_limit = None
    return account


@pytest.fixture
def momopay(account: Account, sandbox: Sandbox, key: str) -> Shell:
    """The command line, run with this test's account."""
    assert account.tenant_id
    return Shell({"MOMOPAY_API_KEY": key, "MOMOPAY_BASE_URL": sandbox.base_url})
