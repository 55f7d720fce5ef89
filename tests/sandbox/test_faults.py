"""Which request a planned fault applies to."""

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


def test_the_rest_of_a_path_is_taken_literally() -> None:
    plan = plan_for("/transactions/a.{x}")
    assert plan.take("GET", "/transactions/ab1") is None
    assert plan.take("GET", "/transactions/a.1") is not None


def test_first_planned_first_applied_and_as_often_as_planned() -> None:
    plan = plan_for("/transactions/{id}", times=2)
    plan.waiting.append(PlannedFault("GET", "/transactions/b", Fault.refuse))
    taken = [plan.take("GET", f"/transactions/{name}") for name in "abbb"]
    assert [planned and planned.fault for planned in taken] == ["html_502", "html_502", "refuse", None]


@in_turn(
    ("method", "path", "fault", "times"),
    [
        ("GET", "/transactions", "nope", 1),
        ("GET", "/transactions", "refuse", 0),
        ("GET", "x", "refuse", 1),
        ("POST", "/payouts", "refuse", 1),
        ("POST", "/v1/b2c/payouts", "refuse", 1),
        ("GET", "/b2c/payouts", "refuse", 1),
    ],
)
def test_a_fault_that_could_never_apply_is_refused(
    sandbox: Sandbox, method: str, path: str, fault: str, times: int
) -> None:
    with pytest.raises(ValueError, match=r"Fault|the service has no|times"):
        sandbox.fail_next(method, path, fault, times)


@in_turn("status", [100, 199, 204, 304, 600])
def test_a_refusal_needs_a_status_that_has_a_body(sandbox: Sandbox, status: int) -> None:
    with pytest.raises(ValueError, match="status"):
        sandbox.fail_next("POST", "/b2c/payouts", Fault.refused_after_commit, status=status)
