"""A shop on each framework's own server, with a sync or async handler, and the sandbox that calls it back."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from drivers import unique_key
from integrations.apps import APPS
from integrations.shop import Shop
from integrations.telemetry import Telemetry
from momopay import Callback, Journal
from momopay.sandbox import Sandbox
from momopay.types import TransactionSummary


class KeepingJournal(Journal):
    """Keeps each context that it returned, so that only its end releases a callback, not the garbage collector."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._given: list[AbstractContextManager[bool]] = []

    def handling(self, callback: Callback | TransactionSummary) -> AbstractContextManager[bool]:
        self._given.append(super().handling(callback))
        return self._given[-1]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with KeepingJournal(f"sqlite:///{tmp_path / 'shop.db'}") as journal:
        yield journal


@pytest.fixture(params=[f"{app} {kind}" for app in APPS for kind in ("blocking", "async")])
def adapter(request: pytest.FixtureRequest) -> tuple[str, str]:
    app, _, kind = str(request.param).partition(" ")
    return app, kind


@pytest.fixture
def shop(adapter: tuple[str, str], sandbox: Sandbox, journal: Journal) -> Iterator[Shop]:
    app, kind = adapter
    shop = Shop(sandbox, unique_key(), journal)
    make, serve = APPS[app]
    handler = shop.handle_async if kind == "async" else shop.handle
    with serve(make(handler, signer=shop.signer, journal=shop.journal)) as url:
        shop.url = f"{url}/momo"
        yield shop


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.shutdown()
