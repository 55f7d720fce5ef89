"""Rounds in which every side takes its turn, and the rows that come of them. Knows no benchmark."""

import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")


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
class Row:
    """One line of the table: two sides, measured in the same rounds, in the same unit.

    Attributes:
        work: What was done.
        unit: What the figures count.
        ours: A figure for each round.
        other: Against whom.
        theirs: A figure for each round.
        goal: What the median of the rounds' ratios is to reach; None where nothing was promised.
        at_least: Whether more is better.
        is_difference: Whether the sides are subtracted, in `unit`, instead of divided.
    """

    work: str
    unit: str
    ours: Sequence[float]
    other: str
    theirs: Sequence[float]
    goal: float | None = None
    at_least: bool = False
    is_difference: bool = False

    @property
    def ratios(self) -> list[float]:
        """Each round's ratio, or difference."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [mine - its if self.is_difference else mine / its for mine, its in pairs]

    @property
    def reaches_its_goal(self) -> bool | None:
        """Whether the median does; None without a goal."""
        if self.goal is None:
            return None
        middle = median(self.ratios)
        return middle >= self.goal if self.at_least else middle <= self.goal


def take_turns(sides: Mapping[str, Callable[[], T]], scale: Scale) -> dict[str, list[T]]:
    """Measure every side once a round, in reversed order every other round."""
    taken: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(-1 if scale.warms_up else 0, scale.rounds):
        for name in sides if number % 2 else reversed(list(sides)):
            gc.collect()
            figure = sides[name]()
            if number >= 0:
                taken[name].append(figure)
    return taken


def cpu(work: Callable[[], object], calls: int) -> float:
    """Microseconds of this process's CPU for each of so many calls."""
    begun = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - begun) / calls * 1e6


async def cpu_awaited(work: Callable[[], Awaitable[object]], calls: int) -> float:
    """Microseconds of this process's CPU for each of so many awaited calls."""
    begun = time.process_time()
    for _ in range(calls):
        await work()
    return (time.process_time() - begun) / calls * 1e6
