"""Which address may be called, and which may be called back. Looks at the text alone; resolves no names."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

_IN_BRACKETS = re.compile(r"(?:[^\[\]]*@)?\[[^\[\]]*\](?::[0-9]*)?")


def check_base_url(url: str) -> str:
    """Check the service's base address and take off a trailing slash.

    Raises:
        ValueError: Not an address, with a query, or without TLS to a host that is not loopback.
    """
    parts = _split(url)
    if "?" in url or "#" in url or parts.username is not None:
        raise ValueError("must have no user, query or fragment")
    if parts.scheme == "http" and not is_loopback(url):
        raise ValueError("must start with https://, since the key and every phone number travel over it")
    return f"{parts.scheme}://{_authority(parts)}{parts.path.rstrip('/')}"


def is_loopback(url: str) -> bool:
    """Tell whether an address, already known to be one, leads to this very machine.

    A name below localhost does not: many resolvers ask the network for it.
    """
    host = _host(urlsplit(url))
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def check_callback_url(value: object, *, on_loopback: bool) -> str:
    """Check where the result is to be sent: public HTTPS (SPEC.md, "Events").

    Args:
        value: The callback URL.
        on_loopback: The service itself is on loopback (the sandbox), so its callbacks may be too.

    Returns:
        The URL, untouched.

    Raises:
        ValueError: Says what is wrong with it.
    """
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004  every refusal is a ValueError
    parts = _split(value)
    if on_loopback:
        return value
    if parts.scheme != "https":
        raise ValueError("must start with https://")
    if not _is_public(_host(parts)):
        raise ValueError("must name a public host, not loopback, a private range or a bare name")
    return value


def _split(url: str) -> SplitResult:
    if not url.isascii() or any(character <= " " or character in '\x7f"<>\\^`{|}' for character in url):
        raise ValueError("must be a URL in ASCII, without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("must be a URL") from None
    if "[" in parts.netloc and not _IN_BRACKETS.fullmatch(parts.netloc):
        raise ValueError("must be a URL")  # urlsplit may see the brackets alone, and another reader what is around them
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError("must be an http:// or https:// URL with a host")
    if "" in _host(parts).split("."):
        raise ValueError("must be a URL whose host has no empty part")
    return parts


def _authority(parts: SplitResult) -> str:
    """Host and port in the one spelling, so that one service is one service."""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else (parts.hostname or "")
    return host if parts.port in {None, {"http": 80, "https": 443}[parts.scheme]} else f"{host}:{parts.port}"


def _host(parts: SplitResult) -> str:
    return (parts.hostname or "").rstrip(".")


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_public(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_global and not address.is_multicast
    last = host.rpartition(".")[2]
    # A last label of digits, or 0x and digits, is read as an IPv4 address by most clients: 127.1, 0x7f.1.
    return "." in host and not last.isdigit() and not last.startswith("0x") and last not in _LOCAL


_LOCAL = frozenset({"localhost", "local", "internal", "localdomain", "home", "lan"})
