"""What a campaign over sockets is asked for, of payouts or of orders, and what it came to."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

SHOWN = 5
"""How many cases of a finding are told in full."""
PROGRAMS = {"payouts": "run.py", "orders": "collect.py"}


class Judged(Protocol):
    """A verdict: what there was, and the cases of each finding."""

    @property
    def rows(self) -> Mapping[str, object]:
        """What there was, in words."""
        ...

    @property
    def cases(self) -> Mapping[StrEnum, list[str]]:
        """What must never be, each with its cases."""
        ...


V = TypeVar("V", bound=Judged)


@dataclass(frozen=True)
class Plan:
    """What a campaign is asked for.

    `database` is sqlite or postgresql; `fault` is one that storms have only on demand: late, restored or struck;
    `network`: it may be made to fail.
    """

    what: Literal["payouts", "orders"]
    size: int
    seconds: float
    seed: int
    client_kind: str = "both"
    database: str = "sqlite"
    fault: str | None = None
    control: str | None = None
    network: bool = False

    @property
    def arguments(self) -> list[str]:
        """The command line of the campaign."""
        counted = [f"--{self.what}", str(self.size), "--seconds", f"{self.seconds:g}", "--seed", str(self.seed)]
        client = [] if self.client_kind == "both" else ["--client", self.client_kind]
        fault = ["--fault", self.fault] if self.fault else []
        control = ["--control", self.control] if self.control else []
        return [*counted, "--database", self.database, *client, *fault, *control]

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return " ".join(["python", f"tests/campaign/{PROGRAMS[self.what]}", *self.arguments])

    def run(self, folder: Path) -> tuple[Result[Any], str]:
        """Run it in a process of its own, which has a network of its own; return its result and its table."""
        path = folder / f"{self.seed}.pickle"
        program = [sys.executable, str(Path(__file__).with_name(PROGRAMS[self.what])), *self.arguments]
        done = subprocess.run([*program, "--result", str(path)], capture_output=True, text=True, check=False)
        assert path.exists(), done.stderr
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]


@dataclass
class Result(Generic[V]):
    """What it came to."""

    verdict: V
    details: Counter[str]
    counts: dict[str, Counter[str]]

    def report(self, plan: Plan, network: str) -> str:
        """Write the table; `network` says how packets were lost, or why not."""
        details = {"seed": plan.seed, "network": network, **self.details}
        return f"{plan.command}\n{table(self.verdict, details, self.counts)}"


def table(verdict: Judged, details: Mapping[str, object], counts: Mapping[str, Counter[str]]) -> str:
    """Write the result out."""
    rows = [*details.items(), *verdict.rows.items()]
    rows += [(finding.value, len(cases)) for finding, cases in verdict.cases.items()]
    for title, counted in counts.items():
        rows.append((title, sum(counted.values())))
        rows += [(f"- {name}", number) for name, number in sorted(counted.items())]
    width = max(len(name) for name, _ in rows)
    lines = [f"| {'what':{width}} | {'seen':>12} |", f"|{'-' * (width + 2)}|{'-' * 13}:|"]
    lines += [f"| {name:{width}} | {value!s:>12} |" for name, value in rows]
    for finding, cases in verdict.cases.items():
        lines += [f"FOUND {finding.value}: {case}" for case in cases[:SHOWN]]
        if len(cases) > SHOWN:
            lines.append(f"FOUND {finding.value}: and {len(cases) - SHOWN} more")
    return "\n".join(lines)
