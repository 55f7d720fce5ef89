"""The public names: complete, the same in each place, and visible to editors."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import GenericAlias
from typing import Any

import pytest
from pydantic import BaseModel

import momopay
from momopay.models.records import Record

MODULES = vars(momopay)["_PUBLIC"]
MADE_BY_THE_PACKAGE = {
    "Channels",
    "PayoutIterator",
    "Payouts",
    "Stk",
    "Transactions",
    "WaitIterator",
    "Wallet",
}
"""Classes whose instances users get and never build."""


def test_every_name_resolves() -> None:
    assert set(dir(momopay)) >= set(momopay.__all__)
    for name in momopay.__all__:
        assert getattr(momopay, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(momopay, "nonsense")  # noqa: B009  type checkers know that it is missing


def test_each_module_lists_its_names_as_the_package_does() -> None:
    listed = {module: sorted(import_module(f"momopay.{module}").__all__) for module in MODULES}
    assert listed == {module: sorted(names.split()) for module, names in MODULES.items()}


def test_checkers_and_editors_read_the_same_names() -> None:
    tree = ast.parse(Path(momopay.__file__).read_text())
    named = {
        (str(each.module).removeprefix("momopay."), name.name, name.asname)
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and str(each.module).startswith("momopay.")
        for name in each.names
    }
    assert named == {(module, name, name) for module, names in MODULES.items() for name in names.split()}


def public_callables() -> Iterator[Callable[..., Any]]:
    """Every function and public method that users call."""
    for name in momopay.__all__:
        value: Any = getattr(momopay, name)
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
    for name in momopay.__all__:
        value: Any = getattr(momopay, name)
        if callable(value) and not isinstance(value, GenericAlias):
            typing.get_type_hints(value)
        if inspect.isclass(value):
            for _, member in inspect.getmembers_static(value):
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if (getattr(function, "__module__", None) or "").startswith("momopay") and callable(function):
                    typing.get_type_hints(function)


@pytest.mark.parametrize("kind", [momopay.Client, momopay.AsyncClient])
def test_type_hints_of_operations_resolve(kind: Any) -> None:
    for resource in ("stk", "payouts", "transactions", "wallet", "channels"):
        for of in (kind("pk_test_x", base_url="http://127.0.0.1:1/v1"), kind):
            operations = getattr(of, resource)
            for name in dir(operations):
                if not name.startswith("_"):
                    assert typing.get_type_hints(getattr(operations, name))["return"] is not None
                    typing.get_type_hints(getattr(operations.__class__, name))


def test_every_type_in_a_public_signature_is_exported() -> None:
    missing = set[str]()
    for function in public_callables():
        for hint in typing.get_type_hints(function).values():
            for kind in names_in(hint):
                if kind.__module__.startswith("momopay") and kind.__name__ not in momopay.__all__:
                    missing.add(f"{function.__qualname__}: {kind.__module__}.{kind.__name__}")
    assert missing == set()


def test_completion_shows_operations_alone() -> None:
    with momopay.Client("pk_test_x", base_url="http://127.0.0.1:1/v1") as client:
        for resource in (client.stk, client.payouts, client.transactions, client.wallet, client.channels):
            members = {name: getattr(resource, name) for name in dir(resource) if not name.startswith("_")}
            assert members
            assert [name for name, member in members.items() if not callable(member)] == []


def test_completion_of_a_record_shows_its_fields_alone() -> None:
    for name in momopay.__all__:
        kind: Any = getattr(momopay, name)
        if inspect.isclass(kind) and issubclass(kind, Record):
            names = {each for each in dir(kind) if not each.startswith("_")} - set(dir(BaseModel))
            # And the properties of callbacks, by which they are taken where a record is.
            assert names <= {*kind.model_fields, "response", "key", "transaction_id", "account_reference", "phone"}, (
                name
            )
