"""The pages, held against SPEC.md: each citation leads to a section, each gap is treated."""

from __future__ import annotations

import re

import citations

from docs.blocks import PAGES, ROOT

SPEC = ROOT / "docs" / "specification.md"
GAP = re.compile(r"not shown(?! in)")
CLAUSE = re.compile(r'"([^"]*not shown[^"]*)"')


def flat(text: str) -> str:
    return " ".join(text.split())


def test_every_citation_leads_to_a_section() -> None:
    sources = [*PAGES, *(ROOT / "src").rglob("*.py")]
    cited = {(section, path.name) for path in sources for section in citations.sections_cited(flat(path.read_text()))}
    assert len(cited) > 20
    elsewhere = {each for each in cited if each[0] not in citations.anchors()}
    spec = flat(SPEC.read_text())
    assert sorted(each for each in elsewhere if each[0] not in spec) == []  # a part of a section is cited too


def test_each_gap_of_the_specification_is_quoted_and_treated() -> None:
    spec = flat(SPEC.read_text())
    gaps = flat((ROOT / "docs/design/gaps.md").read_text())
    treated: set[int] = set()
    for quote in CLAUSE.findall(gaps):
        if quote == "not shown":
            continue
        assert quote in spec, quote
        start = spec.index(quote)
        treated |= {start + found.start() for found in GAP.finditer(quote)}
    said = {found.start() for found in GAP.finditer(spec)}
    assert [spec[place - 60 : place + 9] for place in sorted(said - treated)] == []
