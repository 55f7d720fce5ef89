"""The campaign's processes: started, killed at random moments, started again; and those that stop, for how long."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from campaign import worker
from campaign.human import Human
from campaign.settings import DEADLINE, Settings
from forked import in_a_fresh_process

PATIENCE = 10.0
SHORT = (0.1, 1.0)
LONG = (DEADLINE + 2.4, DEADLINE + 3.2)
"""Seconds for which a process stays frozen."""
BETWEEN_KILLS = (1_000, 9_000)
"""Bytes that the processes log between two kills, about 5 to 50 calls: a slow machine gets no more kills for it."""


class Child:
    """One process, and what it does."""

    def __init__(self, work: Callable[[Settings], None], settings: Settings) -> None:
        self.work = work
        self.settings = settings
        self.done = False
        self._generation = count()
        self.start()

    def start(self) -> None:
        """Start it, under a name of this generation."""
        named = replace(self.settings, name=f"{self.settings.name}.{next(self._generation)}")
        self.process = in_a_fresh_process(self.work, named)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE)


class Herd:
    """All of them. The receiver of callbacks never ends by itself."""

    def __init__(self, workers: list[Child], receiver: Child, rng: random.Random, stops: float) -> None:
        """`stops`: how likely a process is frozen, at any moment, and not killed."""
        self.workers = workers
        self.receiver = receiver
        self.children = [*workers, receiver]
        self.rng = rng
        self.events: Counter[str] = Counter()
        self._stops = stops
        self._log = receiver.settings.log
        self._next_kill = self.rng.randrange(*BETWEEN_KILLS)

    def pids(self) -> list[int]:
        return [child.pid for child in self.children]

    @property
    def done(self) -> bool:
        return all(child.done for child in self.workers if child.work is not worker.sweep)

    def tend(self) -> None:
        """Start again what died, and kill one when the time for it has come."""
        for child in self.children:
            code = None if child.done else child.process.exitcode
            if code == 0:
                child.done = True
            elif code == -signal.SIGKILL:
                self.events["kills of a worker by itself, around a payout"] += 1
                child.start()
            elif code is not None:
                raise RuntimeError(f"{child.settings.name} ended with {code}: the campaign itself is broken")
        written = self._log.stat().st_size
        if written >= self._next_kill:
            self._next_kill = written + self.rng.randrange(*BETWEEN_KILLS)
            time.sleep(self.rng.uniform(0, 0.1))
            self._kill_one()

    def _kill_one(self) -> None:
        victims = [child for child in self.workers if not child.done]
        child = self.receiver if self.rng.random() < 0.12 else self.rng.choice(victims or [self.receiver])
        if child.process.exitcode is not None:
            return
        if self.rng.random() < self._stops:
            os.kill(child.pid, signal.SIGSTOP)
            self.events["a process was frozen"] += 1
        else:
            child.kill()
            self.events["kills of the receiver" if child is self.receiver else "kills of a worker"] += 1
            child.start()

    def end(self) -> None:
        for child in self.children:
            child.kill()


class Freezer:
    """Finds processes that stopped, has a person look into their payouts, and lets them go on."""

    def __init__(self, folder: Path, human: Human, rng: random.Random, draws: tuple[float, float]) -> None:
        """`draws`: between which numbers it is drawn how long a process stays frozen, and whose payout is released."""
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
                self._threads[pid] = threading.Thread(target=self._thaw, args=(pid, draw), daemon=True)
                self._threads[pid].start()

    def join(self) -> None:
        for thread in self._threads.values():
            thread.join()

    def _thaw(self, pid: int, draw: float) -> None:
        note = self._folder / f"frozen-{pid}"
        point, _, reference = note.read_text().partition(": ") if note.exists() else ("", "", "")
        note.unlink(missing_ok=True)
        try:
            self.events[f"frozen {self._wait(point, reference, draw)}"] += 1
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _wait(self, point: str, reference: str, draw: float) -> str:
        """Wait until the process is to go on; return what happened. `point` is where it stopped by itself."""
        if point and draw >= 0.4:
            released = self._human.release_in_time(reference)
            return f"{'until released and paid' if released else 'and not released'}: {point}"
        how, (shortest, longest) = ("for a moment", SHORT) if draw < 0.2 else ("beyond the deadline", LONG)
        if not point:
            how, shortest, point = "for some time", SHORT[0], "anywhere"
        time.sleep(shortest + draw % 0.25 * 4 * (longest - shortest))
        return f"{how}: {point}"


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
