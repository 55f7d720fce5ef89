"""The HTTP library. No other module of this package names it: `http` and, below it, `core` are httpx and httpcore.

Our own connections are of httpx. A transport that the user passes may be of httpx2 instead, which takes requests of its
own and raises errors of its own. Nothing here imports httpx2: whoever has a transport of it has imported it.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import httpcore as core
import httpx as http

__all__ = ["attempt_errors", "core", "http", "library_of", "not_sent_by_core", "not_sent_by_http"]

_HTTPX2: Final = "httpx2"
_HTTPCORE2: Final = "httpcore2"

# What ends an attempt. Other exceptions of a transport, such as a mock's AssertionError, pass through.
_OF_ATTEMPT: Final = (
    *("HTTPError", "InvalidURL", "StreamError"),
    *("ConnectionNotAvailable", "NetworkError", "ProtocolError", "ProxyError", "TimeoutException"),
    "UnsupportedProtocol",
)
_NOT_SENT: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol")


def library_of(transport: object) -> Any:
    """Return the library whose requests a transport takes: httpx2 if its class is derived from one there."""
    successor = sys.modules.get(_HTTPX2)
    bases = _classes(("BaseTransport", "AsyncBaseTransport"), successor)
    return successor if isinstance(transport, bases) else http


def attempt_errors() -> tuple[type[Exception], ...]:
    """Return what a transport raises if an attempt fails, whichever library it is of."""
    return (OSError, *_classes(_OF_ATTEMPT, http, core, *map(sys.modules.get, (_HTTPX2, _HTTPCORE2))))


def not_sent_by_http() -> tuple[type[Any], ...]:
    """Return what httpx and httpx2 raise if a request was not sent, and also for other reasons."""
    return _classes(_NOT_SENT, http, sys.modules.get(_HTTPX2))


def not_sent_by_core() -> tuple[type[Exception], ...]:
    """Return what httpcore and httpcore2 raise only if a request was not sent."""
    return _classes(_NOT_SENT, core, sys.modules.get(_HTTPCORE2))


def _classes(names: tuple[str, ...], *libraries: Any) -> tuple[type[Exception], ...]:
    # A library may not be there, or be under way in another thread's import.
    found = (getattr(library, name, None) for library in libraries for name in names)
    return tuple(each for each in found if each is not None)
