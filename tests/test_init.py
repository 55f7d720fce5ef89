"""The public names: complete, the same in each place, and visible to editors."""

import ast
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import GenericAlias
from typing import Any

import pytest

import momopay

ROOT = Path(momopay.__file__).parent
NAMES: dict[str, object] = {
    name: getattr(module, name) for module in (momopay, momopay.types) for name in module.__all__
}
MADE_BY_THE_PACKAGE = {"Channels", "PayoutIterator", "Payouts", "Stk", "Transactions", "WaitIterator", "Wallet"}
"""Classes whose instances users get and never build."""


def test_every_name_resolves() -> None:
    assert set(dir(momopay)) - set(momopay.__all__) == {"__version__", "events", "types"}
    for name in momopay.__all__:
        assert getattr(momopay, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(momopay, "nonsense")  # noqa: B009  type checkers know that it is missing


def imported_by(path: Path) -> dict[str, str]:
    """Return the module of each name that a file imports from this package."""
    return {
        name.name: str(each.module)
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.ImportFrom) and str(each.module).startswith("momopay.")
        for name in each.names
    }


def test_checkers_and_editors_read_the_same_names() -> None:
    read = imported_by(ROOT / "__init__.py")
    loaded = vars(momopay)["_MODULE_OF"]
    assert read == {name: f"momopay.{module}" for name, module in loaded.items()}
    assert imported_by(ROOT / "types.py").keys() == set(momopay.types.__all__)


def test_the_package_has_few_names_and_each_once() -> None:
    assert len(momopay.__all__) <= 60
    assert set(momopay.__all__).isdisjoint(momopay.types.__all__)


def public_callables() -> Iterator[Callable[..., Any]]:
    """Every function and public method that users call."""
    for name, value in NAMES.items():
        if inspect.isclass(value) and not issubclass(value, BaseException):
            for method, member in inspect.getmembers_static(value):
                function = getattr(member, "__wrapped__", member)
                is_public = not method.startswith("_")
                is_public = is_public or (method == "__init__" and name not in MADE_BY_THE_PACKAGE)
                if is_public and inspect.isfunction(function) and function.__module__.startswith("momopay"):
                    yield function
        elif inspect.isfunction(value):
            yield value


def names_in(annotation: object) -> Iterator[type]:
    for argument in typing.get_args(annotation):
        yield from names_in(argument)
    if isinstance(annotation, type):
        yield annotation


def test_type_hints_resolve() -> None:
    for value in NAMES.values():
        if callable(value) and not isinstance(value, GenericAlias):
            typing.get_type_hints(value)
        if inspect.isclass(value):
            for _, member in inspect.getmembers_static(value):
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if (getattr(function, "__module__", None) or "").startswith("momopay") and callable(function):
                    typing.get_type_hints(function)


def test_every_type_in_a_public_signature_is_exported() -> None:
    missing = set[str]()
    known = {*NAMES, *momopay.events.__all__}
    for function in public_callables():
        for hint in typing.get_type_hints(function).values():
            for kind in names_in(hint):
                if kind.__module__.startswith("momopay") and kind.__name__ not in known:
                    missing.add(f"{function.__qualname__}: {kind.__module__}.{kind.__name__}")
    assert missing == set()
