"""What a campaign over sockets is asked for, and what it came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from campaign.judge import Verdict, table


@dataclass(frozen=True)
class Plan:
    """What a campaign is asked for. `database` is sqlite or postgresql; `network`: it may be made to fail."""

    payouts: int
    seconds: float
    seed: int
    client_kind: str = "both"
    database: str = "sqlite"
    control: str | None = None
    network: bool = False

    @property
    def arguments(self) -> list[str]:
        """The command line of the campaign."""
        counted = ["--payouts", str(self.payouts), "--seconds", f"{self.seconds:g}", "--seed", str(self.seed)]
        options = ["--client", self.client_kind, "--database", self.database]
        return counted + options + (["--control", self.control] if self.control else [])

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return " ".join(["python tests/campaign/run.py", *self.arguments])


@dataclass
class Result:
    """What it came to."""

    verdict: Verdict
    details: Counter[str]
    counts: dict[str, Counter[str]]

    def add(self, other: Result) -> None:
        """Sum up two rounds."""
        self.verdict.add(other.verdict)
        self.details.update(other.details)
        for name, counts in other.counts.items():
            self.counts.setdefault(name, Counter()).update(counts)

    def report(self, plan: Plan, network: str) -> str:
        """Write the table; `network` says how packets were lost, or why not."""
        details = {"seed": plan.seed, "network": network, **self.details}
        return f"{plan.command}\n{table(self.verdict, details, self.counts)}"
