"""Which addresses the service may have, and which may be called back."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_turn import in_turn
from momopay.urls import check_base_url, check_callback_url, check_proxy_url, host_and_port, is_loopback

PUBLIC = [
    *("https://shop.example/momo", "https://shop.example", "https://shop.example/"),
    *("https://shop.example:8443/momo?order=42&token=a%2Fb#x", "https://sub.shop.co.ke/a/b"),
    *("https://xn--bcher-kva.example/momo", "https://8.8.8.8/momo", "https://172.15.255.255/momo"),
    *("https://172.32.0.1/momo", "https://192.169.0.1/momo", "https://11.0.0.1/momo"),
    *("https://[2606:4700:4700::1111]/momo", "https://localhost.example/momo", "https://10.example/momo"),
    *("HTTPS://SHOP.EXAMPLE/momo", "https://shop.example:1/momo"),
]
NOT_PUBLIC = [
    *("http://shop.example/momo", "http://8.8.8.8/momo", "HTTP://shop.example"),
    *("https://localhost", "https://localhost:8000/momo", "https://LocalHost/momo", "https://localhost./momo"),
    *("https://a.localhost/momo", "https://127.0.0.1/momo", "https://127.0.0.1./momo"),
    *("https://127.255.255.254/momo", "https://127.1/momo", "https://0/momo", "https://0.0.0.0/momo"),
    *("https://2130706433/momo", "https://0x7f.0.0.1/momo", "https://0x7f000001/momo", "https://127.0.0.0x1/momo"),
    *("https://0177.0.0.1/momo", "https://017700000001/momo", "https://10.0.0.1/momo", "https://10.1/momo"),
    *("https://172.16.0.1/momo", "https://172.31.255.255/momo", "https://192.168.0.1/momo"),
    *("https://169.254.169.254/momo", "https://100.64.0.1/momo", "https://224.0.0.1/momo"),
    *("https://255.255.255.255/momo", "https://[::1]/momo", "https://[::]/momo"),
    *("https://[0:0:0:0:0:0:0:1]:443/momo", "https://[fe80::1]/momo", "https://[fe80::1%25eth0]/momo"),
    *(f"https://shop.{name}/momo" for name in ("localhost", "local", "internal", "localdomain", "home", "lan")),
    *("https://[fc00::1]/momo", "https://[fd12:3456::1]/momo", "https://[::ffff:127.0.0.1]/momo"),
    *("https://[::ffff:192.168.0.1]/momo", "https://user@127.0.0.1/momo", "https://shop.example@127.0.0.1/momo"),
    *("https://\uff11\uff12\uff17.0.0.1/momo", "https://127。0。0。1/momo", "https://ⓛocalhost/momo"),
]
NO_URLS: list[Any] = [
    *("", " ", "momo", "/momo", "//shop.example/momo", "shop.example/momo", "https:", "https://", "https:///momo"),
    *("https://:443/momo", "https:shop.example", "https:/shop.example", "https://[::1/momo"),
    *("https://[not-an-address]/momo", "https://shop.example:0x50/momo", "https://shop.example:99999/momo"),
    "https://shop.example:0/momo",
    *("https://shop.example:-1/momo", "https://shop example/momo", "https://shop.example/mo mo"),
    *(" https://shop.example/momo", "https://shop.example/momo\n", "https://shop.example/\r\nX-Evil: 1"),
    *("https://shop.example/\tmomo", "https://shop.example/\x00", "https://shop\\.example/momo"),
    *("https://shop..example/momo", "https://-/momo\ud800", None, 5, True, b"https://shop.example/momo"),
    ["https://shop.example/momo"],
]
OTHER_SCHEMES = [
    *("ftp://shop.example/momo", "ws://shop.example/momo", "file:///etc/passwd"),
    *("javascript:alert(1)", "data:text/plain,x", "httpss://shop.example"),
]


@in_turn("url", PUBLIC)
def test_public_https_is_accepted_as_it_was_given(url: str) -> None:
    assert check_callback_url(url, on_loopback=False) == check_callback_url(url, on_loopback=True) == url


@in_turn("url", NOT_PUBLIC)
def test_a_host_that_is_not_public_or_plain_http_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_callback_url(url, on_loopback=False)


@in_turn("url", [*NO_URLS, *OTHER_SCHEMES])
def test_what_is_no_web_address_is_refused_on_loopback_too(url: Any) -> None:
    for on_loopback in (False, True):
        with pytest.raises(ValueError, match="must"):
            check_callback_url(url, on_loopback=on_loopback)


def test_the_refusal_of_a_url_shows_no_part_of_it() -> None:
    for url in ("https://user:canary/x@shop.example", "https://[canary]/", "https://shop.example:canary/"):
        with pytest.raises(ValueError, match="must be a URL") as caught:
            check_callback_url(url, on_loopback=False)
        assert caught.value.__context__ is None


@in_turn(
    "url",
    [
        *("http://localhost:8000/momo", "http://127.0.0.1:8000/momo", "http://[::1]:8000/momo"),
        *("http://10.0.0.1/momo", "https://localhost/momo", "http://shop.example/momo"),
    ],
)
def test_a_service_on_loopback_may_call_back_anywhere(url: str) -> None:
    assert check_callback_url(url, on_loopback=True) == url


@given(st.text(alphabet=st.characters()) | st.text(alphabet="htps:/.[]@%?#019afl ", max_size=40))
def test_any_text_is_a_callback_url_or_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"https://shop.example/{text}"):
        try:
            assert check_callback_url(url, on_loopback=False) == url
        except ValueError:
            continue
        assert url.lower().startswith("https://")


@in_turn(
    ("url", "expected"),
    [
        *(("https://api.example/v1", "https://api.example/v1"), ("https://api.example/v1/", "https://api.example/v1")),
        ("https://api.example:8443/v1", "https://api.example:8443/v1"),
        *(("https://10.0.0.1/v1", "https://10.0.0.1/v1"), ("http://127.0.0.1:8787/v1", "http://127.0.0.1:8787/v1")),
        *(("http://localhost:8787/v1/", "http://localhost:8787/v1"), ("http://[::1]:8787/v1", "http://[::1]:8787/v1")),
        *(("HTTPS://API.Example:443/v1", "https://api.example/v1"), ("http://127.0.0.1:80/v1", "http://127.0.0.1/v1")),
    ],
)
def test_a_base_url_is_accepted_without_its_last_slash(url: str, expected: str) -> None:
    assert check_base_url(url) == expected


PLAIN = [
    *("HTTP://api.example/v1", "hTTp://api.example/v1", "http://localhost.evil.example/v1"),
    *("http://evil.localhost/v1", "http://127.0.0.1.evil.example/v1", "http://127.0.0.1@evil.example/v1"),
    *("http://127.0.0.1:80@evil.example/v1", "http://evil.example\\@127.0.0.1/v1"),
    *("http://evil.example#@127.0.0.1/v1", "http://evil.example?@127.0.0.1/v1", "http://127.0.0.1%2eevil.example/v1"),
    *("http://localhost%00.evil.example/v1", "http://localhost\u3002evil.example/v1"),
    *("http://\uff11\uff12\uff17.0.0.1/v1", "http://\u2460\u2461\u2466.0.0.1/v1", "http://0x7f.1/v1"),
    *("http://0x7f000001/v1", "http://2130706433/v1", "http://0177.0.0.1/v1", "http://127.1/v1"),
    *("http://128.0.0.1/v1", "http://[::2]/v1", "http://[::ffff:10.0.0.1]/v1", "http://[::1].evil.example/v1"),
    *("http://[::1]evil.example/v1", "http://evil.example[::1]/v1", "http://[::1%25lo]@evil.example/v1"),
    *("http:evil.example/v1", "http:///evil.example/v1", "http:/\\evil.example/v1"),
    *("http://localhost,evil.example/v1", "\thttp://127.0.0.1/v1", "http://127.0.0.1/v1\n", "ws://127.0.0.1/v1"),
    "httpx://127.0.0.1/v1",
]
"""Tricks to have the key sent in plain text to another machine."""


@in_turn(
    "url",
    [
        *("http://api.example/v1", "http://10.0.0.1/v1", "http://192.168.0.1/v1", "http://127.0.0.1.example/v1"),
        *("http://localhost.example/v1", "http://x.localhost/v1", "http://localhost@api.example/v1"),
        *("http://0.0.0.0/v1", "http://[::]/v1", "https://api.example/v1?key=x", "https://api.example/v1#x"),
        *("https://user:word@api.example/v1", "https://api.example/v1X"),
        *(each for each in NO_URLS if isinstance(each, str)),
        *OTHER_SCHEMES,
        *PLAIN,
    ],
)
def test_another_base_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_base_url(url)


@given(
    st.text(alphabet="127.0:@[]/\\#?%localhostevil-x\u3002\uff11", max_size=24)
    | st.sampled_from(PLAIN).map(lambda url: url.partition("://")[2])
)
def test_what_is_taken_over_plain_http_is_this_machine_to_httpx_too(rest: str) -> None:
    """Two parsers of one address must not see two hosts in it."""
    try:
        host = httpx.URL(check_base_url(f"http://{rest}")).host
    except (ValueError, httpx.InvalidURL):
        return
    assert host.rstrip(".") == "localhost" or host.startswith("127.") or host in {"::1", "[::1]"}


@in_turn(
    ("url", "expected"),
    [
        *(("http://127.0.0.1:1/v1", True), ("http://127.9.9.9/v1", True), ("http://localhost/v1", True)),
        *(("http://LOCALHOST:80/v1", True), ("http://[::1]/v1", True), ("https://127.0.0.1/v1", True)),
        *(("https://api.example/v1", False), ("https://10.0.0.1/v1", False), ("https://127.0.0.1.example/v1", False)),
        *(("https://localhost.example/v1", False), ("http://x.localhost/v1", False)),
        *(("http://x.localhost./v1", False), ("http://[::ffff:127.0.0.1]/v1", True), ("http://localhost./v1", True)),
        ("https://localhost@api.example/v1", False),
    ],
)
def test_which_addresses_are_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


@in_turn(
    ("url", "host", "port"),
    [
        *(("https://api.example/v1", "api.example", 443), ("https://api.example:8443/v1", "api.example", 8443)),
        *(("http://127.0.0.1/v1", "127.0.0.1", 80), ("http://[::1]:5000/v1", "::1", 5000)),
    ],
)
def test_where_a_base_address_leads_to(url: str, host: str, port: int) -> None:
    assert host_and_port(url) == (host, port)


def test_where_a_proxy_is() -> None:
    assert check_proxy_url("http://proxy.example") == ("proxy.example", 80, None)
    assert check_proxy_url("http://clerk:p%40ss@[::1]:3128/") == ("::1", 3128, "clerk:p@ss")
    assert check_proxy_url("http://clerk@proxy.example:1") == ("proxy.example", 1, "clerk:")


@in_turn(
    ("url", "problem"),
    [
        *((None, "must be a URL such as"), (b"http://proxy.example", "must be a URL such as")),
        *((f"{scheme}://proxy.example", "must be http://; for any other") for scheme in ("https", "socks5", "socks5h")),
        *((f"http://proxy.example{end}", "must have no path") for end in ("/x", "?", "?x=1", "#", "#x", "/?x", "/#x")),
    ],
)
def test_another_proxy_is_refused_and_not_shown(url: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        check_proxy_url(url)
    assert "proxy.example" not in str(caught.value).replace("http://proxy.example:3128", "")
