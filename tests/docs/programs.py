"""The Python blocks of a page as one program, for the type checkers.

Each line of code has the line number that it has on the page, so an error names the page's line.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.blocks import ROOT, Block, blocks_in

PROVIDED = ("account", "asgi_served", "key", "let_leases_end", "sandbox", "until", "wsgi_served")
"""The names that `pages.run_page` provides."""
PROVIDED_SOURCE = """\
from docs.pages import let_leases_end as let_leases_end
from momopay.sandbox import Account, Sandbox
from patience import until as until
from served import asgi_served as asgi_served, wsgi_served as wsgi_served

account: Account
key: str
sandbox: Sandbox
"""
"""A module that has them, with their types."""


def module_name(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "_").replace("-", "_")


def programs(page: Path) -> dict[str, str]:
    """Return the sources of the page by the names of their files.

    The blocks are one program, but for each that is one by itself and for the modules of a package, which see only what
    they import.
    """
    blocks = [block for block in blocks_in(page) if block.language in {"python", "check"}]
    sources = {f"{module_name(page)}_{block.line}": _placed([block]) for block in blocks if block.is_program}
    sources |= {block.module: _placed([block]) for block in blocks if block.module is not None}
    rest = [block for block in blocks if not block.is_program and block.module is None]
    if rest:
        sources[module_name(page)] = _program(rest)
    return sources


def _program(blocks: list[Block]) -> str:
    text = _placed(blocks)
    used = [name for name in PROVIDED if any(_mentions(block, name) for block in blocks)]
    first = f"from provided import {', '.join(used)}" if used else ""
    assert text.startswith("\n\n"), "a page begins with its title"
    if any(map(_suspends, blocks)):
        # A module cannot await, so the page becomes the body of a coroutine function.
        indented = "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True)[2:])
        return f"{first}\nasync def page() -> None:\n{indented}"
    return first + text


def _mentions(block: Block, name: str) -> bool:
    """Return whether it is a comment that uses the name. What is shown must not rely on a name that is not."""
    return block.language == "check" and re.search(rf"\b{name}\b", block.text) is not None


def _suspends(block: Block) -> bool:
    tree = compile(block.text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    try:
        compile(tree, block.name, "exec")
    except SyntaxError:
        return True
    return False


def _placed(blocks: list[Block]) -> str:
    """Return the text of the blocks, each on the line numbers of its page."""
    text = ""
    for block in blocks:
        text += "\n" * (block.line - 1 - text.count("\n")) + block.text
    return text
