"""What a campaign of collections is asked for, and what it came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from campaign.collect_judge import Said, Verdict, Word


@dataclass(frozen=True)
class Plan:
    """What the campaign is asked for."""

    orders: int
    seconds: float
    seed: int
    database: str = "sqlite"
    control: str | None = None
    network: bool = False

    @property
    def arguments(self) -> list[str]:
        """The command line of the campaign."""
        counted = ["--orders", str(self.orders), "--seconds", f"{self.seconds:g}", "--seed", str(self.seed)]
        return [*counted, "--database", self.database, *(["--control", self.control] if self.control else [])]


@dataclass
class Result:
    """What it came to."""

    verdict: Verdict
    counts: dict[str, Counter[str]]
    report: str = ""


def read_word(fields: dict[str, Any]) -> Word:
    """Read a word back from its line."""
    read: dict[str, Any] = {**fields, "said": Said(fields["said"])}
    return Word(**read)
