"""Explore every state that a model can reach, breadth first, and return the shortest way to a broken property."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Model(Generic[S]):
    """A state machine: where it starts, what may happen next, and what must not be."""

    start: S
    steps: Callable[[S], Iterator[tuple[str, S]]]
    violation: Callable[[S], str | None]


@dataclass(frozen=True)
class Result:
    """What an exploration saw.

    Attributes:
        states: How many different states.
        transitions: How many steps between them.
        depth: How many steps the farthest state is from the start.
        seconds: How long it took.
        broken: The property that does not hold, None if all do.
        trace: The steps that lead there.
    """

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


def explore(model: Model[S]) -> Result:
    """Visit every reachable state once, nearest first, until one breaks a property."""
    began = perf_counter()
    came_from: dict[S, tuple[S, str] | None] = {model.start: None}
    level, transitions, depth = [model.start], 0, 0
    while level:
        following: list[S] = []
        for state in level:
            for label, after in model.steps(state):
                transitions += 1
                if after in came_from:
                    continue
                came_from[after] = (state, label)
                if (broken := model.violation(after)) is not None:
                    trace = _trace(came_from, after)
                    seconds = perf_counter() - began
                    return Result(len(came_from), transitions, depth + 1, seconds, broken, trace)
                following.append(after)
        level = following
        depth += bool(level)
    return Result(len(came_from), transitions, depth, perf_counter() - began)


def _trace(came_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_from[state]) is not None:
        state, label = before
        steps.append(label)
    return tuple(reversed(steps))
