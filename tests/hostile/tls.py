"""A certificate for localhost that the clients of a test trust."""

import ssl
from pathlib import Path

import pytest
import trustme

from momopay._transport import connections


def own_certificate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a certificate for localhost, and have the clients of this test trust it."""
    authority, trusted, pem = trustme.CA(), folder / "certificate", folder / "localhost.pem"
    authority.cert_pem.write_to_path(str(trusted))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(pem))
    monkeypatch.setattr(connections, "shared_tls_context", lambda: ssl.create_default_context(cafile=trusted))
    return pem
