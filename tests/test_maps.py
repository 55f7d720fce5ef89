"""The maps of the code show what is there: docstrings of packages, tables of contributing.md, twins of signatures."""

import inspect
import re
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path

import pytest

import momopay
from momopay import PayoutItem
from momopay.resources.payouts import Payouts

ROOT = Path(__file__).parents[1]
SOURCE = Path(momopay.__file__).parent
CONTRIBUTING = (ROOT / "docs/contributing.md").read_text()
MAPPED = ["durable", "journal"]
"""The packages whose docstring has a table of their modules."""


def first_cells(table: str) -> list[str]:
    """Return the first cell of each row of a table, without its two heading lines."""
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows[1:]]


@pytest.mark.parametrize("package", MAPPED)
def test_a_package_names_each_of_its_modules_once(package: str) -> None:
    text = import_module(f"momopay.{package}").__doc__ or ""
    named = [name for cell in first_cells(text) for name in cell.split(", ")]
    assert sorted(named) == sorted(path.stem for path in (SOURCE / package).glob("*.py") if path.stem != "__init__")


def test_every_other_package_names_only_modules_that_it_has() -> None:
    for path in SOURCE.rglob("__init__.py"):
        text = import_module(".".join(("momopay", *path.parent.relative_to(SOURCE).parts))).__doc__ or ""
        # A word in backticks that is no name of Python's or ours in capitals is a module of the package.
        words = re.findall(r"(?<!`)`(_?[a-z_]+)`(?!`)", text)
        here = {each.stem for each in path.parent.iterdir()} | {*vars(import_module(import_name(path)))}
        methods = {"send", "sleep", "now", "in_thread", "signal", "close"}  # of the backends, in _transport
        assert set(words) - methods <= here, path


def import_name(path: Path) -> str:
    return ".".join(("momopay", *path.parent.relative_to(SOURCE).parts))


def test_contributing_names_every_package() -> None:
    table = CONTRIBUTING.partition("## Packages")[2].partition("\n## ")[0]
    named = {name for cell in first_cells(table) for name in re.findall(r"`(\w+)`", cell)}
    paths = [each for each in SOURCE.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]
    assert named == {each.stem for each in paths} - {
        "__init__",
        "_fork",
        "_hints",
        "_locks",
        "_pyinstaller",
        "_redaction",
    }


def test_contributing_names_only_files_that_exist() -> None:
    table = CONTRIBUTING.partition("## Where to change what")[2].partition("\n\n## ")[0]
    table = "\n".join(line for line in table.splitlines() if line.startswith("|"))
    named = re.findall(r"`([\w./]+(?:/|\.py|\.md))`|`(tests/[\w/]+)`", table)
    paths = [code or tests for code, tests in named]
    assert len(paths) > 40
    missing = [each for each in paths if not (SOURCE / each).exists() and not (ROOT / each).exists()]
    assert missing == []


def test_an_item_of_a_payroll_has_the_arguments_of_one_payout() -> None:
    arguments = inspect.signature(inspect.unwrap(Payouts.__dict__["pay_once"].__wrapped__)).parameters
    empty = inspect.Parameter.empty
    wanted = {
        name: (each.annotation, MISSING if each.default is empty else each.default)
        for name, each in arguments.items()
        if name not in {"self", "journal"}
    }
    assert {each.name: (each.type, each.default) for each in fields(PayoutItem)} == wanted
