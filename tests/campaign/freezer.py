"""Frozen processes: how long each stays so, and what a person does about its payout meanwhile."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from campaign.controls import UNWRITTEN
from campaign.human import Human
from campaign.settings import DEADLINE, Note

SHORT = (0.1, 1.0)
LONG = (DEADLINE + 2.4, DEADLINE + 3.2)
"""Seconds."""


class Freezer:
    """Finds processes that stopped, has a person look into their payouts, and lets them go on."""

    def __init__(self, folder: Path, human: Human, rng: random.Random, *, draws: tuple[float, float]) -> None:
        """`draws`: between which numbers it is drawn how long a process stays frozen, and who is released."""
        self.events: Counter[str] = Counter()
        self._folder = folder
        self._human = human
        self._rng = rng
        self._draws = draws
        self._threads: dict[int, threading.Thread] = {}

    def tend(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if _is_stopped(pid) and (pid not in self._threads or not self._threads[pid].is_alive()):
                draw = self._rng.uniform(*self._draws)
                note = Note.take(self._folder, str(pid))
                self._threads[pid] = threading.Thread(target=self._thaw, args=(pid, note, draw), daemon=True)
                self._threads[pid].start()

    def join(self) -> None:
        for thread in self._threads.values():
            thread.join()

    def _thaw(self, pid: int, note: Note | None, draw: float) -> None:
        begun = time.monotonic()
        try:
            self.events[self._wait(note, draw, begun)] += 1
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _wait(self, note: Note | None, draw: float, begun: float) -> str:
        share = draw % 0.25 * 4
        if note is None:
            time.sleep(SHORT[0] + share * (LONG[1] - SHORT[0]))
            return "frozen anywhere"
        if draw < 0.2:
            time.sleep(SHORT[0] + share * (SHORT[1] - SHORT[0]))
            return f"frozen for a moment: {note.point}"
        if draw < 0.4:
            time.sleep(LONG[0] + share * (LONG[1] - LONG[0]))
            return f"frozen beyond the deadline: {note.point}"
        if draw < 0.7 and note.point in UNWRITTEN:
            # Within the deadline, so that only the row, read again, can tell the payer.
            time.sleep(max(0.0, begun + 1.2 - time.monotonic()))
            released = self._human.release_early(note.reference)
            return f"frozen, {'released too early and paid' if released else 'not released'}: {note.point}"
        released = self._human.release_in_time(note.reference)
        return f"frozen, {'released and paid' if released else 'not released'}: {note.point}"


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
