"""What a journal is bound to."""

from __future__ import annotations

import pytest

from momopay.journal.identity import KeyIdentity


@pytest.mark.parametrize(
    ("key", "base_url", "mode", "host"),
    [
        ("pk_live_a", "https://Api.Example:8443/v1", "live", "api.example"),
        ("pk_test_a", "https://api.example/v1", "test", "api.example"),
        ("something", "https://api.example/v1", "test", "api.example"),
        ("pk_test_a", "http://127.0.0.1:8000/v1", "test", "loopback"),
        ("pk_test_a", "http://localhost:1/v1", "test", "loopback"),
        ("pk_test_a", "http://[::1]:1/v1", "test", "loopback"),
    ],
)
def test_mode_and_host(key: str, base_url: str, mode: str, host: str) -> None:
    identity = KeyIdentity.of(key, base_url)
    assert (identity.mode, identity.host) == (mode, host)
    assert key not in repr(identity)
