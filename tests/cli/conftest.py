"""The command line, with a fresh account of the sandbox in its settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.kit import PayrollShell, Shell
from momopay import Client
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


@pytest.fixture
def client(account: Account, sandbox: Sandbox, key: str) -> Iterator[Client]:
    """A client of this test's account, to make what commands read."""
    assert account.tenant_id
    with Client(key, base_url=sandbox.base_url, budget=None) as client:
        yield client


@pytest.fixture
def payroll(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> PayrollShell:
    """`payouts run` with a file of three rows and a journal of this test."""
    payroll = PayrollShell(momopay, sandbox, tmp_path)
    payroll.write(3)
    return payroll
