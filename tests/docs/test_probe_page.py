"""The page of the probe describes every row, under what it costs."""

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


def test_the_page_describes_every_row() -> None:
    questions = (ROOT / "docs/go-live/probe.md").read_text().partition("## Every question")[2]
    described: list[tuple[str, Cost, bool]] = []
    for section in questions.split("\n### ")[1:]:
        title, _, table = section.partition("\n")
        names = re.findall(r"^\| (\**)`(\w+)`\** \| .+ \|$", table, re.MULTILINE)
        described += [(name, TITLES[title], bool(stars)) for stars, name in names]
    by_cost = [row for cost in TITLES.values() for row in ROWS if row.cost is cost]
    assert described == [(row.name, row.cost, row.is_switch) for row in by_cost]
