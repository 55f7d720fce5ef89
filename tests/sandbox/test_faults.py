"""Which request a planned fault applies to."""

from typing import Any

import pytest

from in_turn import in_turn
from momopay.sandbox import Fault, Sandbox
from momopay.sandbox._faults import FaultPlan, PlannedFault


def plan_for(path: str, times: int = 1) -> FaultPlan:
    return FaultPlan([PlannedFault("get", path, Fault.html_502, times)])


@in_turn("path", ["/transactions/*", "transactions/{id}", "transactions/*", "/transactions/{}"])
def test_a_star_or_braces_match_one_segment(path: str) -> None:
    for other in ("/transactions", "/transactions/a/b", "/transactions/", "/wallets/service/balance"):
        assert plan_for(path).take("GET", other) is None
    assert plan_for(path).take("POST", "/transactions/a") is None
    assert plan_for(path).take("GET", "/transactions/a%20b") is not None
    literal = plan_for("/transactions/a.{x}")
    assert [literal.take("GET", f"/transactions/{each}") is None for each in ("ab1", "a.1")] == [True, False]


def test_first_planned_first_applied_and_as_often_as_planned() -> None:
    plan = plan_for("/transactions/{id}", times=2)
    plan.waiting.append(PlannedFault("GET", "/transactions/b", Fault.refuse))
    taken = [plan.take("GET", f"/transactions/{name}") for name in "abbb"]
    assert [planned and planned.fault for planned in taken] == ["html_502", "html_502", "refuse", None]


@in_turn(
    ("method", "path", "fault", "options"),
    [
        ("GET", "/transactions", "nope", {}),
        ("GET", "/transactions", "refuse", {"times": 0}),
        ("GET", "x", "refuse", {}),
        ("POST", "/payouts", "refuse", {}),
        ("POST", "/v1/b2c/payouts", "refuse", {}),
        ("GET", "/b2c/payouts", "refuse", {}),
        # A status without a body, or none at all.
        *(("POST", "/b2c/payouts", "refused_after_commit", {"status": each}) for each in (100, 199, 204, 304, 600)),
    ],
)
def test_bad_faults_are_refused(sandbox: Sandbox, method: str, path: str, fault: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"fault must be|the service has no|times|status"):
        sandbox.fail_next(method, path, fault, **options)
