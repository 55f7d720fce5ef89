"""Every property holds in every state of each scenario, and each rule and assumption is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from model.explore import COLLECTIONS, PAYOUTS, SCENARIOS, Model, Scenario, deeper, explore
from model.rules import ASSUMPTIONS, OF_ORDERS, OF_PAYOUTS
from model.state import State
from momopay import EntryKind
from momopay.journal.entries import JournalState
from momopay.journal.rules import Cause, transitions
from momopay.models.enums import Stage

# Where the world must be worse, or larger, for a rule to matter.
IN_PAYOUTS = {
    "acceptance_overrides": PAYOUTS["lagging"],
    "later_read_compared": PAYOUTS["bare ids"],
    "contradiction_compares_the_id": replace(PAYOUTS["bare ids"], calls=3, releases=0),
    "reread_row_after_a_second": PAYOUTS["clocks"],
    **dict.fromkeys(("resend_keeps_the_key", "resend_in_time", "resend_stays_unclear"), PAYOUTS["keys"]),
}
IN_ORDERS = {
    "begin_needs_the_row_it_read": replace(COLLECTIONS["careless"], calls=3),
    "search_before_resend": COLLECTIONS["careless"],
    "near_match_blocks": COLLECTIONS["careless"],
    "sweep_reads_open_prompts": COLLECTIONS["abandoning"],
    "sweep_reads_an_end_again": COLLECTIONS["late PIN"],
}
AT_ONCE = {
    "one release": replace(PAYOUTS["payouts"], releases=1),
    **{n: SCENARIOS[n] for n in ("clocks", "collections")},
}
"""Scenarios that the default tests explore."""


@pytest.mark.parametrize(
    "scenario",
    [
        *(pytest.param(scenario, id=name) for name, scenario in AT_ONCE.items()),
        *(pytest.param(SCENARIOS[n], id=n, marks=pytest.mark.whole) for n in SCENARIOS if n not in AT_ONCE),
    ],
)
def test_every_property_holds_in_every_state(scenario: Scenario) -> None:
    result = explore_any(scenario.model())
    assert result.broken is None, str(result)
    assert result.states > 1_000


def explore_any(model: Model) -> Any:
    result = explore(model)
    print(result)  # noqa: T201  the numbers, for the page, or the counterexample
    return result


def rules_off() -> Iterator[Any]:
    """Yield each rule and the scenario in which it matters; a fourth of those that are quick run by default."""
    for names, default, others in (
        (OF_PAYOUTS, PAYOUTS["payouts"], IN_PAYOUTS),
        (OF_ORDERS, COLLECTIONS["collections"], IN_ORDERS),
    ):
        for number, name in enumerate(names):
            scenario = others.get(name, default)
            marks = () if scenario is default and number % 4 == 0 else pytest.mark.whole
            yield pytest.param(scenario, name, marks=marks, id=f"{scenario.world.kind} {name}")


@pytest.mark.parametrize(("scenario", "rule"), list(rules_off()))
def test_a_rule_that_is_off_breaks_a_property(scenario: Scenario, rule: str) -> None:
    result = explore_any(scenario.model(without=rule))
    assert result.broken is not None, "the rule is superfluous, or the model is too weak to need it"


@pytest.mark.parametrize("assumption", ASSUMPTIONS)
def test_an_assumption_that_does_not_hold_breaks_a_property(assumption: str) -> None:
    model = PAYOUTS["keys" if assumption == "keys_are_honoured" else "payouts"].model(without=assumption)
    if assumption == "list_shows_within_a_minute":
        # What follows from a release that trusted such a list is excused elsewhere.
        model = replace(model, violation=_paid_twice)
    assert explore_any(model).broken is not None, assumption


def _paid_twice(state: State) -> str | None:
    return "PAID TWICE" if len(state.payments) > 1 else None


@pytest.mark.parametrize("name", [pytest.param("late PIN", marks=pytest.mark.whole), "abandoning"])
def test_what_is_paid_twice_after_all_is_known_to_the_journal(name: str) -> None:
    assert explore(replace(COLLECTIONS[name].model(), violation=_both_recorded)).broken == "both payments are recorded"


def _both_recorded(state: State) -> str | None:
    stages = [] if state.row is None else state.row.stages
    return "both payments are recorded" if stages.count(Stage.PAID) == 2 else None


@pytest.mark.whole
@pytest.mark.parametrize("name", ["clocks", "collections"])  # `explore.py --deeper` has those that take a minute
def test_every_property_holds_with_more_calls(name: str) -> None:
    result = explore_any(deeper(name).model())
    assert result.broken is None, str(result)


# What the steps of a call for an order exclude, and what needs an acceptance of another payment or a list that lags.
LEFT_OUT = {Cause.CONTRADICTED: {JournalState.ACCEPTED}, Cause.SEEN: {JournalState.ACCEPTED}}


@pytest.mark.whole
@pytest.mark.parametrize("kind", list(EntryKind))
def test_the_model_takes_every_transition_of_the_code(kind: EntryKind) -> None:
    """What the model never does, it does not check."""
    is_order = kind is EntryKind.COLLECTION
    models = [replace(PAYOUTS["payouts"], releases=1).model(without="refusals_are_true"), PAYOUTS["keys"].model()]
    if is_order:
        models = [COLLECTIONS[name].model() for name in ("careless", "abandoning")]
    taken = set[tuple[JournalState | None, JournalState | None]]()

    def watched(model: Model, state: State) -> Iterator[tuple[str, State]]:
        row = state.row
        for label, reached in model.steps(state):
            taken.add((row and row.state, reached.row and reached.row.state))
            yield label, reached

    def go_on(_state: State) -> None:
        """Explore to the end, whatever is broken on the way."""

    for model in models:
        explore(replace(model, steps=partial(watched, model), violation=go_on))
    for cause, changes in transitions(kind).items():
        for after, befores in changes.items():
            left_out = LEFT_OUT.get(cause, set[JournalState]()) if is_order else set[JournalState]()
            assert {(before, after) for before in befores - left_out if before is not after} <= taken, cause
