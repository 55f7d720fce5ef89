"""Requests: the bytes, and where they go."""

from __future__ import annotations

import httpx
import pytest

from momopay._transport import NotSentError, common_headers
from momopay._transport.requests import build_request

URL = "https://api.example:8443/v1/transactions/a%2Fb%20c?q=x%26y&limit=1"
HEADERS = common_headers("https://api.example:8443/v1", {"Accept": "application/json"})


@pytest.mark.parametrize("body", [None, b"", b'{"amount": 1}'])
def test_a_request_is_what_httpx_would_build(body: bytes | None) -> None:
    built = build_request("POST", URL, HEADERS, body, {"timeout": {"read": 1.0}})
    plain = httpx.Request("POST", URL, headers=HEADERS)
    assert (built.method, built.url, built.url.raw_path) == (plain.method, plain.url, plain.url.raw_path)
    assert built.extensions == {"timeout": {"read": 1.0}}
    assert built.content == (body or b"")


def test_a_body_is_announced_with_its_type_and_length() -> None:
    headers = build_request("POST", URL, HEADERS, b'{"amount": 1}', {}).headers
    assert (headers["host"], headers["content-type"], headers["content-length"]) == (
        "api.example:8443",
        "application/json",
        "13",
    )
    assert "content-length" not in HEADERS


def test_a_get_announces_no_body() -> None:
    assert build_request("GET", URL, HEADERS, None, {}).headers == HEADERS


def test_a_url_that_is_too_long_was_not_sent() -> None:
    with pytest.raises(NotSentError) as caught:
        build_request("GET", "https://api.example/v1/" + "x" * 70_000, HEADERS, None, {})
    assert isinstance(caught.value.__cause__, httpx.InvalidURL)
