"""Which callback URLs are taken, and to which of them anything is ever sent: loopback alone."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from momopay.sandbox._bodies import refuse


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no port
    except ValueError:
        return None
    plain = url.isascii() and url.isprintable() and " " not in url
    return parts if plain and parts.hostname and parts.scheme in {"http", "https"} else None


def is_loopback(host: str) -> bool:
    """Whether a host name or address stands for this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_public(host: str) -> bool:
    """Whether a host could be reached from outside: a public address, or a name with a dot in it."""
    try:
        address = ip_address(host)
    except ValueError:
        # No top-level domain begins with a digit: 10.1 and 0x7f.1 are addresses to a resolver.
        name, dot, top = host.rstrip(".").rpartition(".")
        return bool(name and dot and top[0].isalpha()) and not host.endswith((".localhost", ".local", ".internal"))
    return address.is_global and not address.is_multicast


def check(url: str | None, *, strict: bool) -> str | None:
    """The URL, if it is public HTTPS; loopback passes too unless `strict`.

    Raises:
        Refusal: VALIDATION_ERROR.
    """
    if url is None:
        return None
    parts = _split(url)
    if parts is None or parts.hostname is None:
        raise refuse("callbackUrl", "must be an absolute HTTPS URL")
    loopback = is_loopback(parts.hostname) and not strict
    if not loopback and (parts.scheme != "https" or not is_public(parts.hostname)):
        raise refuse("callbackUrl", "must be HTTPS with a public host")
    return url


def may_be_sent(url: str) -> bool:
    """Whether the sandbox really POSTs there."""
    parts = _split(url)
    return parts is not None and parts.hostname is not None and is_loopback(parts.hostname)
