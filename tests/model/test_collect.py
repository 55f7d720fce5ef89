from __future__ import annotations

from dataclasses import fields, replace

import pytest

from model.collect import PAID, CollectRules, Order
from model.machine import explore
from model.scenarios import COLLECTIONS


@pytest.mark.parametrize("name", COLLECTIONS)
def test_every_property_holds_in_every_state(name: str) -> None:
    result = explore(COLLECTIONS[name].model())
    print(result)  # noqa: T201  the numbers, for the page
    assert result.broken is None, str(result)
    assert result.states > 5_000


@pytest.mark.parametrize("rule", [field.name for field in fields(CollectRules)])
def test_a_rule_that_is_off_breaks_a_property(rule: str) -> None:
    scenario = COLLECTIONS["late PIN" if rule == "ended_prompt_read_again" else "collections"]
    result = explore(scenario.model(replace(CollectRules(), **{rule: False})))
    print(result)  # noqa: T201  the counterexample
    assert result.broken is not None, f"{rule} is superfluous, or the model is too weak to need it"


def test_a_late_pin_pays_twice_and_the_journal_knows_both() -> None:
    model = replace(COLLECTIONS["late PIN"].model(), violation=_both_recorded)
    assert explore(model).broken == "both payments are recorded"


def _both_recorded(order: Order) -> str | None:
    told = [] if order.row is None else [status for _, status in order.row.known]
    return "both payments are recorded" if told.count(PAID) == 2 else None
