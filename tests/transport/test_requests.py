"""Requests in the two forms that transports take: the same bytes to the same place."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from momopay._transport import NotSentError, common_headers
from momopay._transport.requests import httpcore_request, httpx_request

URL = "https://api.example:8443/v1/transactions/a%2Fb%20c?q=x%26y&limit=1"
HEADERS = common_headers("https://api.example:8443/v1", {"Accept": "application/json"})


@pytest.mark.parametrize("body", [None, b"", b'{"amount": 1}'])
def test_both_forms_are_the_same_request(body: bytes | None) -> None:
    ours: Any = httpcore_request("POST", URL, HEADERS, body, {"timeout": {"read": 1.0}})
    theirs = httpx_request("POST", URL, HEADERS, body, {"timeout": {"read": 1.0}})
    assert ours.method == theirs.method.encode()
    assert (ours.url.scheme, ours.url.host, ours.url.port) == (b"https", b"api.example", 8443)
    assert ours.url.target == theirs.url.raw_path == b"/v1/transactions/a%2Fb%20c?q=x%26y&limit=1"
    assert ours.headers == theirs.headers.raw
    assert ours.extensions == theirs.extensions
    assert b"".join(ours.stream) == theirs.content == (body or b"")


def test_a_body_is_announced_with_its_type_and_length() -> None:
    headers = httpx_request("POST", URL, HEADERS, b'{"amount": 1}', {}).headers
    assert (headers["host"], headers["content-type"], headers["content-length"]) == (
        "api.example:8443",
        "application/json",
        "13",
    )
    assert "content-length" not in HEADERS


def test_a_get_announces_no_body() -> None:
    assert httpx_request("GET", URL, HEADERS, None, {}).headers == HEADERS


def test_a_url_that_is_too_long_was_not_sent() -> None:
    for form in (httpcore_request, httpx_request):
        with pytest.raises(NotSentError) as caught:
            form("GET", "https://api.example/v1/" + "x" * 70_000, HEADERS, None, {})
        assert isinstance(caught.value.__cause__, httpx.InvalidURL)
