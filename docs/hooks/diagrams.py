"""The script that draws diagrams, on the pages that have one; it is large, and comes from this site alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mkdocs.utils import get_relative_url

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

SCRIPT = "assets/mermaid/mermaid.tiny.js"


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load it before the theme's own script, which would else look for it elsewhere (a hook of mkdocs)."""
    del config
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(SCRIPT, page.url)}"></script>'
    before, theme, after = output.rpartition('<script src="')
    return before + script + theme + after
