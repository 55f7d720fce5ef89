"""Keeps other web sites out of the pages and the control routes, which ask for no key.

Any site that a developer visits can make the browser send requests to loopback; these checks are what stops it.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from momopay.sandbox._callback_urls import host_names, is_loopback
from momopay.sandbox._envelope import refusal_response
from momopay.sandbox._refusals import Refusal


class Guard:
    """The names under which the sandbox answers: those of loopback, and those that whoever started it has named."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        """`hosts` are the other names.

        Raises:
            ValueError: One is no host name or address alone.
        """
        self.hosts: frozenset[str] = host_names(hosts)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise if a request came under another name: that would be DNS rebinding.

        Raises:
            Refusal: FORBIDDEN.
        """
        try:
            name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name) and name not in self.hosts:
            others = " and those given as --allow-host" if self.hosts else ""
            raise Refusal("FORBIDDEN", f"The sandbox answers to loopback names{others} only")

    def check(self, request: HTTPConnection) -> None:
        """Raise if the request is not from the sandbox's own pages, or from a program.

        Raises:
            Refusal: FORBIDDEN, for another Host or a request made by another site.
        """
        self.check_host(request.headers)
        # Programs send neither header; browsers send one or both, and scripts cannot change them.
        origin, host = request.headers.get("origin"), request.headers.get("host")
        foreign = origin is not None and origin != f"{request.url.scheme}://{host}"
        if foreign or request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
            raise Refusal("FORBIDDEN", "Another site may not drive the sandbox")


class HostCheck:
    """Checks the Host of every request, /v1 included, on a server that other machines can reach."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        """Wrap an application."""
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._guard.check_host(Headers(scope=scope))
            except Refusal as refusal:
                await refusal_response(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)
