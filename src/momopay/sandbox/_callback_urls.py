"""Which callback URLs are accepted, and to which of them anything is ever sent: loopback and hosts that were named."""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from momopay.sandbox._refusals import invalid_field


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no port
    except ValueError:
        return None
    # urlsplit silently drops tabs and newlines, and a space would end the request line.
    plain = url.isascii() and url.isprintable() and " " not in url
    return parts if plain and parts.hostname and parts.scheme in {"http", "https"} else None


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_public(host: str) -> bool:
    """Return whether a host could be reached from outside: a public address, or a name with a dot in it."""
    try:
        address = ip_address(host)
    except ValueError:
        # No top-level domain begins with a digit: 10.1 and 0x7f.1 are addresses to a resolver.
        name, dot, top = host.rstrip(".").rpartition(".")
        return bool(name and dot and top[0].isalpha()) and not host.endswith((".localhost", ".local", ".internal"))
    return address.is_global and not address.is_multicast


def host_names(hosts: Collection[str]) -> frozenset[str]:
    """Return host names as they are compared.

    Raises:
        ValueError: One is no host name or address alone.
    """
    names = frozenset(host.lower() for host in hosts)
    for name in names:
        parts = _split(f"http://[{name}]" if ":" in name else f"http://{name}")
        if parts is None or parts.hostname != name or "*" in name:
            raise ValueError(f"{name!r} is not a host name or address alone, such as 'app'")
    return names


def check_callback_url(url: str | None, *, strict: bool, hosts: Collection[str] = ()) -> str | None:
    """Return the URL if it is public HTTPS; loopback and the named hosts pass too unless `strict`.

    Raises:
        Refusal: VALIDATION_ERROR.
    """
    if url is None:
        return None
    parts = _split(url)
    if parts is None or parts.hostname is None:
        raise invalid_field("callbackUrl", "must be an absolute HTTPS URL")
    known = may_be_sent(url, hosts) and not strict
    if not known and (parts.scheme != "https" or not is_public(parts.hostname)):
        raise invalid_field("callbackUrl", "must be HTTPS with a public host")
    return url


def may_be_sent(url: str, hosts: Collection[str] = ()) -> bool:
    """Return whether the sandbox really POSTs there: to loopback and the named hosts."""
    # Never anywhere else: the URLs in a test may be real, and their owners expect no made-up payments.
    parts = _split(url)
    if parts is None or parts.hostname is None:
        return False
    return is_loopback(parts.hostname) or parts.hostname in hosts
