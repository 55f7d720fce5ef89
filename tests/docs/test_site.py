"""The built site: every public name is in its reference, and in headless Chromium each page reads well."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import chromium
import pytest

import momopay
import momopay.events
from served import server_runs

TAG = re.compile(r"<[^>]+>")
BASES = re.compile(r"Bases: (.*?)</p>", re.DOTALL)


def test_diagrams_are_in_the_pages(site: Path) -> None:
    for page in ("collect", "pay-out", "understand/guarantee"):
        text = (site / page / "index.html").read_text()
        assert '<div class="diagram"><svg' in text
        assert "```" not in text
        assert "mermaid" not in text


@pytest.fixture(scope="module")
def reference(site: Path) -> str:
    return "".join(page.read_text() for page in (site / "reference").rglob("*.html"))


def test_every_public_name_is_in_the_reference(reference: str) -> None:
    names = [f"{module.__name__}.{name}" for module in (momopay, momopay.types) for name in module.__all__]
    assert [name for name in names if f'id="{name}"' not in reference] == []


def test_every_operation_is_in_the_reference(site: Path) -> None:
    shown = (site / "reference/operations/index.html").read_text()
    for kind in ("Stk", "Payouts", "Transactions", "Wallet", "Channels"):
        for operation in (each for each in dir(getattr(momopay.types, kind)) if not each.startswith("_")):
            assert f'id="momopay.types.{kind}.{operation}"' in shown, operation


def test_the_reference_shows_public_base_classes_only(reference: str) -> None:
    bases = {unescape(TAG.sub("", name)) for line in BASES.findall(reference) for name in TAG.sub("", line).split(",")}
    known = {*momopay.__all__, *momopay.types.__all__, *momopay.events.__all__, *vars(builtins)}
    known |= {"Enum", "StrEnum", "Protocol", "BaseModel", "NamedTuple"}
    assert {name.strip() for name in bases} - known == set()


browser = pytest.mark.browser

AUDIT = Path(__file__).with_name("audit.js").read_text()
SCREENS = ((390, "dark"), (1280, "light"))
"""Width and scheme; each page is loaded once, every second one on the phone, and then follows the window.

No rule depends on both at once.
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  the base class's name


class WithoutSearch(Quiet):
    """Serves no search, which every page makes ready: that takes longer than all else about it. The rest is cached."""

    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def do_GET(self) -> None:
        if self.path.endswith("/search_index.json"):
            body = json.dumps(json.loads(Path(self.translate_path(self.path)).read_text()) | {"docs": []}).encode()
        elif "/workers/search." in self.path:
            body = b""
        else:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(self.path))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(site: Path, handler: type[Quiet]) -> Generator[str]:
    with server_runs(ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(site)))) as url:
        yield f"{url}/"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site, WithoutSearch) as url:
        yield url


@pytest.fixture(scope="module")
def searchable(site: Path) -> Iterator[str]:
    """The address of the site with its whole index."""
    with served(site, Quiet) as url:
        yield url


@browser
def test_every_page_reads_well_on_a_phone_and_on_a_screen_in_both_schemes(
    site: Path, address: str, tab: chromium.Tab
) -> None:
    """Nothing scrolls sideways, prose is narrow, images load, contrasts suffice, the console has no error."""
    faults: list[str] = []
    paths = [page.relative_to(site).as_posix().removesuffix("index.html") for page in site.rglob("*.html")]
    assert len(paths) > 30
    for number, path in enumerate(paths):
        for screen, (width, scheme) in enumerate(SCREENS if number % 2 else reversed(SCREENS)):
            if screen or not number:  # else it is the window of the page before
                tab.set_window(width=width, height=800, scheme=scheme)
            if not screen:
                tab.open(address + path)
            faults += (f"{path} at {width}, {scheme}: {each}" for each in tab.evaluate(AUDIT))
    assert faults + tab.faults == []
    assert [url for url in tab.requested if not url.startswith((address, "data:", "blob:"))] == []


@browser
def test_the_audit_finds_what_it_looks_for(address: str, tab: chromium.Tab) -> None:
    tab.set_window(width=1280, height=800, scheme="light")
    tab.open(address)
    assert tab.evaluate(AUDIT) == []
    spoil = """
        const add = (html) => document.querySelector("article").insertAdjacentHTML("beforeend", html);
        add(`<p style="max-width: none; width: 1000px">${"a line of words ".repeat(20)}</p>`);
        add(`<p style="color: #999; background: #fff">pale</p>`);
        add(`<div style="width: 2000px">x</div>`);
        add(`<img src="/missing.png">`);
        add(`<table><tr><td>a</td><td>b</td><td>c</td></tr></table>`);
        add("<style>.md-typeset .md-code__nav { right: 30rem }</style>");
        console.error("it failed");
    """
    tab.evaluate(spoil)
    found = tab.evaluate(AUDIT)
    for fault in (
        *("too wide: ", "contrast of P", "the page scrolls sideways", "does not load: ", "cut off: ", "no labels: "),
        "a button",
    ):
        assert any(each.startswith(fault) for each in found), (fault, found)
    assert any("it failed" in each for each in tab.faults)


@browser
@pytest.mark.parametrize(
    "word",
    ["webhook", "refund", "receipt", "duplicate", "Daraja", "idempotency", "mobile money", "M-PESA", "mpesa"],
)
def test_the_search_finds_what_people_search_for(searchable: str, tab: chromium.Tab, word: str) -> None:
    tab.set_window(width=1280, height=800, scheme="light")
    tab.open(searchable)
    tab.evaluate(f"""(() => {{
        const input = document.querySelector(".md-search__input");
        input.focus();
        input.value = "{word}";
        input.dispatchEvent(new KeyboardEvent("keyup", {{bubbles: true}}));
    }})()""")
    tab.wait("document.querySelector('.md-search-result__item')", at_rest=False)
    assert tab.faults == []


@browser
def test_the_copy_button_takes_commands_without_the_prompt(address: str, tab: chromium.Tab) -> None:
    tab.open(f"{address}test/sandbox/")
    # What the theme copies: the text of the block while it has this attribute.
    copied = tab.evaluate("""(() => {
        const code = document.querySelector("article .highlight code");
        code.setAttribute("data-md-copying", "");
        return code.innerText;
    })()""")
    assert copied.split("\n")[:2] == [
        'pip install "momopay[sandbox]"',
        "python -m momopay.sandbox --port 8787 --speed 10",
    ]
    assert "Service" not in copied
