"""The worlds that are explored, each with what must hold in it, and how many calls and releases there may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from model.machine import Model
from model.rules import Rules, World
from model.state import Release, State
from model.surroundings import Surroundings, but_for_foreign_ids
from momopay.journal.entries import EntryKind


@dataclass(frozen=True)
class Scenario:
    """A world: how many calls and releases it has, and what must hold in it."""

    meaning: str
    world: World
    calls: int = 2
    releases: int = 2
    violation: Callable[[Surroundings, State], str | None] = Surroundings.violation

    def model(self, rules: Rules | None = None) -> Model[State]:
        start = State(None, (), self.calls, (), Release(), self.releases)
        surroundings = Surroundings(rules or Rules(), self.world)
        return Model(start, surroundings.steps, partial(self.violation, surroundings))

    def without(self, assumption: str) -> Scenario:
        """Return the same in a worse world."""
        worse: dict[str, Any] = {assumption: False}
        return replace(self, world=replace(self.world, **worse))


def _order(meaning: str, **world: bool) -> Scenario:
    return Scenario(meaning, World(EntryKind.COLLECTION, **world), releases=0)


def _own_rows_only(_world: Surroundings, state: State) -> str | None:
    return state.broken


PAYOUTS: Final = {
    "payouts": Scenario("as the guarantee assumes", World()),
    "lagging": Scenario("the list may lag for ever", World(list_shows_within_a_minute=False), releases=1),
    "bare ids": Scenario(
        "an acceptance may have no more than a foreign id",
        World(answers_name_their_payment=False),
        releases=1,
        violation=but_for_foreign_ids,
    ),
    "clocks": Scenario("a release may come early", World(clocks_agree=False), calls=1, violation=_own_rows_only),
}
COLLECTIONS: Final = {
    "collections": _order("a prompt that ended stays ended"),
    "late PIN": _order("a prompt that ended may still be paid", late_pin=True),
    "abandoning": _order("an open prompt may be abandoned", late_pin=True, abandons=True),
    "careless": _order("wrong releases and refusals of what the list shows", careless=True),
}
SCENARIOS: Final[dict[str, Scenario]] = {**PAYOUTS, **COLLECTIONS}

DEEPER: Final[dict[str, dict[str, Any]]] = {
    "payouts": {"calls": 3, "releases": 2},
    "lagging": {"calls": 3, "releases": 1},
    "bare ids": {"calls": 3, "releases": 0},
    "clocks": {"calls": 2, "releases": 1},
    "collections": {"calls": 3},
    "careless": {"calls": 3},
}
"""Bounds that take a minute."""


def deeper(name: str) -> Scenario:
    return replace(SCENARIOS[name], **DEEPER.get(name, {}))
