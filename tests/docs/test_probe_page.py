"""The page of the probe lists every row. As a script, it writes the list anew."""

from __future__ import annotations

import citations

from docs.blocks import ROOT
from momopay.probe import ROWS, Cost

PAGE = ROOT / "docs/go-live/probe.md"
MARK = "<!-- rows -->\n"
TITLES = {
    Cost.READS: "By reads",
    Cost.WRITE: "With `--write`",
    Cost.RATE: "With `--rate`",
    Cost.SPEND: "With `--spend`",
    Cost.OUTSIDE: "Not from outside",
}


def listed() -> str:
    lines: list[str] = []
    for cost, title in TITLES.items():
        asked = "What it would take" if cost is Cost.OUTSIDE else "How it is asked"
        lines += ["", f"### {title}", "", f"| Name | {asked} | Left open under |", "|---|---|---|"]
        for row in ROWS:
            if row.cost is cost:
                name = f"**`{row.name}`**" if row.is_switch else f"`{row.name}`"
                text = row.needs.removeprefix("Cannot be found from outside") if cost is Cost.OUTSIDE else row.asked
                text = text.removeprefix(": ").strip()
                link = f"[{row.section}](../understand/service.md#{citations.anchors()[row.section]})"
                lines.append(f"| {name} | {text[0].upper()}{text[1:]} | {link} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_row() -> None:
    assert PAGE.read_text().partition(MARK)[2] == listed()


if __name__ == "__main__":
    PAGE.write_text("".join(PAGE.read_text().partition(MARK)[:2]) + listed())
