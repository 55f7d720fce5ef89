"""Citations of the service page: each one names a section that exists, and becomes a link to it."""

from __future__ import annotations

import citations

from docs.blocks import ROOT


def test_every_citation_names_a_section() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    cited = {
        (str(path.relative_to(ROOT)), section)
        for path in sources
        if path.parent != ROOT / "tests/docs"
        for section in citations.cited_sections(path.read_text())
    }
    assert sorted(each for each in cited if each[1] not in citations.anchors()) == []
