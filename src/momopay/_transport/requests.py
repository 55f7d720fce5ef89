"""Requests, built from what is known before: httpx's own way parses the URL and sorts the headers each time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import httpx

from momopay._transport.response import NotSentError

_url = lru_cache(maxsize=256)(httpx.URL)
_NO_BODY = httpx.ByteStream(b"")


def common_headers(base_url: str, headers: Mapping[str, str]) -> httpx.Headers:
    """Build the headers of every request to one service."""
    return httpx.Headers({"Host": httpx.URL(base_url).netloc.decode("ascii"), **headers})


def build_request(method: str, url: str, headers: httpx.Headers, body: bytes | None) -> httpx.Request:
    """Build one request; its content can be read, as transports expect.

    Raises:
        NotSentError: The URL is longer than httpx takes.
    """
    try:
        address = _url(url)
    except httpx.InvalidURL as error:
        raise NotSentError(str(error)) from None
    if body is None:
        request = httpx.Request(method, address, headers=headers, stream=_NO_BODY)
    else:
        of_the_body = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        everything = httpx.Headers([*headers.raw, *httpx.Headers(of_the_body).raw])
        request = httpx.Request(method, address, headers=everything, stream=httpx.ByteStream(body))
    request.read()
    return request
