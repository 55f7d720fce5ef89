"""Which URLs may be called, and which may be called back. Pure.

No name is resolved. It may resolve to another address at any moment, so a check of its address would prove nothing.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
_PATH = re.compile(r"/[0-9A-Za-z._~!$&'()*+,;=:@%/-]{1,2000}")
_IN_BRACKETS = re.compile(r"(?:[^\[\]]*@)?\[[^\[\]]*\](?::[0-9]*)?")


def check_base_url(url: str) -> str:
    """Return the normalised base address, without a trailing slash. Raise ValueError if it cannot be used."""
    parts = _split(url)
    if "?" in url or "#" in url or parts.username is not None:
        raise ValueError("must have no user, query or fragment; https://api.example/v1 is of the right shape")
    if parts.scheme == "http" and not is_loopback(url):
        raise ValueError("must start with https://, because the key and every phone number are sent to it")
    path = parts.path.rstrip("/")
    if not path.endswith("/v1"):  # anything else would answer 404 to every call
        raise ValueError("must have a path that ends in /v1, such as https://api.example/v1")
    return f"{parts.scheme}://{_authority(parts)}{path}"


def check_proxy_url(url: object) -> tuple[str, int, str | None]:
    """Return a proxy's host, port and "user:password". Raise ValueError if it cannot be used, without quoting it."""
    if not isinstance(url, str):
        raise ValueError("must be a URL such as http://proxy.example:3128")  # noqa: TRY004  every refusal is a ValueError
    if url.startswith(("https:", "socks")):
        raise ValueError("must be http://; for any other, pass transport=httpx.HTTPTransport(proxy=...)")
    parts = _split(url)
    if "?" in url or "#" in url or parts.path not in {"", "/"}:
        raise ValueError("must have no path, query or fragment")
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return parts.hostname or "", parts.port or 80, credentials


def host_and_port(url: str) -> tuple[str, int]:
    """Return the host and port of a base address that was checked before."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def is_loopback(url: str) -> bool:
    """Return whether a URL that was checked before leads to this machine."""
    # A name below localhost, such as x.localhost, does not count: many resolvers ask the network for it.
    host = _host(urlsplit(url))
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def check_callback_url(value: object, *, on_loopback: bool) -> str:
    """Return a callback URL unchanged. Raise ValueError if the service cannot reach it (service page, "Callbacks")."""
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004  every refusal is a ValueError
    parts = _split(value)
    if on_loopback:  # the service is the sandbox, which reaches any host, and without TLS
        return value
    if parts.scheme != "https":
        raise ValueError("must start with https://, such as https://shop.example/momopay")
    if not _is_public(_host(parts)):
        raise ValueError(
            "must name a public host, not loopback, a private range or a bare name: while you develop, use a tunnel"
        )
    return value


def check_path(value: object) -> str:
    """Return a path below the base address. Raise ValueError if it may lead elsewhere, however a server reads it."""
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise ValueError('must be a path below base_url, such as "/wallets/b2c/balance"; params= takes the query')
    decoded = fully_decoded(value)
    segments = [segment.partition(";")[0] for segment in re.split(r"[/\\]", decoded)[1:]]
    if {"", ".", ".."} & set(segments) or not decoded.isprintable() or "\ufffd" in decoded:
        raise ValueError("must not lead out of base_url, by // or .. or what is decoded as such")
    return value


def fully_decoded(path: str) -> str:
    """Return a path without any percent-encoding, however often it was encoded."""
    while (further := unquote(path)) != path:
        path = further
    return path


def _split(url: str) -> SplitResult:
    if not url.isascii() or any(character <= " " or character in '\x7f"<>\\^`{|}' for character in url):
        raise ValueError("must be a URL in ASCII, without spaces")
    parts: SplitResult | None
    port: int | None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Not chained, because urlsplit's message quotes a part of the URL, and a password may be in it.
        parts = port = None
    # urlsplit takes the text in the brackets for the host; another parser might take the text around them.
    if parts is None or ("[" in parts.netloc and not _IN_BRACKETS.fullmatch(parts.netloc)):
        raise ValueError("must be a URL")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError("must be an http:// or https:// URL with a host")
    if "" in _host(parts).split("."):
        raise ValueError("must be a URL whose host has no empty part")
    return parts


def _authority(parts: SplitResult) -> str:
    # Normalised, because clients of one service share a rate budget by this text.
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else (parts.hostname or "")
    return host if parts.port in {None, _PORTS[parts.scheme]} else f"{host}:{parts.port}"


def _host(parts: SplitResult) -> str:
    return (parts.hostname or "").rstrip(".")


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address  # ::ffff:127.0.0.1 is loopback


def _is_public(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_global and not address.is_multicast  # some multicast addresses are global, too
    last = host.rpartition(".")[2]
    # A last label of digits, or 0x and digits, is read as an IPv4 address by most clients: 127.1, 0x7f.1.
    return "." in host and not last.isdigit() and not last.startswith("0x") and last not in _LOCAL


_LOCAL = frozenset({"localhost", "local", "internal", "localdomain", "home", "lan"})
