"""The worlds that are explored, each with what must hold in it, and how many calls and releases there may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from model import orders
from model.collect import Collector
from model.machine import Model
from model.orders import Order
from model.payouts import FOREIGN, Release, State
from model.rules import OrderRules, OrderWorld, PayoutRules, World
from model.surroundings import Surroundings, violation_in


@dataclass(frozen=True)
class Payouts:
    """A world for ``pay_once``: how many calls and releases it has, and what must hold in it."""

    meaning: str
    world: World
    calls: int = 2
    releases: int = 2
    violation: Callable[[State], str | None] = violation_in

    def model(self, rules: PayoutRules | None = None) -> Model[State]:
        """Return its state machine."""
        start = State(None, (), self.calls, (), Release(), self.releases)
        return Model(start, Surroundings(rules or PayoutRules(), self.world).steps, self.violation)

    def without(self, assumption: str) -> Payouts:
        """Return the same in a worse world."""
        return replace(self, world=replace(self.world, **{assumption: False}))


@dataclass(frozen=True)
class Collections:
    """A world for ``collect_once``: how many calls it has."""

    meaning: str
    world: OrderWorld
    calls: int = 2

    def model(self, rules: OrderRules | None = None) -> Model[Order]:
        """Return its state machine."""
        collector = Collector(rules or OrderRules(), self.world)
        violation = partial(orders.violation_in, world=self.world, statements=collector.statements)
        return Model(Order(None, (), self.calls, ()), collector.steps, violation)


def _but_for_foreign_ids(state: State) -> str | None:
    # Nobody can tell at once that such an id is wrong. What counts is that a later read notices.
    foreign = state.row is not None and state.row.transaction == FOREIGN
    return state.broken if foreign else violation_in(state)


def _own_rows_only(state: State) -> str | None:
    return state.broken


PAYOUTS: Final = {
    "payouts": Payouts("as the guarantee assumes", World()),
    "lagging": Payouts("the list may lag for ever", World(list_shows_within_a_minute=False), releases=1),
    "bare ids": Payouts(
        "an acceptance may have no more than a foreign id",
        World(answers_name_their_payment=False),
        releases=1,
        violation=_but_for_foreign_ids,
    ),
    "clocks": Payouts("a release may come early", World(clocks_agree=False), calls=1, violation=_own_rows_only),
}
COLLECTIONS: Final = {
    "collections": Collections("a prompt that ended stays ended", OrderWorld()),
    "late PIN": Collections("a prompt that ended may still be paid", OrderWorld(late_pin=True)),
    "abandoning": Collections("an open prompt may be abandoned", OrderWorld(late_pin=True, abandons=True)),
    "careless": Collections("wrong releases and refusals of what the list shows", OrderWorld(careless=True)),
}
SCENARIOS: Final[dict[str, Payouts | Collections]] = {**PAYOUTS, **COLLECTIONS}

DEEPER: Final[dict[str, dict[str, Any]]] = {
    "payouts": {"calls": 3, "releases": 2},
    "lagging": {"calls": 3, "releases": 1},
    "bare ids": {"calls": 3, "releases": 0},
    "clocks": {"calls": 2, "releases": 1},
    "collections": {"calls": 3},
    "careless": {"calls": 3},
}
"""Bounds that take a minute."""


def deeper(name: str) -> Payouts | Collections:
    """Return a scenario with more calls and releases."""
    return replace(SCENARIOS[name], **DEEPER.get(name, {}))
