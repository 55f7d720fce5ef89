"""Citations of the service page: each one names a section that exists, and becomes a link to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import citations
import pytest
from mkdocs.exceptions import PluginError

from docs.blocks import ROOT

CONFIG: Any = None
FILES: Any = None
PAGE: Any = SimpleNamespace(url="reference/callbacks/", file=SimpleNamespace(src_uri="reference/callbacks.md"))


def test_every_citation_names_a_section() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    cited = {
        (str(path.relative_to(ROOT)), section)
        for path in sources
        if path.parent != ROOT / "tests/docs"
        for section in citations.cited_sections(path.read_text())
    }
    assert sorted(each for each in cited if each[1] not in citations.anchors()) == []


def test_a_citation_becomes_a_link() -> None:
    linked = citations.on_page_content('<p>Sent once (service page, "Callbacks").</p>', PAGE, CONFIG, FILES)
    assert '"<a href="../../understand/service/#callbacks">Callbacks</a>"' in linked


def test_a_citation_may_name_two_sections_and_break_its_line() -> None:
    text = 'service page,\n    # "POST /b2c/payouts" and\n    # "Service wallet".'
    assert citations.cited_sections(text) == ["POST /b2c/payouts", "Service wallet"]


def test_a_citation_of_an_unknown_section_fails_the_build() -> None:
    with pytest.raises(PluginError, match="Webhooks"):
        citations.on_page_content('<p>See the service page, "Webhooks".</p>', PAGE, CONFIG, FILES)
