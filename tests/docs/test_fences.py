"""Rules for every page and every fenced block, whether it is run or not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from docs.blocks import PAGES, ROOT, Block, blocks_in
from docs.pages import is_run
from in_turn import in_turn
from patience import run_program

ALL = [block for page in PAGES for block in blocks_in(page)]
FENCES = [block for block in ALL if block.language != "check"]
LANGUAGES = {
    *("bash", "console", "csv", "ini", "json", "python", "states", "text", "toml"),
    *("dockerfile", "html", "yaml"),  # for containers, and a template
}
RUFF = (sys.executable, "-m", "ruff")
WIDEST = 88
"""Columns of a Python block. Wider ones scroll sideways even on a wide screen."""


def test_the_pages_are_short() -> None:
    words = {page.relative_to(ROOT).as_posix(): len(page.read_text().split()) for page in PAGES if page.parent != ROOT}
    assert sum(words.values()) <= 54_000
    looked_up = ("docs/reference/", "docs/understand/service.md")  # nobody reads these from start to end
    assert [page for page, count in words.items() if count > 3_000 and not page.startswith(looked_up)] == []


@in_turn("block", FENCES)
def test_a_fence_has_a_language_and_fits(block: Block) -> None:
    assert block.language in LANGUAGES
    assert block.language != "python" or [line for line in block.text.splitlines() if len(line) > WIDEST] == []
    if block.language == "json":
        json.loads(block.text)


def test_a_block_that_is_not_run_has_a_reason() -> None:
    noted = [block for block in ALL if block.note.startswith("not run")]
    assert [block.name for block in noted if not block.reason] == []
    assert [block.name for block in noted if block.language not in {"console", "python"}] == []


def test_the_python_blocks_are_formatted(tmp_path: Path) -> None:
    wanted = [block for block in FENCES if block.language == "python"]
    for block in wanted:
        (tmp_path / f"{block.name.replace('/', '_').replace(':', '_')}.py").write_text(block.text)
    assert len(wanted) > 0
    run_program([*RUFF, "format", "--check", "--isolated", f"--line-length={WIDEST}", tmp_path])


def test_a_page_defines_the_names_that_it_uses(tmp_path: Path) -> None:
    """A reader pastes the blocks of a page one after the other, without what the hidden checks define."""
    for page in PAGES:
        shown = [block.text for block in blocks_in(page) if is_run(block) and block.language == "python"]
        (tmp_path / f"{page.relative_to(ROOT).as_posix().replace('/', '_')}.py").write_text("\n".join(shown))
    assert len(list(tmp_path.iterdir())) == len(PAGES)
    run_program([*RUFF, "check", "--isolated", "--select=F821", tmp_path])
