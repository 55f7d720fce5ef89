"""What the parent of a campaign tells the processes that it starts, and what they leave for it in files."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from campaign import controls
from campaign.judge import Said, Word
from momopay import EntryKind

SECRET = "a secret of the campaign"
TIMEOUT = 0.6
DEADLINE = 3.0
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
    kind: EntryKind
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

    @property
    def hook(self) -> str:
        return f"http://127.0.0.1:{self.hook_port}/momo"

    @property
    def folder(self) -> Path:
        return Path(self.log).parent


@contextmanager
def child_of_the_campaign(control: str | None) -> Generator[None]:
    """Log nothing, end with the campaign that started this process, and break the safety that it breaks."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with nullcontext() if control is None else controls.broken(control):
        yield


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(frozen=True)
class Note:
    """What a process leaves behind when it stops or dies at a payout, for a person to find."""

    reference: str
    point: str

    def leave(self, folder: Path, name: str) -> Path:
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
        self._write({"word": asdict(word)})

    def event(self, name: str) -> None:
        self._write({"event": name})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")


def read_log(path: str) -> tuple[list[Word], list[str]]:
    """Return the words and the events that all processes wrote."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    words = [_read_word(line["word"]) for line in lines if "word" in line]
    return words, [line["event"] for line in lines if "event" in line]


def _read_word(fields: dict[str, Any]) -> Word:
    read: dict[str, Any] = {**fields, "said": Said(fields["said"])}
    if read["amount"] is not None:
        read["amount"] = Decimal(read["amount"])
    return Word(**read)
