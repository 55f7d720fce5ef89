from __future__ import annotations

from dataclasses import fields, replace

import pytest

from model.explore import explored
from model.machine import explore
from model.payouts import PAYOUT, State
from model.rules import PayoutRules, World
from model.scenarios import DEEPER, PAYOUTS, deeper
from momopay.journal.entries import JournalState
from momopay.journal.rules import Cause, Stage, Step, next_step, transitions

# Where the world must be worse, or larger, for a rule to matter.
WHERE = {
    "acceptance_overrides": PAYOUTS["lagging"],
    "later_read_compared": PAYOUTS["bare ids"],
    "contradiction_compares_the_id": replace(PAYOUTS["bare ids"], calls=3, releases=0),
    "reread_row_after_a_second": PAYOUTS["clocks"],
}


@pytest.mark.parametrize("name", PAYOUTS)
def test_every_property_holds_in_every_state(name: str) -> None:
    result = explore(PAYOUTS[name].model())
    print(result)  # noqa: T201  the numbers, for the page
    assert result.broken is None, str(result)
    assert result.states > 1_000


@pytest.mark.parametrize("rule", [field.name for field in fields(PayoutRules)])
def test_a_rule_that_is_off_breaks_a_property(rule: str) -> None:
    scenario = WHERE.get(rule, PAYOUTS["payouts"])
    result = explore(scenario.model(replace(PayoutRules(), **{rule: False})))
    print(result)  # noqa: T201  the counterexample
    assert result.broken is not None, f"{rule} is superfluous, or the model is too weak to need it"


@pytest.mark.parametrize("assumption", [field.name for field in fields(World)])
def test_an_assumption_that_does_not_hold_breaks_a_property(assumption: str) -> None:
    scenario = PAYOUTS["payouts"].without(assumption)
    if assumption == "list_shows_within_a_minute":
        # What follows from a release that trusted such a list is excused elsewhere.
        scenario = replace(scenario, violation=_paid_twice)
    result = explore(scenario.model())
    print(result)  # noqa: T201  the counterexample
    assert result.broken is not None, assumption


def _paid_twice(state: State) -> str | None:
    return "PAID TWICE" if len(state.payments) > 1 else None


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(DEEPER.keys() - {"payouts", "lagging"}))  # these take half a minute each
def test_every_property_holds_with_more_calls(name: str) -> None:
    result = explored(deeper(name))
    print(result)  # noqa: T201  the numbers, for the page
    assert result is not None
    assert result.broken is None, str(result)


def test_the_model_takes_every_transition_of_the_code() -> None:
    """What the model never does, it does not check."""
    model = replace(PAYOUTS["payouts"], releases=1).without("refusals_are_true").model()
    taken = set[tuple[JournalState | None, JournalState | None]]()
    seen, left = {model.start}, [model.start]
    while left:
        state = left.pop()
        for _, reached in model.steps(state):
            taken.add((state.row and state.row.state, reached.row and reached.row.state))
            if reached not in seen:
                seen.add(reached)
                left.append(reached)
    for cause, changes in transitions(PAYOUT).items():
        for after, befores in changes.items():
            assert {(before, after) for before in befores if before is not after} <= taken, cause


def test_the_code_knows_no_step_or_cause_that_the_model_does_not() -> None:
    steps = {next_step(PAYOUT, state, [], 1) for state in (None, *JournalState)}
    assert steps | {next_step(PAYOUT, JournalState.ACCEPTED, [Stage.OPEN], 1)} == set(Step)
    known = {"BEGIN", "OUTCOME", "ACCEPTANCE", "CONTRADICTION", "SIGHTING", "RELEASE"}
    assert {cause.name for cause in Cause} == known
