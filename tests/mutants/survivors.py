"""Say which mutants no test noticed, and which of them have no reason in survivors.toml. Run it after `mutmut run`.

    python tests/mutants/survivors.py                  all that were tried
    python tests/mutants/survivors.py journal.rules    those of modules whose name has this word

Some changes need no reason, since no promise rests on them: the text of a message, a log line, and the type in a
`cast`. The exit status is 1 if another survivor has no reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from textwrap import dedent
from typing import Any

from mutmut.mutation.data import MutantLineSpans
from mutmut.mutation.diff_apply import generated_function_names

REASONS = Path(__file__).parent / "survivors.toml"
NOTICED = {"killed", "timeout", "caught by type check", "segfault", "suspicious"}
SURVIVED = {"survived", "no tests"}
NOTHING = ast.Constant(None)


class WithoutTexts(ast.NodeTransformer):
    """Takes from a function's code what only people read. The expressions in an f-string stay."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_sentence = isinstance(node.value, str) and re.search(r"\w\w[,:;.]? \w", node.value)
        return NOTHING if is_sentence else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts: list[ast.expr] = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        return self.generic_visit(ast.JoinedStr(parts))

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = [NOTHING if isinstance(each, ast.Constant) else each for each in node.exc.args]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = ast.unparse(node.func)
        if re.match(r"_?log(ger)?\.", name):
            return NOTHING
        if name == "cast":
            node.args[:1] = [NOTHING]
        return self.generic_visit(node)


@dataclass(frozen=True)
class Change:
    """What a mutant changes: the lines that go, and those that replace them."""

    function: str  # such as momopay.money.parse_amount
    removed: str
    added: str
    is_a_text: bool


def tried(word: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the status of each mutant that was tried."""
    command = ["mutmut", "results", "--all", "true"]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        name, _, status = line.strip().partition(": ")
        if word in name and status in NOTICED | SURVIVED:
            yield name, status


def change(name: str) -> Change:
    # `mutmut show` would load the tool anew for each.
    spans: Any = MutantLineSpans.load(Path("src", *name.rpartition(".x")[0].split(".")).with_suffix(".py"))
    sources = spans.read_function_sources(generated_function_names(name))
    before, after = (re.sub(r"\bx(_|ǁ\w+ǁ)(\w+)__mutmut_\w+\(", r"\2(", dedent(each), count=1) for each in sources)
    lines = list(ndiff(before.splitlines(), after.splitlines()))
    removed, added = ("\n".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    function = re.sub(r"__mutmut_\d+$", "", name).replace("ǁ", ".").replace(".x.", ".").replace(".x_", ".")
    left = [ast.dump(WithoutTexts().visit(ast.parse(each))) for each in (before, after)]
    return Change(function, removed, added, is_a_text=left[0] == left[1])


def main() -> int:
    reasons = {(each["function"], each["change"]) for each in tomllib.loads(REASONS.read_text())["survivor"]}
    statuses = dict(tried(sys.argv[1] if len(sys.argv) > 1 else ""))
    survivors = [change(name) for name, status in statuses.items() if status in SURVIVED]
    kinds: Counter[str] = Counter()
    for each in survivors:
        listed = (each.function, each.added) in reasons
        kinds["a text" if each.is_a_text else "listed" if listed else "without a reason"] += 1
        if not listed and not each.is_a_text:
            print(f"{each.function}\n- {each.removed}\n+ {each.added}\n")  # noqa: T201  a program for people
    noticed = len(statuses) - len(survivors)
    print(f"{noticed} of {len(statuses)} noticed; survivors: {dict(kinds)}")  # noqa: T201  as above
    return 1 if kinds["without a reason"] else 0


if __name__ == "__main__":
    sys.exit(main())
