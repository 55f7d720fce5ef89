"""The fenced code blocks of the pages, and the comments that say how to test them.

A page may have comments that are not shown to its readers:

    <!-- check ... -->            Python that runs here, between the blocks
    <!-- not run: the reason -->  the next fence is not run
    <!-- test file: name.py -->   the next fence is a test file, run by pytest with the plugin
    <!-- recipe: its name -->     the next fence is a program of its own, run by a test that has what it needs
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
_COMMENT = re.compile(r"<!--(?P<comment>.*?)-->", re.DOTALL)
_PIECE = re.compile(f"{_FENCE.pattern}|{_COMMENT.pattern}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fence, or the code of a comment.

    Attributes:
        page: The file that contains it.
        line: The line number of its first line of text.
        language: As the fence names it; ``check`` for the code of a comment.
        text: The text without the indentation of the fence.
        note: The comment right before the fence.
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
        return self.noted("not run:")

    @property
    def module(self) -> str | None:
        """The file of a package that it is, as its first line names it (``# shop/views.py``), or None."""
        first = re.match(r"# (\w+(?:/\w+)+)\.py$", self.text, re.MULTILINE)
        return None if first is None else first[1]

    @property
    def is_program(self) -> bool:
        """Return whether it shares no names with the other blocks of its page."""
        return self.noted("test file:") is not None or self.noted("recipe:") is not None

    def noted(self, prefix: str) -> str | None:
        """Return what the note says after this prefix, or None if it begins with another."""
        return self.note.removeprefix(prefix).strip() if self.note.startswith(prefix) else None


def blocks_in(page: Path) -> Iterator[Block]:
    whole = page.read_text()
    note = ""
    for found in _PIECE.finditer(whole):
        if found["comment"] is not None:
            comment = found["comment"].strip()
            if comment.startswith("check\n"):
                line = whole.count("\n", 0, whole.index("check\n", found.start())) + 2
                yield Block(page, line, "check", comment.removeprefix("check\n"))
            else:
                note = comment
            continue
        indent = len(found["indent"])
        # An empty line has no indentation to remove, and its line break must stay.
        lines = [line[min(indent, len(line) - 1) :] for line in found["text"].splitlines(keepends=True)]
        yield Block(page, whole.count("\n", 0, found.start("text")) + 1, found["language"], "".join(lines), note)
        note = ""
