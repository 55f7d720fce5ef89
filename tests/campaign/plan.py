"""What a campaign is asked for, of payouts or of orders, and what it came to."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from campaign.judge import Verdict
from momopay import EntryKind

SHOWN = 5
"""How many cases of a finding are reported in full."""


@dataclass(frozen=True)
class Plan:
    """What a campaign over sockets is asked for.

    `database` is sqlite or postgresql; `fault` is one that storms have only on demand: late, restored or struck.
    """

    what: Literal["payouts", "orders"]
    size: int
    seconds: float
    seed: int
    database: str = "sqlite"
    fault: str | None = None
    control: str | None = None

    @property
    def kind(self) -> EntryKind:
        return EntryKind.PAYOUT if self.what == "payouts" else EntryKind.COLLECTION

    @property
    def command(self) -> list[str]:
        """The command that repeats it."""
        words = ["tests/campaign/run.py", f"--{self.what}", str(self.size), "--seconds", f"{self.seconds:g}"]
        words += ["--seed", str(self.seed), "--database", self.database]
        words += ["--fault", self.fault] if self.fault else []
        return words + (["--control", self.control] if self.control else [])

    def run(self, folder: Path) -> tuple[Result, str]:
        """Run it in a process of its own, which has a network of its own; return its result and its report."""
        path, root = folder / f"{self.seed}.pickle", Path(__file__).resolve().parents[2]
        command = [sys.executable, *self.command, "--result", str(path)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert path.exists(), done.stderr
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]


@dataclass
class Result:
    verdict: Verdict = field(default_factory=Verdict)
    details: Counter[str] = field(default_factory=Counter[str])
    counts: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def add(self, other: Result) -> None:
        self.verdict.add(other.verdict)
        self.details.update(other.details)
        for name, counts in other.counts.items():
            self.counts.setdefault(name, Counter()).update(counts)

    def report(self, *head: str) -> str:
        lines = [
            *head,
            *(f"{name}: {number}" for name, number in [*self.details.items(), *self.verdict.figures.items()]),
        ]
        for title, counted in self.counts.items():
            lines.append(f"{title}: {counted.total()}")
            lines += [f"- {name}: {number}" for name, number in sorted(counted.items())]
        for finding, cases in self.verdict.findings.items():
            lines += [f"FOUND {finding.value}: {case}" for case in cases[:SHOWN]]
            if len(cases) > SHOWN:
                lines.append(f"FOUND {finding.value}: and {len(cases) - SHOWN} more")
        return "\n".join(lines)
