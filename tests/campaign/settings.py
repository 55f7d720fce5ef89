"""What a campaign is asked for and came to; what its parent tells its processes, and what they leave in files."""

import json
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from campaign.judge import Verdict, Word
from momopay import CallbackSigner, EntryKind, JournalError

KEY = "pk_test_campaign"
SIGNER = CallbackSigner("a secret of the campaign")
TIMEOUT = 0.6
DEADLINE = 3.0
SPEED = 20.0
"""Virtual seconds a second: a callback comes after 1.75 s, a late list catches up within 3 s."""
SHOWN = 5
"""How many cases of a finding are reported in full."""
REFUSING = (200, 409, 425, 499)
"""Statuses of refusals with an unknown code, of payouts that were executed."""
LANES = 4
"""Threads or tasks of a worker."""
WORD = TypeAdapter(Word)


@dataclass
class Result:
    verdict: Verdict = field(default_factory=Verdict)
    details: Counter[str] = field(default_factory=Counter[str])
    counts: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def add(self, other: Self) -> None:
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


@dataclass(frozen=True)
class Plan:
    """What a campaign over sockets is asked for.

    `database` is sqlite or postgresql. `late`: many payouts are executed late, and somebody whose clock steps tries to
    release each as soon as it is unresolved. `keys` is what the service does with those of payouts; clients are told if
    it honours them.
    """

    what: Literal["payouts", "orders"]
    size: int
    seconds: float
    seed: int
    database: str = "sqlite"
    late: bool = False
    control: str | None = None
    keys: str = "ignored"

    @property
    def kind(self) -> EntryKind:
        return EntryKind.PAYOUT if self.what == "payouts" else EntryKind.COLLECTION

    @property
    def client(self) -> dict[str, Any]:
        return {"api_key": KEY, "budget": None, "payout_keys": self.keys == "honoured"}

    @property
    def command(self) -> list[str]:
        words = ["tests/campaign/run.py", f"--{self.what}", str(self.size), "--seconds", f"{self.seconds:g}"]
        words += ["--seed", str(self.seed), "--database", self.database]
        words += ["--keys", self.keys] if self.keys != "ignored" else []
        words += ["--late"] if self.late else []
        return words + (["--control", self.control] if self.control else [])

    def run(self, folder: Path) -> tuple[Result, str]:
        """Run it in a process of its own, which has a network of its own; return its result and its report."""
        path, root = folder / f"{self.seed}.pickle", Path(__file__).resolve().parents[2]
        command = [sys.executable, *self.command, "--result", str(path)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert path.exists(), done.stderr
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Settings:
    """One process of the campaign.

    `database` is its URL; `dead_port` takes no connection; `pace` is the pause between calls, seconds. `epoch` is the
    service's time when the monotonic clock was 0. `freezes` and `dies` are how likely a process stops, or dies, at each
    point of a payout; `cuts` how likely the network fails when it is about to write a body. `skew` is how far the
    process's clock is ahead at first.
    """

    plan: Plan
    folder: Path
    database: str
    base_url: str
    hook_port: int
    dead_port: int
    pace: float
    epoch: float
    freezes: float
    dies: float
    cuts: float
    name: str = "parent"
    is_async: bool = False
    skew: float = 0.0

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"

    def hook(self, reference: str) -> str:
        return SIGNER.url(f"http://127.0.0.1:{self.hook_port}/momo", reference=reference)


@contextmanager
def repeated(*works: Callable[[], None], every: float) -> Generator[None]:
    """Repeat each of these in a thread of its own until the context ends."""
    over = threading.Event()

    def repeat(work: Callable[[], None]) -> None:
        while not over.wait(every):
            with suppress(JournalError):  # the database is down: it works later
                work()

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


class Log:
    """Lines that outlive the process that wrote them, however it dies: each is one write to the kernel."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def word(self, word: Word) -> None:
        self._write({"word": asdict(word)})

    def event(self, name: str) -> None:
        self._write({"event": name})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")


def read_log(path: Path) -> tuple[list[Word], list[str]]:
    """Return the words and the events that all processes wrote."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    words = [WORD.validate_python(line["word"]) for line in lines if "word" in line]
    return words, [line["event"] for line in lines if "event" in line]
