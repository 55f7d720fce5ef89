"""Mutants: bugs that a maintainer could make, each with the tests that must fail with it."""

from __future__ import annotations

import ast
import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "momopay"
TESTS = ROOT / "tests"

_SWAPPED: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        area: The file of the catalogue that lists it, or ``random``.
        name: What is wrong with it, in words.
        file: The file, relative to the repository.
        old: Text that occurs exactly once in the file.
        new: What stands there instead.
        tests: Test files or folders that must fail, relative to the repository.
    """

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Return the mutated text of the file.

        Raises:
            ValueError: The old text does not occur exactly once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.area}: {self.name}: the text occurs {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def listed() -> list[Mutant]:
    """Return the mutants of every ``tests/mutants/*.toml``."""
    found = list[Mutant]()
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            arguments: dict[str, Any] = {**entry, "tests": tuple(entry["tests"])}
            found.append(Mutant(path.stem, **arguments))
    return found


def drawn(count: int, seed: int) -> list[Mutant]:
    """Return random mutants of the library: a comparison, a condition, a number or a constant is changed."""
    everything = [
        mutant
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in {"cli", "sandbox", "__main__.py", "__init__.py"}
        for mutant in _mutants_of(path)
    ]
    return random.Random(seed).sample(everything, count)


def mirrored_tests(path: Path) -> tuple[str, ...]:
    """Return the test file that mirrors a module, or the folder or suite that covers it."""
    parts = [part.lstrip("_") for part in path.relative_to(SOURCE).with_suffix("").parts]
    mirrored = TESTS.joinpath(*parts[:-1], f"test_{parts[-1]}.py")
    if mirrored.exists():
        return (str(mirrored.relative_to(ROOT)),)
    folder = TESTS.joinpath(*parts[:-1])
    return (str(folder.relative_to(ROOT)),)


def _mutants_of(path: Path) -> Iterator[Mutant]:
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        changed = _changed(node)
        if changed is None or not isinstance(node, ast.expr):
            continue
        # Whole lines make the old text unique more often than the expression does.
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        old = "".join(lines[first : last + 1])
        start = len("".join(lines[first]).encode()[: node.col_offset].decode())
        if first != last or text.count(old) != 1:
            continue
        end = len(lines[first].encode()[: node.end_col_offset].decode())
        new = old[:start] + changed + old[end:]
        name = f"{path.relative_to(SOURCE)}:{first + 1}: {old[start:end]} -> {changed}"
        yield Mutant("random", name, str(path.relative_to(ROOT)), old, new, mirrored_tests(path))


def _changed(node: ast.AST) -> str | None:  # noqa: PLR0911  one line for each kind of expression
    """Return another expression in place of this one, or None where none is drawn."""
    match node:
        case ast.Compare(left, [operator], [right]):
            return f"{ast.unparse(left)} {_SWAPPED[type(operator)]} {ast.unparse(right)}"
        case ast.BoolOp(op, values):
            return (" or " if isinstance(op, ast.And) else " and ").join(f"({ast.unparse(each)})" for each in values)
        case ast.UnaryOp(ast.Not(), operand):
            return f"bool({ast.unparse(operand)})"
        case ast.BinOp(left, ast.Add(), right):
            return f"{ast.unparse(left)} - {ast.unparse(right)}"
        case ast.BinOp(left, ast.Sub(), right):
            return f"{ast.unparse(left)} + {ast.unparse(right)}"
        case ast.Call(ast.Name("min"), arguments, []):
            return f"max({', '.join(map(ast.unparse, arguments))})"
        case ast.Call(ast.Name("max"), arguments, []):
            return f"min({', '.join(map(ast.unparse, arguments))})"
        case ast.Constant(bool(value)):
            return str(not value)
        case _:
            return None
