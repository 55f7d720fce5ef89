"""Callback URLs that only their maker can have made: the token that goes in, and the check when it comes back. Pure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Final, NoReturn

from momopay._redaction import clears_frames
from momopay.errors import ConfigurationError, ForgedCallbackError, RequestValidationError
from momopay.urls import check_callback_url

__all__ = ["CallbackSigner"]

logger: logging.Logger = logging.getLogger("momopay")

_NAME: Final = "momo_token"
_PARAMETER: Final = _NAME + "="
_DOMAIN: Final = b"momopay callback URL, version 1\x00"
"""Whatever else is signed with the same secret is no token here, and no token is anything there."""

_BLOCK: Final = 64
_SHORTEST_SECRET: Final = 16
_LONGEST_REFERENCE: Final = 1024
_LONGEST_URL: Final = 16 * 1024


class CallbackSigner:
    """Signs callback URLs, since the service signs no callbacks (SPEC.md, "Events").

    `url` puts the payment's reference and an HMAC-SHA256 of it into the query string; `verify` takes them out again,
    with no call to the service. Whoever does not know the secret cannot make a URL for any reference.

    The token is bound to the reference alone, so that it survives a proxy that changes scheme, host, path or the
    order of the query. Where two routes must not take each other's callbacks, give each a signer with a secret of its
    own. A token does not expire, and whoever reads the URL, in an access log too, has it: hold the callback against the
    service's record with ``transactions.confirm`` too. Safe to use from many threads; sends nothing.

    Args:
        secrets: One secret, or several to rotate: the first signs, all verify. Text or bytes, from
            a random source such as ``secrets.token_hex()``; one under 16 bytes can be guessed, which the log says.
            Never shown, and not kept as they came.

    Raises:
        ConfigurationError: No secret, or an empty one. Mend the configuration.
    """

    __slots__ = ("_keyed",)

    @clears_frames
    def __init__(self, secrets: str | bytes | Sequence[str | bytes]) -> None:
        self._keyed: tuple[_Keyed, ...] = tuple(map(_Keyed, _keys(secrets)))

    def url(self, url: str, *, reference: str) -> str:
        """Sign a callback URL, to be passed as ``callback_url`` of the payment with this reference.

        Args:
            url: Where the callback is to come to. Its query is kept.
            reference: The payment's ``account_reference`` or ``reference``, any text up to 1,024 bytes; the adapters
                refuse a callback that tells of another one.

        Returns:
            The URL with ``momo_token`` in its query: ASCII, whatever the reference.

        Raises:
            RequestValidationError: Not a URL, or signed already; or not such a reference. Mend the arguments.
        """
        faults = {"url": _fault_of_url(url), "reference": _fault_of_reference(reference)}
        found = {name: fault for name, fault in faults.items() if fault}
        if found:
            raise RequestValidationError(found)
        joint = "" if url[-1] in "?&" else "&" if "?" in url else "?"
        told = reference.encode().hex()
        return f"{url}{joint}{_PARAMETER}{told}.{self._keyed[0].mac(told)}"

    def verify(self, url: str) -> str:
        """Check the URL that a callback came to, in constant time, before anything else is done with it.

        Args:
            url: The whole URL, its path and query, or the raw query string; as it came, not decoded.

        Returns:
            The reference that was signed. It must be the callback's own, ``transaction.external_reference``; the
            adapters see to that.

        Raises:
            ForgedCallbackError: The token is missing, doubled, malformed, or not of these secrets. Answer 403; act on
                nothing.
        """
        if isinstance(url, str) and len(url) <= _LONGEST_URL and url.isascii() and url.count(_NAME) == 1:
            before, _, after = url.partition(_PARAMETER)
            if not before or before[-1] in "?&":
                told, _, mac = after.partition("&")[0].partition(".")
                for keyed in self._keyed:
                    if compare_digest(keyed.mac(told), mac):
                        return bytes.fromhex(told).decode()
        raise ForgedCallbackError("the callback URL carries no valid token; answer 403 and act on nothing")

    def __repr__(self) -> str:
        return f"CallbackSigner(<secrets: {len(self._keyed)}>)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: secrets stay where they are."""
        raise TypeError("a CallbackSigner holds secrets and is not pickled; make one where it is needed")


def _keys(secrets: str | bytes | Sequence[str | bytes]) -> list[bytes]:
    several = (secrets,) if isinstance(secrets, str | bytes) else secrets
    if not isinstance(several, Sequence) or not several:
        raise ConfigurationError("a CallbackSigner needs a secret, or several in a list")
    return [_key(secret) for secret in several]


def _key(secret: object) -> bytes:
    try:
        key = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        key = None
    if not isinstance(key, bytes):
        raise ConfigurationError("a signing secret must be text or bytes")
    if not key:
        raise ConfigurationError("a signing secret must not be empty")
    if len(key) < _SHORTEST_SECRET:
        logger.warning("a signing secret has under %d bytes and can be guessed: make one anew", _SHORTEST_SECRET)
    return key


class _Keyed:
    """HMAC-SHA256 (RFC 2104) of one key, with both hashes begun: half the work of a copied `hmac.HMAC`."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._inner = sha256(bytes(byte ^ 0x36 for byte in block) + _DOMAIN)
        self._outer = sha256(bytes(byte ^ 0x5C for byte in block))

    def mac(self, told: str) -> str:
        """Sign what a token tells."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(told.encode())
        outer.update(inner.digest())
        return outer.hexdigest()


def _fault_of_url(url: object) -> str:
    try:
        text = check_callback_url(url, on_loopback=True)
    except ValueError as error:
        return str(error)
    if "#" in text:
        return "must have no fragment, which never reaches a server"
    return f"has a {_NAME} already" if _NAME in text else ""


def _fault_of_reference(reference: object) -> str:
    if not isinstance(reference, str) or not reference:
        return "must be text, and not empty"
    try:
        size = len(reference.encode())
    except UnicodeEncodeError:
        return "must be text that UTF-8 can write"
    return f"must have at most {_LONGEST_REFERENCE} bytes" if size > _LONGEST_REFERENCE else ""
