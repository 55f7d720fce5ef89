"""Rounds in which every side takes its turn, and the rows that come of them. Knows no benchmark."""

import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Scale:
    """How much is done: so many rounds, each with this share of the full number of calls.

    `warms_up` says whether a round that does not count goes before them.
    """

    rounds: int = 9
    share: float = 1.0
    warms_up: bool = True

    def of(self, full: int) -> int:
        return max(2, round(full * self.share))


@dataclass(frozen=True)
class Goal:
    """What one side is to cost at most: `most` times the other side's cost, or without another side, `most` itself."""

    work: str
    unit: str
    side: str
    most: float
    other: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table: two sides, with a figure for each of the same rounds, in the same unit."""

    work: str
    unit: str
    ours: Sequence[float]
    other: str
    theirs: Sequence[float]
    goal: float
    """What the median of the ratios, ours / theirs, is to be at most."""

    @property
    def ratios(self) -> list[float]:
        return [mine / its for mine, its in zip(self.ours, self.theirs, strict=True)]

    @property
    def is_held(self) -> bool:
        return median(self.ratios) <= self.goal


def row_of(goal: Goal, taken: Mapping[str, Sequence[float]]) -> Row:
    """Make the row of a goal from the figures of each side."""
    ours = taken[goal.side]
    if goal.other:
        return Row(goal.work, goal.unit, ours, goal.other, taken[goal.other], goal.most)
    return Row(goal.work, goal.unit, ours, "the goal", [goal.most] * len(ours), 1.0)


def take_turns(sides: Mapping[str, Callable[[], float]], scale: Scale) -> dict[str, list[float]]:
    """Measure every side once a round, in reversed order every other round."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-1 if scale.warms_up else 0, scale.rounds):
        for name in sides if number % 2 else reversed(list(sides)):
            gc.collect()
            figure = sides[name]()
            if number >= 0:
                taken[name].append(figure)
    return taken


def cpu(work: Callable[[], object], calls: int) -> float:
    """Return the microseconds of this process's CPU for each of so many calls."""
    begun = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - begun) / calls * 1e6


async def cpu_awaited(work: Callable[[], Awaitable[object]], calls: int) -> float:
    """Return the microseconds of this process's CPU for each of so many awaited calls."""
    begun = time.process_time()
    for _ in range(calls):
        await work()
    return (time.process_time() - begun) / calls * 1e6
