from __future__ import annotations

from dataclasses import fields, replace

import pytest

from model.machine import explore
from model.orders import ORDER, Order
from model.rules import OrderRules
from model.scenarios import COLLECTIONS
from momopay.journal.entries import JournalState
from momopay.journal.rules import Cause, Stage, Step, next_step, transitions

# Where the world must be worse, or larger, for a rule to matter.
WHERE = {
    "begin_needs_the_row_it_read": replace(COLLECTIONS["careless"], calls=3),
    "search_before_resend": COLLECTIONS["careless"],
    "near_match_blocks": COLLECTIONS["careless"],
    "sweep_reads_open_prompts": COLLECTIONS["abandoning"],
    "sweep_reads_an_end_again": COLLECTIONS["late PIN"],
}

# What the steps of a call exclude, and what needs an acceptance of another payment or a list that lags for long.
LEFT_OUT = {
    Cause.CONTRADICTION: {JournalState.ACCEPTED},
    Cause.SIGHTING: {JournalState.ACCEPTED},
}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_every_property_holds_in_every_state(name: str) -> None:
    result = explore(COLLECTIONS[name].model())
    print(result)  # noqa: T201  the numbers, for the page
    assert result.broken is None, str(result)
    assert result.states > 2_000


@pytest.mark.parametrize("rule", [field.name for field in fields(OrderRules)])
def test_a_rule_that_is_off_breaks_a_property(rule: str) -> None:
    scenario = WHERE.get(rule, COLLECTIONS["collections"])
    result = explore(scenario.model(replace(OrderRules(), **{rule: False})))
    print(result)  # noqa: T201  the counterexample
    assert result.broken is not None, f"{rule} is superfluous, or the model is too weak to need it"


@pytest.mark.parametrize("name", ["late PIN", "abandoning"])
def test_what_is_paid_twice_after_all_is_known_to_the_journal(name: str) -> None:
    model = replace(COLLECTIONS[name].model(), violation=_both_recorded)
    assert explore(model).broken == "both payments are recorded"


def _both_recorded(order: Order) -> str | None:
    stages = [] if order.row is None else order.row.stages
    return "both payments are recorded" if stages.count(Stage.PAID) == 2 else None


def test_the_model_takes_every_transition_and_step_of_the_code() -> None:
    """What the model never does, it does not check."""
    taken = set[tuple[JournalState | None, JournalState | None]]()
    steps = {Step.WAIT}  # which changes nothing
    for name in ("careless", "abandoning"):
        model = COLLECTIONS[name].model()
        seen, left = {model.start}, [model.start]
        while left:
            order = left.pop()
            row = order.row
            if row is not None and any(call.at == "read" for call in order.calls):
                steps.add(next_step(ORDER, row.state, row.stages, row.attempts))
            for _, reached in model.steps(order):
                taken.add((row and row.state, reached.row and reached.row.state))
                if reached not in seen:
                    seen.add(reached)
                    left.append(reached)
    assert steps | {next_step(ORDER, None, (), 0)} == set(Step)
    for cause, changes in transitions(ORDER).items():
        for after, befores in changes.items():
            expected = {(before, after) for before in befores - LEFT_OUT.get(cause, set()) if before is not after}
            assert expected <= taken, cause
