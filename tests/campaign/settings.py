"""What the parent of a campaign tells the processes that it starts."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import threading
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from campaign.judge import Said, Word

SECRET = "a secret of the campaign"
TIMEOUT = 0.6
DEADLINE = 3.0
UNWRITTEN = ("row written", "head sent")
"""The points at which a payer has yet to write a payout's body."""
LANES = 4
"""Threads or tasks of a worker."""


@dataclass(frozen=True)
class Settings:
    """One process of the campaign.

    `dead_port` takes no connection; `pace` is the pause between calls, seconds. `epoch` and `speed` tell the service's
    time. `skew` is how far the process's clock is ahead of it at first; `freezes` and `dies` how likely it stops, or
    dies, at each point of a payout; `cuts` how likely the network fails when it is about to write a body. `fault` is
    the one that was asked for.
    """

    name: str
    client_kind: str
    seed: int
    orders: int
    database: str
    base_url: str
    key: str
    hook_port: int
    dead_port: int
    pace: float
    epoch: float
    speed: float
    skew: float
    freezes: float
    dies: float
    cuts: float
    log: str
    control: str | None
    fault: str | None = None

    def to_json(self) -> str:
        """Write them for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read them from a command line."""
        return cls(**json.loads(text))

    @property
    def hook(self) -> str:
        """Where callbacks come to."""
        return f"http://127.0.0.1:{self.hook_port}/momo"

    @property
    def folder(self) -> Path:
        """Where notes are left."""
        return Path(self.log).parent

    def rng(self) -> random.Random:
        """Give this process's luck."""
        return random.Random(f"{self.seed} {self.name}")


def end_with_the_parent() -> None:
    """See to it that this process does not outlive the campaign that started it."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@dataclass(frozen=True)
class Note:
    """What a process leaves behind when it stops or dies at a payout, for a person to find."""

    reference: str
    point: str

    def leave(self, folder: Path, name: str) -> Path:
        """Write it down, and return where."""
        path = folder / f"note-{name}"
        path.with_suffix(".new").write_text(json.dumps(asdict(self)))
        return path.with_suffix(".new").rename(path)

    @classmethod
    def take(cls, folder: Path, name: str) -> Self | None:
        """Read it and throw it away; None if there is none."""
        path = folder / f"note-{name}"
        if not path.exists():
            return None
        note = cls(**json.loads(path.read_text()))
        path.unlink()
        return note


class Log:
    """Lines that outlive the process that wrote them, however it dies: each is one write to the kernel."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def word(self, word: Word) -> None:
        """Write down what a call said."""
        self._write({"word": asdict(word)})

    def event(self, name: str) -> None:
        """Write down that something happened."""
        self._write({"event": name})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")


def read_word(fields: dict[str, Any]) -> Word:
    """Read a word back from its line."""
    read: dict[str, Any] = {**fields, "said": Said(fields["said"])}
    if read["amount"] is not None:
        read["amount"] = Decimal(read["amount"])
    return Word(**read)
