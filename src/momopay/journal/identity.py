"""What a journal belongs to, as a client shows it: the key's mode, the host, and a hash of the key. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from momopay._core.config import Account
from momopay._core.key_state import hash_of

_LIVE_PREFIX = "pk_live_"


@dataclass(frozen=True)
class KeyIdentity:
    """One API key at one address.

    Attributes:
        mode: Whether the key moves real money.
        host: The host of the service without port. All loopback addresses are one host, because a sandbox gets
            another port, and perhaps another name, at each start.
        key: A hash that does not show the key.
    """

    mode: Literal["live", "test"]
    host: str
    key: str


def identity_of(account: Account) -> KeyIdentity:
    """Return the identity of a client's key."""
    host = "loopback" if account.on_loopback else (urlsplit(account.base_url).hostname or "")
    return KeyIdentity("live" if account.api_key.startswith(_LIVE_PREFIX) else "test", host, hash_of(account))
