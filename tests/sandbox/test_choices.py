"""What the page offers to choose from."""

from momopay.sandbox import Fault, Outcome, Switches
from momopay.sandbox._choices import choices
from momopay.sandbox._faults import FaultPlan


def test_every_outcome_fault_and_switch_can_be_chosen() -> None:
    offered = choices()
    assert [each["value"] for each in offered["outcomes"]] == list(Outcome)
    assert [each["value"] for each in offered["faults"]] == list(Fault)
    assert list(offered["switches"]) == list(Switches.model_fields)
    assert {"9901", "9946"} < {each["digits"] for each in offered["outcomes"]}


def test_every_fault_that_is_offered_for_a_route_can_be_planned() -> None:
    plan = FaultPlan()
    for route in choices()["routes"]:
        method, path = route["value"].split()
        for fault in route["faults"]:
            plan.add(method, path, fault)
    assert {planned.fault for planned in plan.waiting} == set(Fault)


def test_a_fault_that_would_not_show_is_not_offered() -> None:
    faults = {route["value"]: set(route["faults"]) for route in choices()["routes"]}
    assert not any(fault.is_effect or fault.names_another for fault in faults["GET /wallets/service/balance"])
    assert Fault.callback_lost not in faults["POST /wallets/service/topups"]
    assert Fault.list_lag in faults["GET /transactions"]
