"""Tables of the fields of a record or dataclass, or of the members of an enum, made from the class itself.

In a page, ``<!-- fields: momopay.Payout -->`` is replaced by the table of a record or dataclass, and
``<!-- members: momopay.TransactionStatus -->`` by that of an enum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from momopay.models.records import Record

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REQUEST = re.compile(r"<!-- (?P<what>fields|members): (?P<path>[\w.]+) -->")
SIMPLER = {"Id": "str", "Money": "Decimal", "ProviderCode": "ResultCode", "Timestamp": "datetime"}
"""Names that a reader knows, for the aliases in annotations."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each comment that requests a table by the table (a hook of mkdocs)."""
    del page, config, files
    return REQUEST.sub(lambda found: "\n".join(_table(found["what"], _class(found["path"]))), markdown)


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _table(what: str, kind: Any) -> Iterator[str]:
    if what == "members":
        yield from ("| name | value |", "|---|---|")
        yield from (f"| `{member.name}` | `{member.value}` |" for member in kind)
        return
    is_record = issubclass(kind, Record)
    yield "| attribute | type | on the wire |" if is_record else "| attribute | type |"
    yield "|---|---|---|" if is_record else "|---|---|"
    for name, annotation in _annotations(kind).items():
        row = f"| `{name}` | {_shown(annotation)} |"
        yield f"{row} {_on_the_wire(kind, name)} |" if is_record else row


def _annotations(kind: Any) -> dict[str, str]:
    """Return the fields' annotations as they are written, those of the base classes first."""
    names: set[str] = set(getattr(kind, "__dataclass_fields__", None) or kind.model_fields)
    ancestors: tuple[type, ...] = kind.__mro__
    annotations: dict[str, Any] = {}
    for ancestor in reversed(ancestors):
        annotations |= vars(ancestor).get("__annotations__", {})
    return {name: _text(annotation) for name, annotation in annotations.items() if name in names and name[0] != "_"}


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _shown(annotation: str) -> str:
    written = re.sub(r"Annotated\[(\w+), \w+\([^)]*\)\]", r"\1", annotation)
    plain = re.sub(r"\b(?:[a-z_]\w*\.)+", "", re.sub(r"\w+", lambda word: SIMPLER.get(word[0], word[0]), written))
    return f"`{plain.removesuffix(' | None')}`" + (" or None" if plain.endswith(" | None") else "")


def _on_the_wire(kind: Any, name: str) -> str:
    field = kind.model_fields[name]
    alias = field.validation_alias
    names = [name] if alias is None else [alias] if isinstance(alias, str) else list(alias.choices)
    if names != [name]:
        names = [*names, name] if name not in names and len(names) == 1 else names
    return ", ".join(f"`{each}`" for each in dict.fromkeys(map(str, names)))
