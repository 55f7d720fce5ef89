"""The site in headless Chromium: narrow and wide, light and dark, without a request to another host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import chromium
import pytest

from served import server_runs

pytestmark = pytest.mark.browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  the base class's name


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with server_runs(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))) as url:
        yield f"{url}/"


@pytest.fixture(scope="module")
def tab() -> Iterator[chromium.Tab]:
    program = chromium.find()
    if program is None:
        if os.environ.get("CI_REQUIRE_ALL") == "1":
            pytest.fail("chromium is required here, and it is missing")
        pytest.skip("needs chromium (Debian: chromium)")
    with chromium.tab(program) as tab:
        yield tab


def test_no_page_scrolls_sideways_and_nothing_is_requested_from_other_hosts(
    site: Path, address: str, tab: chromium.Tab
) -> None:
    tab.requested.clear()
    tab.set_window(width=360, height=800, scheme="light")
    paths = [page.relative_to(site).as_posix().removesuffix("index.html") for page in site.rglob("index.html")]
    assert len(paths) > 30
    for path in paths:
        tab.open(address + path)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    elsewhere = [url for url in tab.requested if not url.startswith((address, "data:", "blob:"))]
    assert elsewhere == []


@pytest.mark.parametrize("width", [360, 1400])
def test_diagrams_follow_the_scheme_and_fit(address: str, tab: chromium.Tab, width: int) -> None:
    text_colour = "getComputedStyle(document.querySelector('.diagram text')).fill"
    box = "document.querySelector('.diagram svg').getBoundingClientRect().toJSON()"
    for page in ("collect/", "pay-out/", "understand/guarantee/"):
        seen: set[str] = set()
        for scheme in ("light", "dark"):
            tab.set_window(width=width, height=900, scheme=scheme)
            tab.open(address + page)
            seen.add(tab.evaluate(text_colour))
            drawn = tab.evaluate(box)
            assert drawn["height"] > 180
            assert 0 <= drawn["left"] < drawn["right"] <= width
        assert len(seen) == 2, page


@pytest.mark.parametrize(("scheme", "shown"), [("light", "phone-light"), ("dark", "phone-dark")])
def test_the_screenshot_follows_the_scheme(address: str, tab: chromium.Tab, scheme: str, shown: str) -> None:
    tab.set_window(width=1400, height=900, scheme=scheme)
    tab.open(address, until="document.querySelector('img.picture') !== null")
    visible = "[...document.querySelectorAll('img')].filter((each) => each.offsetHeight > 0).map((each) => each.src)"
    pictures = [source for source in tab.evaluate(visible) if "assets/phone-" in source]
    assert len(pictures) == 1
    assert shown in pictures[0]
