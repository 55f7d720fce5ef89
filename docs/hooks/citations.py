"""Links from each citation of SPEC.md, such as SPEC.md, "Events", to its section."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markdown.extensions.toc import slugify
from mkdocs.utils import get_relative_url

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

SPECIFICATION = Path(__file__).parents[1] / "specification.md"
CITED = re.compile(r'(?P<title>SPEC\.md,\s+(?:sections?\s+)?)(?P<sections>"[^"<]+"(?:(?:,|\s+and)\s+"[^"<]+")*)')
_SECTION = re.compile(r'"([^"<]+)"')


@cache
def anchors() -> dict[str, str]:
    """Give each section's anchor, by its title; an endpoint's also by what stands before the colon."""
    headings = re.findall(r"^#+ (.+)$", SPECIFICATION.read_text(), re.MULTILINE)
    found = {heading: slugify(heading, "-") for heading in headings}
    return found | {heading.partition(":")[0]: anchor for heading, anchor in found.items()}


def sections_cited(text: str) -> list[str]:
    """Give the titles of the sections that a text cites."""
    return [" ".join(title.split()) for cited in CITED.finditer(text) for title in _SECTION.findall(cited["sections"])]


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn citations into links (a hook of mkdocs)."""
    del config, files
    target = get_relative_url("specification/", page.url)

    def linked(section: re.Match[str]) -> str:
        anchor = anchors().get(" ".join(section[1].split()))
        return section[0] if anchor is None else f'"<a href="{target}#{anchor}">{section[1]}</a>"'

    return CITED.sub(lambda cited: cited["title"] + _SECTION.sub(linked, cited["sections"]), html)
