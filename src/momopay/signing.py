"""Sign callback URLs when a payment is sent, and verify them when a callback arrives. Pure.

Invariants: the signed message is the reference in hexadecimal, which needs no escaping and has only one spelling. Later
versions accept the tokens of earlier ones, because URLs are in use as long as payments are open.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import Final

from momopay._redaction import clears_frames
from momopay.errors import ConfigurationError, ForgedCallbackError, RequestValidationError
from momopay.urls import check_callback_url

_NAME: Final = "momo_token"
_PARAMETER: Final = _NAME + "="
# Keeps signatures that are made with the same secret for other purposes from being valid tokens, and vice versa.
_DOMAIN: Final = b"momopay callback URL, version 1\x00"
_STATUS_DOMAIN: Final = b"momopay status URL, version 1\x00"

_MIN_SECRET_BYTES: Final = 16
_MAX_REFERENCE_BYTES: Final = 1024
_MAX_URL_LENGTH: Final = 16 * 1024  # characters
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class CallbackSigner:
    """Signs callback (webhook) URLs, since the service signs no callbacks (service page, "Callbacks").

    `url` adds the payment's reference and an HMAC-SHA256 of it to the query string. `verify` checks them. The token
    covers the reference alone, so it stays valid behind a proxy that changes scheme, host, path or the order of the
    query. If two routes must not accept each other's callbacks, give each its own signer and secret. A token does not
    expire, and anybody who reads the URL has it, for example from an access log: check the callback with
    ``transactions.confirm``, too. Sends nothing. May be used from many threads.

    Args:
        secrets: One secret, or several for rotation: the first signs, all verify. Text or bytes, at least 16 bytes,
            from a random source such as ``secrets.token_hex()``. The signer does not keep them as they are.

    Raises:
        ConfigurationError: No secret, or one that is too short.
    """

    @clears_frames
    def __init__(self, secrets: str | bytes | Sequence[str | bytes]) -> None:
        # Keyed once and copied for each token, so that the secrets need not be kept.
        keys = _keys(secrets)
        self._macs: tuple[hmac.HMAC, ...] = tuple(hmac.new(key, _DOMAIN, "sha256") for key in keys)
        self._status_macs: tuple[hmac.HMAC, ...] = tuple(hmac.new(key, _STATUS_DOMAIN, "sha256") for key in keys)

    def url(self, url: str, *, reference: str) -> str:
        """Return a signed callback URL, to be passed as ``callback_url`` of the payment with this reference.

        Args:
            url: The address that receives the callback. Its query is kept.
            reference: The ``reference`` of ``collect_once`` or of a payout, or the ``account_reference`` of
                ``initiate``: any text up to 1,024 bytes. The adapters refuse the callback of another payment. For an
                order with a longer reference than the service takes, they need the journal.

        Returns:
            The URL with ``momo_token`` in its query, in ASCII for every reference.

        Raises:
            RequestValidationError: ``url`` is no URL or is signed already, or ``reference`` is empty or too long.
        """
        return _signed(self._macs[0], url, reference, _url_problem(url))

    def status_url(self, url: str, *, reference: str) -> str:
        """Return a signed URL of a ``status_endpoint``, which the page of a checkout polls.

        It shows the status of this one payment to anybody who has it, and nothing else: it does not open the callback's
        view, and a callback URL does not open the status.

        Args:
            url: The address of the status endpoint, also without a host, such as ``/status``. Its query is kept.
            reference: The ``reference`` of ``collect_once``.

        Raises:
            RequestValidationError: As for `url`, but that the address may have no host.
        """
        return _signed(self._status_macs[0], url, reference, _form_problem(url))

    def verify_status(self, url: str) -> str:
        """Return the reference that a status URL was signed for; raise ForgedCallbackError as `verify` does."""
        return _verified(self._status_macs, url)

    def verify(self, url: str) -> str:
        """Return the reference that a callback's URL was signed for. Call it before you use anything of the request.

        Args:
            url: The whole URL, its path and query, or the raw query string, as it was received and not decoded.

        Returns:
            The reference. It must equal ``transaction.external_reference`` of the callback, or belong to the order that
            has that ``wire_reference`` in the journal; the adapters compare them.

        Raises:
            ForgedCallbackError: The token is missing, repeated, malformed, or not of these secrets. Respond with 403.
        """
        return _verified(self._macs, url)

    def __repr__(self) -> str:
        return f"CallbackSigner(<secrets: {len(self._macs)}>)"


def _signed(mac: hmac.HMAC, url: str, reference: str, url_problem: str) -> str:
    problems = {"url": url_problem, "reference": _reference_problem(reference)}
    found = {name: problem for name, problem in problems.items() if problem}
    if found:
        raise RequestValidationError(found)
    joint = "" if url[-1] in "?&" else "&" if "?" in url else "?"
    message = reference.encode().hex()
    return f"{url}{joint}{_PARAMETER}{message}.{_signature(mac, message)}"


def _verified(macs: tuple[hmac.HMAC, ...], url: str) -> str:
    # Two tokens are refused, because a proxy and this code could each use a different one.
    if isinstance(url, str) and len(url) <= _MAX_URL_LENGTH and url.isascii() and url.count(_NAME) == 1:
        before, _, after = url.partition(_PARAMETER)
        if not before or before[-1] in "?&":
            message, _, signature = after.partition("&")[0].partition(".")
            for mac in macs:
                # In constant time, and before the message is decoded: a forgery must not reach the decoder.
                if hmac.compare_digest(_signature(mac, message), signature):
                    return bytes.fromhex(message).decode()
    raise ForgedCallbackError("the URL carries no valid token; respond with 403 and do nothing")


def _signature(mac: hmac.HMAC, message: str) -> str:
    copy = mac.copy()
    copy.update(message.encode())
    return copy.hexdigest()


def _keys(secrets: str | bytes | Sequence[str | bytes]) -> list[bytes]:
    several = (secrets,) if isinstance(secrets, str | bytes) else secrets
    if not isinstance(several, Sequence) or not several:
        raise ConfigurationError(
            "a CallbackSigner needs a secret, or several in a list; make one with secrets.token_hex()"
        )
    return [_key(secret) for secret in several]


def _key(secret: object) -> bytes:
    # Text with a surrogate is not encoded but refused: the repr of a UnicodeEncodeError would show the secret.
    key = secret.encode() if isinstance(secret, str) and not _SURROGATE.search(secret) else secret
    if not isinstance(key, bytes):
        raise ConfigurationError("a signing secret must be bytes, or text that can be encoded as UTF-8")
    if len(key) < _MIN_SECRET_BYTES:
        raise ConfigurationError(
            f"a signing secret must have at least {_MIN_SECRET_BYTES} bytes, or it can be guessed; make one with"
            " secrets.token_hex()"
        )
    return key


def _url_problem(url: object) -> str:
    try:
        # Any host is accepted here. The client that sends the URL checks whether the host must be public.
        return _form_problem(check_callback_url(url, on_loopback=True))
    except ValueError as error:
        return str(error)


def _form_problem(text: object) -> str:
    if not isinstance(text, str) or not text:
        return "must be text, and not empty"
    if "#" in text:
        return "must have no fragment, which is never sent to a server"
    return f"has a {_NAME} already" if _NAME in text else ""


def _reference_problem(reference: object) -> str:
    if not isinstance(reference, str) or not reference:
        return "must be text, and not empty"
    if _SURROGATE.search(reference):
        return "must be text that can be encoded as UTF-8"
    size = len(reference.encode())
    return f"must have at most {_MAX_REFERENCE_BYTES} bytes" if size > _MAX_REFERENCE_BYTES else ""
