"""Keeps other web sites out of the pages and the control routes, which ask for no key.

Any site that a developer visits can make the browser send requests to loopback; these checks are what stops it.
"""

from urllib.parse import urlsplit

from fastapi import Request

from momopay.sandbox._callback_urls import is_loopback
from momopay.sandbox._refusals import Refusal


def guard_host(request: Request) -> None:
    """Raise if the request came under a name that is not loopback's: that would be DNS rebinding.

    Raises:
        Refusal: FORBIDDEN.
    """
    try:
        host = request.headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise Refusal("FORBIDDEN", "The sandbox answers to a loopback Host only")


def guard(request: Request) -> None:
    """Raise if the request is not from this machine's own pages and programs.

    Raises:
        Refusal: FORBIDDEN, for a Host that is not loopback or a request made by another site.
    """
    guard_host(request)
    # Programs send neither header; browsers send one or both, and scripts cannot change them.
    origin, host = request.headers.get("origin"), request.headers.get("host")
    foreign = origin is not None and origin != f"{request.url.scheme}://{host}"
    if foreign or request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        raise Refusal("FORBIDDEN", "Another site may not drive the sandbox")
