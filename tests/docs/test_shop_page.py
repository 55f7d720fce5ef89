"""What the page about the shop shows is what the two programs do, apart from docstrings; their tests run them."""

from __future__ import annotations

import ast

import pytest

from docs.blocks import ROOT, blocks_in

PAGE = ROOT / "docs/start/shop.md"


def functions(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            node.body = node.body[ast.get_docstring(node) is not None :]
            found[node.name] = ast.dump(node)
    return found


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("django_shop.py", {"move", "on_end", "pay"}),
        ("shop.py", {"callback_url", "move", "on_callback", "on_end", "orders", "pay", "refund", "sweep"}),
    ],
)
def test_the_page_shows_the_programs(program: str, shown: set[str]) -> None:
    of_django = program.startswith("django")
    blocks = [each for each in blocks_in(PAGE) if each.language == "python" and (each.module is not None) == of_django]
    page = {name: dumped for block in blocks for name, dumped in functions(block.text).items()}
    whole = functions((ROOT / "examples" / program).read_text())
    assert page.keys() == shown
    assert [name for name in page if page[name] != whole[name]] == []
