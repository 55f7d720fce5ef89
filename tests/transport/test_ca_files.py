"""CA certificates that cannot be read: an error that names the variable and the file, and nothing sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import momopay
import wire
from drivers import Driver, learn_key
from momopay import Journal, JournalState
from momopay._transport import connections

Drive = Callable[..., Driver]


def payout(client: Any) -> Any:
    return client.payouts.initiate(amount=100, phone="0712345678", reference="P-1")


def broken(folder: Path) -> Path:
    path = folder / "broken.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n")
    return path


BAD: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "no such file": ("SSL_CERT_FILE", lambda folder: folder / "missing.pem"),
    "a folder": ("SSL_CERT_FILE", lambda folder: folder),
    "no certificate": ("SSL_CERT_FILE", broken),
    "no such folder": ("SSL_CERT_DIR", lambda folder: folder / "missing"),
    "a file": ("SSL_CERT_DIR", broken),
}


@pytest.fixture(autouse=True)
def _no_context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    connections._shared_tls_context.cache_clear()
    yield
    connections._shared_tls_context.cache_clear()


@pytest.mark.parametrize(("name", "make"), BAD.values(), ids=BAD)
def test_the_error_names_the_variable_and_the_path(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=f"https://localhost:{server.port}/v1")
        monkeypatch.setenv(name, str(path))
        with pytest.raises(momopay.ConfigurationError) as caught:
            driver(payout)
        assert name in str(caught.value)
        assert str(path) in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)
        assert not caught.value.may_have_executed
        assert (server.connections, server.payments) == (0, 0)
        # Once it is corrected, the same client goes on: up to the server, which speaks no TLS.
        monkeypatch.delenv(name)
        with pytest.raises(momopay.APIConnectionError):
            driver(lambda client: client.with_options(max_attempts=1).wallet.balance())


def test_one_of_several_folders_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", os.pathsep.join([str(tmp_path / "missing"), str(tmp_path)]))
    assert connections._shared_tls_context() is connections._shared_tls_context()


def test_the_file_of_certifi_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certifi.where", lambda: "/nowhere/cacert.pem")
    with pytest.raises(momopay.ConfigurationError, match="certifi"):
        connections._shared_tls_context()


def test_a_payment_is_recorded_as_not_sent(drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        learn_key(journal, "https://api.example/v1")
        driver = drive(base_url="https://api.example/v1")
        with pytest.raises(momopay.ConfigurationError):
            driver(
                lambda client: client.payouts.pay_once(journal=journal, reference="P-1", amount=10, phone="0712345678")
            )
        entry = journal.get("P-1")
    assert entry is not None
    assert entry.state is JournalState.NOT_SENT
