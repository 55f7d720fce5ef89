"""The whole public interface on one page, for assistants: in the page that asks for it, in llms.txt, in the package.

``<!-- interface -->`` in a page is replaced by every public name with its signature. As a program, this writes
``src/momopay/llms.txt``: that page, without what only its tests need. A test holds it up to date.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

import momopay
from momopay import sandbox, types

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/interface.md"
COPY = ROOT / "src/momopay/llms.txt"
MARK = "<!-- interface -->"
GROUPS = ("Stk", "Payouts", "Transactions", "Wallet", "Channels")
_MODULES = re.compile(r"\b(?:momopay(?:\.\w+)*|typing|collections\.abc|datetime|pathlib(?:\.\w+)*)\.(?=[A-Z])")
_COMMENT = re.compile(r"<!--(?!/).*?-->\n*", re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the page into the site's llms.txt, before its links (a hook of mkdocs)."""
    plugins: dict[str, Any] = dict(config.plugins)
    plugins["llmstxt"].config["markdown_description"] = text().partition("\n\n")[2]
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the comment that asks for the interface (a hook of mkdocs)."""
    del page, config, files
    return markdown.replace(MARK, interface())


def text() -> str:
    """Return the page as assistants read it."""
    whole = PAGE.read_text().replace(MARK, interface())
    return _LINK.sub(r"\1", _COMMENT.sub("", whole)).rstrip() + "\n"


def interface() -> str:
    """Return every public name with its signature, as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "## Every operation\n"
    yield "Each is `client.<group>.<name>`; on an `AsyncClient`, awaited. Of a field, `X?` is `X | None`.\n"
    for group in GROUPS:
        yield f"### client.{group.lower()}\n\n```python"
        for name, member in _members(getattr(types, group)).items():
            if not name.startswith("_"):
                yield f"# {_summary(member)}"
                yield f"{name}{_signature(getattr(member, '__wrapped__', member))}"
        yield "```\n"
    results = [name for name in types.__all__ if is_dataclass(getattr(types, name))]
    for heading, source, names in (
        ("Clients, the journal, functions", momopay, _made()),
        ("Records", momopay, _records()),
        ("What calls return, in `momopay.types`", types, results),
        ("Enums", momopay, _enums()),
        ("The sandbox, in `momopay.sandbox`", sandbox, ["Sandbox", "phone_for", "Outcome", "Fault"]),
    ):
        yield f"## {heading}\n\n```python"
        for name in names:
            yield from _described(name, getattr(source, name))
        yield "```\n"
    yield "## Errors\n\nAll are `MomoPayError`s; in brackets the class above, if another.\n"
    for name in (each for each in momopay.__all__ if each.endswith("Error")):
        kind = getattr(momopay, name)
        above = kind.__mro__[1].__name__
        shown = "" if above in {"MomoPayError", "Exception"} else f" ({above})"
        yield f"- `{name}`{shown}: {_summary(kind)}"


def _members(kind: type) -> dict[str, Any]:
    return dict(vars(kind))


def _made() -> list[str]:
    others = {*_records(), *_enums()}
    return [each for each in momopay.__all__ if each not in others and not each.endswith("Error")]


def _records() -> list[str]:
    return [name for name in momopay.__all__ if _is_record(getattr(momopay, name))]


def _enums() -> list[str]:
    return [
        name for name in momopay.__all__ if inspect.isclass(each := getattr(momopay, name)) and issubclass(each, Enum)
    ]


def _is_record(value: Any) -> bool:
    return (
        inspect.isclass(value)
        and (issubclass(value, BaseModel) or is_dataclass(value))
        and value is not momopay.PollSchedule
    )


def _described(name: str, value: Any) -> Iterator[str]:
    yield f"# {_summary(value)}"
    if not inspect.isclass(value):
        yield f"{name}{_signature(value)}"
    elif issubclass(value, Enum):
        yield f"{name}: {', '.join(member.name for member in value)}"
    elif _is_record(value):
        yield f"{name}: {', '.join(_fields(value))}"
    else:
        yield f"{name}{_signature(value)}"
        methods = {name: member for base in reversed(_own(value)) for name, member in vars(base).items()}
        for method, member in methods.items():
            if isinstance(member, property) and not method.startswith("_"):
                yield f"    .{method}: {_returned(member)}  # {_summary(member)}"
            elif not method.startswith("_") and callable(getattr(value, method)):
                yield f"    .{method}{_signature(getattr(value, method))}  # {_summary(member)}"


def _fields(kind: Any) -> Iterator[str]:
    """Yield each attribute with its type, as it is written."""
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else list(kind.model_fields)
    written = {name: kind for base in reversed(_own(kind)) for name, kind in inspect.get_annotations(base).items()}
    yield from (f"{name}: {_plain(written[name])}" for name in names)
    for base in _own(kind):
        attributes: dict[str, object] = _members(base)
        for name, each in attributes.items():
            if isinstance(each, property) and name[0] != "_":
                yield f"{name}: {_returned(each)}"


def _own(kind: Any) -> list[type]:
    """Return the classes of ours that a class is derived from, itself first."""
    return [base for base in kind.__mro__ if base.__module__.startswith("momopay")]


def _returned(each: property) -> str:
    getter: Any = each.fget
    return _plain(inspect.get_annotations(getter)["return"])


def _plain(annotation: Any) -> str:
    text = annotation.__name__ if inspect.isclass(annotation) else str(annotation)
    return _MODULES.sub("", text).replace(" | None", "?")


def _signature(function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    parameters = [
        each.replace(annotation=_Text(each.annotation)) for each in signature.parameters.values() if each.name != "self"
    ]
    shown = str(signature.replace(parameters=parameters, return_annotation=_Text(signature.return_annotation)))
    shown = re.sub(r"<([A-Z]\w+\.\w+): [^>]*>", r"\1", shown)  # a member of an enum
    shown = re.sub(r"<([A-Z_]+)>", r"\1", shown)  # as typing-extensions shows a sentinel from 4.16 on
    return _MODULES.sub("", re.sub(r"<function (\w+)[^>]*>", r"\1", shown))


class _Text:
    """An annotation that is shown as it is written, without quotes."""

    def __init__(self, annotation: object) -> None:
        self._annotation = annotation

    def __repr__(self) -> str:
        return self._annotation.__name__ if inspect.isclass(self._annotation) else str(self._annotation)


def _summary(value: Any) -> str:
    """Return the first sentence of a docstring."""
    documented = inspect.getdoc(value) or ""
    return " ".join(documented.partition("\n\n")[0].split())


if __name__ == "__main__":
    COPY.write_text(text())
