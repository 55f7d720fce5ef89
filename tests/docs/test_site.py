"""The built site: complete, and nothing is fetched from elsewhere."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import momopay
import momopay.events

FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src")}
TAG = re.compile(r"<[^>]+>")
BASES = re.compile(r"Bases: (.*?)</p>", re.DOTALL)


class Sources(HTMLParser):
    """The URLs that a page makes the browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "link" and named.get("rel") in {"canonical", "next", "prev"}:
            return
        self.found += [value for name, value in attrs if (tag, name) in FETCHED and value]
        self.found += re.findall(r"url\(['\"]?([^'\")]+)", named.get("style") or "")


def fetched(site: Path) -> Iterator[tuple[str, str]]:
    for page in site.rglob("*.html"):
        sources = Sources()
        sources.feed(page.read_text())
        yield from ((page.relative_to(site).as_posix(), source) for source in sources.found)
    for sheet in site.rglob("*.css"):
        for source in re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")\s]+)", sheet.read_text()):
            yield sheet.relative_to(site).as_posix(), source


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    every = list(fetched(site))
    assert len(every) > 100
    elsewhere = [(page, source) for page, source in every if urlsplit(source).scheme not in {"", "data"}]
    elsewhere += [(page, source) for page, source in every if source.startswith("//")]
    assert elsewhere == []


def test_every_fetched_file_exists(site: Path) -> None:
    for page, source in fetched(site):
        if source.startswith(("data:", "#")):
            continue
        path = urlsplit(source).path
        target = site / path.lstrip("/") if path.startswith("/") else (site / page).parent / path
        assert target.exists(), (page, source)


def test_diagrams_are_in_the_pages(site: Path) -> None:
    for page in ("collect", "pay-out", "understand/guarantee"):
        text = (site / page / "index.html").read_text()
        assert '<div class="diagram"><svg' in text
        assert "```" not in text
        assert "mermaid" not in text


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    shown = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    names = [f"{module.__name__}.{name}" for module in (momopay, momopay.types) for name in module.__all__]
    assert [name for name in names if f'id="{name}"' not in shown] == []


def test_every_operation_is_in_the_reference_and_in_its_table(site: Path) -> None:
    index = (site / "reference/index.html").read_text()
    shown = (site / "reference/operations/index.html").read_text()
    for kind in ("stk.Stk", "payouts.Payouts", "transactions.Transactions", "wallet.Wallet", "channels.Channels"):
        module, _, name = kind.partition(".")
        resource = getattr(momopay.types, name)
        for operation in (each for each in dir(resource) if not each.startswith("_")):
            assert re.search(rf'id="momopay\.types\.{name}\.{operation}"', shown), operation
            assert f">{module}.{operation}<" in index, operation


def test_the_reference_shows_public_base_classes_only(site: Path) -> None:
    shown = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    bases = {unescape(TAG.sub("", name)) for line in BASES.findall(shown) for name in TAG.sub("", line).split(",")}
    known = {
        *momopay.__all__,
        *momopay.types.__all__,
        *momopay.events.__all__,
        *vars(builtins),
        "Enum",
        "StrEnum",
        "Protocol",
        "BaseModel",
        "NamedTuple",
    }
    assert {name.strip() for name in bases} - known == set()
