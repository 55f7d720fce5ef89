"""Links each citation of the service page, such as `service page, "Callbacks"`, to its section.

A citation of a section that the page does not have fails the build.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markdown.extensions.toc import slugify
from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

SERVICE_PAGE = Path(__file__).parents[1] / "understand/service.md"
# A comment may break a citation over two lines, and its second line begins with a `#`.
_GAP = r"\s+(?:#\s*)?"
_TITLE = re.compile(r'"([^"<]+)"')
_CITATION = re.compile(
    rf'(?P<page>service{_GAP}page,{_GAP})(?P<titles>"[^"<]+"(?:(?:,|{_GAP}and){_GAP}"[^"<]+")*)', re.IGNORECASE
)


@cache
def anchors() -> dict[str, str]:
    """Return the anchor of each section of the service page by its title."""
    headings = re.findall(r"^##+ (.+)$", SERVICE_PAGE.read_text(), re.MULTILINE)
    return {heading: slugify(heading, "-") for heading in headings}


def cited_sections(text: str) -> list[str]:
    """Return the titles of the sections that a text cites."""
    return [_plain(title) for citation in _CITATION.finditer(text) for title in _TITLE.findall(citation["titles"])]


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn citations into links (a hook of mkdocs)."""
    del config, files
    target = get_relative_url("understand/service/", page.url)

    def link(title: re.Match[str]) -> str:
        if _plain(title[1]) not in anchors():
            raise PluginError(f"{page.file.src_uri} cites an unknown section of the service page: {title[0]}")
        return f'"<a href="{target}#{anchors()[_plain(title[1])]}">{title[1]}</a>"'

    return _CITATION.sub(lambda citation: citation["page"] + _TITLE.sub(link, citation["titles"]), html)


def _plain(title: str) -> str:
    return re.sub(r"\s+(?:#\s*)?", " ", title)
