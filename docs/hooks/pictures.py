"""Put pictures that a build made in the place of the committed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def replace(files: Files, config: MkDocsConfig, made: Mapping[str, bytes]) -> Files:
    """Return the files with these in the place of the committed ones; the names are paths below docs."""
    from mkdocs.structure.files import File  # noqa: PLC0415  the pictures can be renewed without mkdocs

    for name, content in made.items():
        if (committed := files.get_file_from_path(name)) is not None:
            files.remove(committed)
        files.append(File.generated(config, name, content=content))
    return files
