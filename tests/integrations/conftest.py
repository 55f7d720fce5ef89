"""A journal, telemetry in memory, and shops."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integrations.kit import SHOPS, WebShop
from integrations.telemetry import Telemetry
from momopay import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(f"sqlite:///{tmp_path / 'shop.db'}") as journal:
        yield journal


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.shutdown()


@pytest.fixture(params=SHOPS.values(), ids=list(SHOPS))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WebShop]:
    make, client_kind, handler_kind = request.param
    shop = WebShop(make, client_kind, handler_kind, journal=f"sqlite:///{tmp_path / 'shop.db'}")
    yield shop
    shop.close()
