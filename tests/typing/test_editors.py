"""Completion, signatures and docstrings in editors, as Jedi gives them: by reading the source, without running it.

PyCharm reads the source too. It is not run here. It follows properties with an annotation, functions as decorators,
and overloads, and the names that the package imports one by one, which is what these tests rest on as well.
"""

import inspect
import re
from importlib import import_module
from typing import Any

import pytest

import momopay
from momopay import AsyncClient, Client

pytestmark = pytest.mark.whole

jedi: Any = import_module("jedi")  # it has no types
KINDS: list[type[Client | AsyncClient]] = [Client, AsyncClient]
OPTIONS = {
    *("base_url", "timeout", "deadline", "max_attempts", "max_wait", "journal", "payout_keys", "is_closed"),
    *("with_options", "request"),
}
RESOURCES = {"stk", "payouts", "transactions", "wallet", "channels"}
OF_A_COROUTINE = {"close", "send", "throw"}
"""Jedi takes a call for both clients' result at once, so it shows a coroutine's methods too."""


def completed(code: str) -> set[str]:
    """Return what is shown at the end of the code, until an underscore is typed."""
    return {each.name for each in jedi.Script(code).complete() if not each.name.startswith("_")}


def client_of(kind: type) -> str:
    return f"from momopay import {kind.__name__}\nclient = {kind.__name__}()\nclient"


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_shows_its_resources_and_options(kind: Any) -> None:
    closing = {"close"} if kind is Client else {"aclose"}
    assert completed(f"{client_of(kind)}.") == OPTIONS | RESOURCES | closing
    for resource in RESOURCES:
        assert completed(f"{client_of(kind)}.{resource}.") == set(operations_of(kind, resource))


def operations_of(kind: Any, resource: str) -> list[str]:
    return [name for name in dir(getattr(kind, resource).__class__) if not name.startswith("_")]


OPERATIONS = [f"{resource}.{name}" for resource in sorted(RESOURCES) for name in operations_of(Client, resource)]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_shows_its_signature_and_docstring(operation: str) -> None:
    resource, _, name = operation.partition(".")
    for kind in KINDS:
        stated = inspect.signature(getattr(getattr(kind, resource), name))
        shown = jedi.Script(f"{client_of(kind)}.{operation}(").get_signatures()
        for each in shown:
            parameters = [parameter for parameter in each.params if parameter.name != "self"]
            assert [parameter.name for parameter in parameters] == list(stated.parameters)
            assert all(":" in parameter.to_string() for parameter in parameters), "each has its type"
            assert "->" in each.to_string()
            text: str = each.docstring(raw=True)
            assert text == inspect.getdoc(getattr(getattr(kind, resource), name))
            assert not re.search(r":\w+:`|\.\. \w+::|^:param|\]\(", text, re.MULTILINE), (
                "plain text, no reST or Markdown"
            )
        assert shown


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        ("payouts.initiate(amount=10, phone='', reference='')", set(momopay.Payout.model_fields)),
        ("transactions.wait('')", set(momopay.Transaction.model_fields)),
        ("transactions.list()", set(momopay.types.TransactionPage.model_fields)),
    ],
)
def test_a_result_shows_its_fields(call: str, fields: set[str]) -> None:
    assert fields <= completed(f"from momopay import Client\nresult = Client().{call}\nresult.")
    code = f"from momopay import AsyncClient\nasync def main():\n    result = await AsyncClient().{call}\n    result."
    assert fields <= completed(code)
    assert completed(code).isdisjoint(OF_A_COROUTINE)


def test_the_package_shows_its_names_and_modules_alone() -> None:
    modules = {
        "callbacks", "cli", "client", "errors", "events", "integrations", "journal", "models", "money", "phones",
        "durable", "probe", "pytest_plugin", "resources", "sandbox", "signing", "spreadsheets", "types", "urls", "TYPE_CHECKING",
    }  # fmt: skip
    shown = completed("import momopay\nmomopay.")
    assert set(momopay.__all__) == shown - modules
    assert "OutcomeUnknownError" in completed("from momopay import *\nOutcomeU")
    assert "Client" in completed("from momopay import Cl")


@pytest.mark.parametrize(
    ("kind", "told"), [(Client, "Args:\n    api_key:"), (AsyncClient, "Takes what `Client` takes")]
)
def test_the_constructor_shows_its_options_and_their_help(kind: type, told: str) -> None:
    (shown,) = jedi.Script(f"import momopay\nmomopay.{kind.__name__}(").get_signatures()
    assert [each.name for each in shown.params] == list(inspect.signature(kind).parameters)
    assert told in shown.docstring(raw=True)
