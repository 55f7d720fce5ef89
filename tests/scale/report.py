"""What a run at scale measured, and the table of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median, quantiles

CEILING = 60.0
"""One initiation for each request of a minute: what a key could settle if nothing had to be looked at."""


@dataclass
class Told:
    """One payment's end, as the payer heard of it."""

    ended: float
    told: float
    success: bool
    reasoned: bool


@dataclass
class Report:
    """One way to wait, over `minutes` of steady state; times in the service's seconds."""

    name: str
    told: list[Told] = field(default_factory=list[Told])
    begin: float = 0.0
    end: float = 0.0
    left_waiting: int = 0
    still_pending: int = 0
    refused: int = 0
    requests: Counter[str] = field(default_factory=Counter[str])
    delays: list[float] = field(default_factory=list[float])
    """How long reads had to wait for a slot, where that was looked at."""

    def timed_out(self, *, ended: bool) -> None:
        """Note a wait that gave up; one whose payment had ended was left waiting."""
        self.left_waiting += ended
        self.still_pending += not ended

    @property
    def settled(self) -> float:
        """Payments a minute whose end was told in steady state."""
        return sum(self.begin <= each.told < self.end for each in self.told) / (self.end - self.begin) * 60.0

    @property
    def latencies(self) -> list[float]:
        return sorted(each.told - each.ended for each in self.told)

    @property
    def median(self) -> float:
        return median(self.latencies)

    @property
    def p95(self) -> float:
        return quantiles(self.latencies, n=20)[-1]

    @property
    def reasoned(self) -> float:
        """The share of ends without success that were told with their reason."""
        failures = [each.reasoned for each in self.told if not each.success]
        return sum(failures) / len(failures) if failures else 1.0


HEAD = (
    f"{'way to wait':<34}{'settled':>8}{'x naive':>8}{'of 60':>7}{'429s':>6}{'left':>6}{'median':>8}{'p95':>7}"
    f"{'reasons':>9}{'payments':>10}{'pages':>7}{'reads':>7}"
)


def table(reports: Iterable[Report], naive: float) -> str:
    """Lay the reports out; settled is payments a minute, latencies are seconds from the end to being told."""
    lines = [HEAD]
    for each in reports:
        count = each.requests
        lines.append(
            f"{each.name:<34}{each.settled:>8.1f}{each.settled / naive:>8.1f}{each.settled / CEILING:>7.2f}"
            f"{each.refused:>6}{each.left_waiting:>6}{each.median:>8.1f}{each.p95:>7.1f}{each.reasoned:>9.0%}"
            f"{count['payments']:>10}{count['pages']:>7}{count['reads']:>7}"
        )
    return "\n".join([*lines, ""])
