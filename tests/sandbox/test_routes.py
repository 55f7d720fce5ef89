"""The OpenAPI description, compared with the answers by schemathesis; MOMOPAY_CONTRACT_EXAMPLES widens it."""

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from momopay.sandbox import Sandbox
from momopay.sandbox._routes import ROUTES
from sandbox.kit import KEY, own_sandbox, transaction_id

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
EXAMPLES = int(os.environ.get("MOMOPAY_CONTRACT_EXAMPLES", "8"))

schemathesis.openapi.format("uri", st.sampled_from(["https://shop.example/momo", "http://127.0.0.1:9/momo"]))
schemathesis.openapi.format("cursor", st.just("YmVmb3JlOjU"))


@pytest.fixture(scope="module")
def open_sandbox() -> Iterator[Sandbox]:
    with own_sandbox(speed=0) as (sandbox, service):
        account = sandbox.account(KEY)
        account.rate_limit = None
        account.switches.health_rule = False
        transaction_id(service.stk())
        service.channel()
        yield sandbox


@pytest.fixture(scope="module")
def contract(open_sandbox: Sandbox) -> Any:
    document = httpx.get(f"{open_sandbox.url}/openapi.json", trust_env=False).json()
    for methods in document["paths"].values():
        for operation in methods.values():
            del operation["security"]  # else a missing key, which every call adds, counts as wrong data
    return schemathesis.openapi.from_dict(document)


CASES = [(route.operation.__name__, True) for route in ROUTES] + [
    # A path segment alone cannot be wrong: any text is an id.
    (route.operation.__name__, False)
    for route in ROUTES
    if route.body or route.query
]


@pytest.mark.parametrize(("operation_id", "right"), CASES)
def test_every_answer_is_the_one_described(
    open_sandbox: Sandbox, contract: Any, operation_id: str, right: bool
) -> None:
    modes = schemathesis.GenerationMode
    operation = contract.find_operation_by_id(operation_id)
    mode = modes.POSITIVE if right else modes.NEGATIVE

    @given(operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        derandomize=True,
    )
    def check(case: Any) -> None:
        response = case.call(base_url=open_sandbox.url, auth=(KEY, ""))
        # The description does not say which channels there are.
        unknown = "CHANNEL_NOT_FOUND" in response.text
        case.validate_response(response, excluded_checks=[checks.positive_data_acceptance] if unknown else [])

    check()


def test_every_endpoint_is_described(open_sandbox: Sandbox) -> None:
    document = httpx.get(f"{open_sandbox.url}/openapi.json", trust_env=False).json()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert described == {
        ("/v1/payments/stk", "POST"),
        ("/v1/b2c/payouts", "POST"),
        ("/v1/transactions", "GET"),
        ("/v1/transactions/{id}", "GET"),
        ("/v1/wallets/service/topups", "POST"),
        ("/v1/wallets/service/balance", "GET"),
        ("/v1/payment-wallet/channels", "GET"),
        ("/v1/payment-wallet/channels", "POST"),
        ("/v1/payment-wallet/channels/{id}", "GET"),
        ("/v1/payment-wallet/channels/{id}", "PATCH"),
        ("/v1/payment-wallet/channels/{id}", "DELETE"),
    }
    for name, schema in document["components"]["schemas"].items():
        # Every field of an answer is always there, constants included.
        assert schema.get("required", []) == list(schema.get("properties", [])), name
    assert document["components"]["securitySchemes"]["apiKey"]["scheme"] == "basic"
    assert document["info"]["version"] == "1.0"
