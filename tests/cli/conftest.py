"""A sandbox whose time stands still between calls, and the command line with the settings of a fresh account of it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from cli.kit import Shell
from momopay.sandbox import Account, Sandbox
from sandbox.kit import Receiver


@pytest.fixture(scope="session")
def cli_sandbox() -> Iterator[Sandbox]:
    with Sandbox(speed=0) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(cli_sandbox: Sandbox) -> Sandbox:
    cli_sandbox.reset()
    return cli_sandbox


@pytest.fixture
def key() -> str:
    return f"pk_test_{uuid4().hex}"


@pytest.fixture
def account(sandbox: Sandbox, key: str) -> Account:
    account = sandbox.account(key)
    account.rate_limit = None
    return account


@pytest.fixture
def momopay(account: Account, sandbox: Sandbox, key: str) -> Shell:
    """The command line, run with this test's account."""
    assert account.tenant_id
    return Shell({"MOMOPAY_API_KEY": key, "MOMOPAY_BASE_URL": sandbox.base_url})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
