"""What a client pays with, as a journal remembers it. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import urlsplit

from momopay.urls import is_loopback


@dataclass(frozen=True)
class KeyIdentity:
    """What a client pays with.

    Attributes:
        mode: ``live`` if the key moves real money, else ``test``.
        host: The host of the base URL, in lower case and without port; ``loopback`` for each loopback host, because a
            sandbox gets another port, and perhaps another name, at each start.
        key: A hash of the API key.
    """

    mode: Literal["live", "test"]
    host: str
    key: str

    @classmethod
    def of(cls, api_key: str, base_url: str) -> Self:
        """Return the identity of a key at a base URL."""
        host = "loopback" if is_loopback(base_url) else (urlsplit(base_url).hostname or "").rstrip(".")
        mode: Literal["live", "test"] = "live" if api_key.startswith("pk_live_") else "test"
        return cls(mode, host, hashlib.sha256(api_key.encode()).hexdigest())
