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
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from campaign import controls
from campaign.judge import Word
from campaign.plan import Plan
from momopay import CallbackSigner

KEY = "pk_test_campaign"
SIGNER = CallbackSigner("a secret of the campaign")
TIMEOUT = 0.6
DEADLINE = 3.0
SPEED = 20.0
"""Virtual seconds a second: a callback comes after 1.75 s, a late list catches up within 3 s."""
LANES = 4
"""Threads or tasks of a worker."""
WORD = TypeAdapter(Word)


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
