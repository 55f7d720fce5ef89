"""An account of the sandbox, probed in virtual time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from momopay import Journal
from momopay.sandbox import Account, Sandbox
from probe.kit import Scene


@pytest.fixture
def scene(sandbox: Sandbox, key: str, account: Account) -> Iterator[Scene]:
    account.rate_limit = None
    scene = Scene(sandbox, key, account)
    yield scene
    scene.client.close()
    scene.service.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(f"sqlite:///{tmp_path / 'probe.db'}") as journal:
        yield journal
