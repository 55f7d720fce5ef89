"""What stands in a page's fences, and in the comments that say what to do with them.

A page may carry comments that its readers do not see:

    <!-- check ... -->            Python that runs at this place, between the blocks
    <!-- not run: the reason -->  the next fence is not run
    <!-- test file: name.py -->   the next fence is a file of tests, run by pytest with the plugin
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w+-]*)[^\n`]*\n(?P<text>.*?)^ *(?P=ticks)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"<!--(?P<said>.*?)-->", re.DOTALL)
_PIECE = re.compile(f"{_FENCE.pattern}|{_COMMENT.pattern}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fence, or code in a comment.

    Attributes:
        page: The file it stands in.
        line: The line of its first line of text.
        language: What the fence says; ``check`` for a comment's code.
        text: Without the indentation of its fence.
        note: The comment right before it, if it is for this fence.
    """

    page: Path
    line: int
    language: str
    text: str
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run, None if it is."""
        return self._noted("not run:")

    @property
    def test_file(self) -> str | None:
        """The name of the file of tests that it is, None if it is none."""
        return self._noted("test file:")

    def _noted(self, word: str) -> str | None:
        return self.note.removeprefix(word).strip() if self.note.startswith(word) else None


def blocks_in(page: Path) -> Iterator[Block]:
    """Give what a page holds, in its order."""
    whole = page.read_text()
    note = ""
    for found in _PIECE.finditer(whole):
        if found["said"] is not None:
            said = found["said"].strip()
            if said.startswith("check\n"):
                line = whole.count("\n", 0, whole.index("check\n", found.start())) + 2
                yield Block(page, line, "check", said.removeprefix("check\n"))
            else:
                note = said
            continue
        indent = len(found["indent"])
        lines = [line[indent:] for line in found["text"].splitlines(keepends=True)]
        yield Block(page, whole.count("\n", 0, found.start("text")) + 1, found["language"], "".join(lines), note)
        note = ""
