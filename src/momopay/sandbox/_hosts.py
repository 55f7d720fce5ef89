"""Under which names the sandbox answers, and to which hosts callbacks go: loopback, and hosts that were named."""

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from momopay.sandbox._refusals import Refusal, invalid_field


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
    """Return host names as they are compared."""
    names = frozenset(host.lower() for host in hosts)
    for name in names:
        parts = _split(f"http://[{name}]" if ":" in name else f"http://{name}")
        if parts is None or parts.hostname != name or "*" in name:
            raise ValueError(f"{name!r} is not a host name or address alone, such as 'app'")
    return names


def check_callback_url(url: str | None, *, strict: bool, hosts: Collection[str] = ()) -> str | None:
    """Return the URL if it is public HTTPS; loopback and the named hosts pass too unless `strict`."""
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


class Guard:
    """Keeps other web sites out of the pages and the control routes, which ask for no key.

    Any site that a developer visits can make the browser send requests to loopback; these checks are what stops it.
    """

    def __init__(self, hosts: Collection[str] = ()) -> None:
        """The sandbox answers under the names of loopback, and under `hosts`."""
        self.hosts: frozenset[str] = host_names(hosts)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise if a request came under another name: that would be DNS rebinding."""
        try:
            name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name) and name not in self.hosts:
            others = " and those given as --allow-host" if self.hosts else ""
            raise Refusal("FORBIDDEN", f"The sandbox answers to loopback names{others} only")

    def check(self, headers: Mapping[str, str], scheme: str) -> None:
        """Raise if the request is not from the sandbox's own pages, or from a program."""
        self.check_host(headers)
        # Programs send neither header; browsers send one or both, and scripts cannot change them.
        origin = headers.get("origin")
        foreign = origin is not None and origin != f"{scheme}://{headers.get('host')}"
        if foreign or headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
            raise Refusal("FORBIDDEN", "Another site may not drive the sandbox")
