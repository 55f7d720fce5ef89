"""Requests, built from prepared headers and cached URLs.

httpx's own way parses the URL and sorts the headers for each request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import httpx

from momopay._transport.response import NotSentError


def common_headers(base_url: str, headers: Mapping[str, str]) -> httpx.Headers:
    """Return the headers of every request to one service."""
    return httpx.Headers({"Host": httpx.URL(base_url).netloc.decode("ascii"), **headers})


def build_request(
    method: str, url: str, headers: httpx.Headers, body: bytes | None, extensions: dict[str, Any]
) -> httpx.Request:
    """Return a request, or raise `NotSentError` if the URL is longer than httpx accepts."""
    raw = headers.raw
    if body is not None:
        raw = [*raw, (b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
    stream = httpx.ByteStream(body or b"")
    request = httpx.Request(method, _parsed_url(url), headers=raw, stream=stream, extensions=extensions)
    request.read()  # transports of httpx, and mocks, expect that the content can be had at once
    return request


@lru_cache(maxsize=256)
def _parsed_url(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except httpx.InvalidURL as error:
        raise NotSentError(str(error)) from error
