"""Explore the model: `python tests/model/explore.py [SCENARIO ...] [--deeper] [--without RULE]`.

Without a name it explores every scenario with the bounds of the tests. `--without` turns off a rule or an assumption
and prints the shortest way to a broken property.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.rules import ASSUMPTIONS, OF_ORDERS, OF_PAYOUTS, Rules, World
from model.state import Release, State
from model.surroundings import Surroundings, but_for_foreign_ids
from momopay.models.enums import EntryKind


@dataclass(frozen=True)
class Model:
    """A state machine: where it starts, what may happen next, and what must not be."""

    start: State
    steps: Callable[[State], Iterator[tuple[str, State]]]
    violation: Callable[[State], str | None]


@dataclass(frozen=True)
class Result:
    """What an exploration saw; `trace` leads to the property that does not hold, if one is `broken`."""

    states: int
    transitions: int
    depth: int
    seconds: float
    broken: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.broken is None:
            return (
                f"{self.states:,} states, {self.transitions:,} transitions, depth {self.depth}, {self.seconds:.1f} s:"
                " every property holds"
            )
        return "\n".join([*(f"{n:2}. {step}" for n, step in enumerate(self.trace, 1)), f"    {self.broken}"])


def explore(model: Model) -> Result:
    """Visit every reachable state once, nearest first, until one breaks a property."""
    began = perf_counter()
    came_from: dict[State, tuple[State, str] | None] = {model.start: None}
    level, transitions, depth = [model.start], 0, 0
    while level:
        following: list[State] = []
        for state in level:
            for label, after in model.steps(state):
                transitions += 1
                if after in came_from:
                    continue
                came_from[after] = (state, label)
                if (broken := model.violation(after)) is not None:
                    trace = _trace(came_from, after)
                    return Result(len(came_from), transitions, depth + 1, perf_counter() - began, broken, trace)
                following.append(after)
        level = following
        depth += bool(level)
    return Result(len(came_from), transitions, depth, perf_counter() - began)


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_from[state]) is not None:
        state, label = before
        steps.append(label)
    return tuple(reversed(steps))


@dataclass(frozen=True)
class Scenario:
    """A world: how many calls and releases it has, and what must hold in it."""

    meaning: str
    world: World
    calls: int = 2
    releases: int = 2
    violation: Callable[[Surroundings, State], str | None] = Surroundings.violation

    @property
    def parts(self) -> list[str]:
        """The rules and the assumptions that matter in it."""
        return [*OF_PAYOUTS, *ASSUMPTIONS] if self.world.kind is EntryKind.PAYOUT else OF_ORDERS

    def model(self, without: str | None = None) -> Model:
        """Return its state machine; `without` is a rule that is off, or an assumption that does not hold."""
        off: dict[str, Any] = {} if without is None else {without: False}
        rules, world = (Rules(), replace(self.world, **off)) if without in ASSUMPTIONS else (Rules(**off), self.world)
        surroundings = Surroundings(rules, world)
        start = State(None, (), self.calls, (), Release(), self.releases)
        return Model(start, surroundings.steps, partial(self.violation, surroundings))


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
    "keys": Scenario("clients know that the service honours keys", World(payout_keys=True), releases=0),
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"one of: {', '.join(SCENARIOS)}")
    parser.add_argument("--deeper", action="store_true", help="more calls and releases; takes minutes")
    parser.add_argument("--without", metavar="RULE", help="a rule or an assumption of tests/model/rules.py")
    options = parser.parse_args(arguments)
    names: list[str] = options.scenarios or [name for name in SCENARIOS if name in DEEPER or not options.deeper]
    if unknown := set(names) - SCENARIOS.keys():
        parser.error(f"no scenario: {', '.join(unknown)}")
    held = True
    for name in names:
        scenario = deeper(name) if options.deeper else SCENARIOS[name]
        if options.without in {None, *scenario.parts}:
            result = explore(scenario.model(options.without))
            bound = f"{scenario.calls} calls, {scenario.releases} releases"
            print(f"{name} ({scenario.meaning}; {bound}):\n{result}", flush=True)  # noqa: T201
            held = held and result.broken is None
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
