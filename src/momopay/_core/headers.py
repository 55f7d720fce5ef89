"""The headers that a user adds to every request. Loaded only if there are any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from momopay import __version__
from momopay.errors import ConfigurationError

# What the SDK itself sends, and what would change where a request ends.
_RESERVED: Final = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Printable ASCII without spaces at the ends. A line break would begin another header.
_VALUE: Final = re.compile(r"(?:[!-~]+(?:[ \t]+[!-~]+)*)?")


def checked_headers(default_headers: object, app_info: object) -> dict[str, str]:
    """Return the headers that these two options add to every request, or raise ConfigurationError."""
    headers = dict[str, str]()
    if app_info is not None:
        if not isinstance(app_info, str) or not app_info or not _VALUE.fullmatch(app_info):
            raise ConfigurationError('app_info must be printable ASCII without spaces at its ends, such as "shop/1.2"')
        headers["User-Agent"] = f"momopay/{__version__} {app_info}"
    return headers if default_headers is None else merged(headers, default_headers)


def merged(headers: Mapping[str, str], more: object) -> dict[str, str]:
    """Return these headers with more of them, which replace those of the same name; raise ConfigurationError."""
    if not isinstance(more, Mapping):
        raise ConfigurationError("default_headers must be a mapping of names to values")
    new = dict[str, str]()
    given: Mapping[object, object] = more  # pyright: ignore[reportUnknownVariableType]
    for name, value in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError("default_headers has a name that is not a header's")
        if name.lower() in _RESERVED:
            raise ConfigurationError(f"default_headers must not name {name}, which the SDK or HTTP itself decides")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):  # not shown: it may be a secret
            raise ConfigurationError(f"default_headers: {name} must be printable ASCII without spaces at its ends")
        new[name] = value
    names = {name.lower() for name in new}
    if len(names) < len(new):
        raise ConfigurationError("default_headers has the same name twice")
    return {name: value for name, value in headers.items() if name.lower() not in names} | new
