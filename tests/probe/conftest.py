"""An account of the sandbox, probed in virtual time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from momopay import Journal
from momopay.probe import reads
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


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask about one parameter of the list, and poll a prompt less often: that is most of a probe's requests."""
    for name, rows in (("reads._PARAMETERS", reads._PARAMETERS[:1]), ("prompt._POLLS", (0, 0, 5, 15, 65, 305))):
        monkeypatch.setattr(f"momopay.probe.{name}", rows)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_seconds: float) -> None:
        """Take no time."""

    monkeypatch.setattr("time.sleep", sleep)
