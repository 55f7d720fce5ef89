"""The site in headless Chromium: narrow and wide, by day and by night, with nobody else to talk to."""

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


def test_no_page_scrolls_sideways_and_nothing_is_asked_of_others(site: Path, address: str, tab: chromium.Tab) -> None:
    tab.requested.clear()
    tab.dress(width=360, height=800, scheme="light")
    paths = [page.relative_to(site).as_posix().removesuffix("index.html") for page in site.rglob("index.html")]
    assert len(paths) > 30
    for path in paths:
        tab.show(address + path)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    asked = [url for url in tab.requested if not url.startswith((address, "data:", "blob:"))]
    assert asked == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_diagrams_are_drawn(address: str, tab: chromium.Tab, scheme: str) -> None:
    tab.dress(width=1400, height=900, scheme=scheme)
    drawn = "[...document.querySelectorAll('div.mermaid')].some((each) => each.offsetHeight > 200)"
    for page in ("guides/collect/", "guides/pay-out/", "design/guarantee/"):
        tab.show(address + page, until=drawn)
        assert tab.evaluate("document.querySelectorAll('pre.mermaid').length") == 0


@pytest.mark.parametrize(("scheme", "shown"), [("light", "phone-light"), ("dark", "phone-dark")])
def test_the_picture_goes_with_the_colours(address: str, tab: chromium.Tab, scheme: str, shown: str) -> None:
    tab.dress(width=1400, height=900, scheme=scheme)
    tab.show(address, until="document.querySelector('img.picture') !== null")
    visible = "[...document.querySelectorAll('img')].filter((each) => each.offsetHeight > 0).map((each) => each.src)"
    pictures = [source for source in tab.evaluate(visible) if "assets/phone-" in source]
    assert len(pictures) == 1
    assert shown in pictures[0]
