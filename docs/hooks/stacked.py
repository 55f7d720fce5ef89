"""Prepares tables that are too wide for a phone, where the style sheet shows each row as a block.

Each cell carries the heading of its column, which the block shows before the cell. The roles keep the table a table for
screen readers, since a browser may forget them when the rows are blocks.
"""

from __future__ import annotations

import re
from html import escape, unescape
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FEWEST = 3
"""Columns; a table of two fits on a phone, unless a long name leaves no room for the second."""
LONGEST = 20
"""Characters of a word in the first column of two."""
ROLES = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "th": "columnheader", "td": "cell"}
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_CELL = re.compile(r"<td\b[^>]*>(.*?)</td>", re.DOTALL)
_START = re.compile(rf"<({'|'.join(ROLES)})(?=[ >])")
_TAG = re.compile(r"<[^>]+>")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Add labels and roles to the page's wide tables (a hook of mkdocs)."""
    del page, config, files
    return _TABLE.sub(lambda found: labelled(found[0]), html)


def labelled(table: str) -> str:
    """Return the table with its labels and roles, or unchanged if it fits on a phone."""
    headings = [escape(_text(heading)) for heading in _HEADING.findall(table)]
    names = " ".join(map(_text, _CELL.findall(table)[:: len(headings)])).split()
    if len(headings) < FEWEST and max(map(len, names)) <= LONGEST:
        return table
    labels = cycle(headings)

    def start(tag: re.Match[str]) -> str:
        label = f' data-label="{next(labels)}"' if tag[1] == "td" else ""
        return f'<{tag[1]} role="{ROLES[tag[1]]}"{label}'

    return _START.sub(start, table)


def _text(html: str) -> str:
    return unescape(_TAG.sub("", html)).strip()
