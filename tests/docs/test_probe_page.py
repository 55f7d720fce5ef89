"""The page of the probe names every row, under what it costs."""

from __future__ import annotations

import re

from docs.blocks import ROOT
from momopay.probe import ROWS, Cost

TITLES = {
    "By reads": Cost.READS,
    "With `--write`": Cost.WRITE,
    "With `--rate`": Cost.RATE,
    "With `--spend`": Cost.SPEND,
    "Not from outside": Cost.OUTSIDE,
}


def test_the_page_names_every_row_under_what_it_costs() -> None:
    questions = (ROOT / "docs/go-live/probe.md").read_text().partition("## Every question")[2]
    named: set[tuple[str, Cost, bool]] = set()
    for section in questions.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        named |= {(name, TITLES[title], bool(stars)) for stars, name in re.findall(r"(\**)`([a-z_0-9]+)`", text)}
    assert named == {(row.name, row.cost, row.is_switch) for row in ROWS}
