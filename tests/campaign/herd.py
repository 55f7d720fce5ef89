"""The campaign's processes: started, killed at random moments by the parent that started them, started again."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest.mock import patch

from campaign import receiver, worker
from campaign.settings import Note, Settings

PATIENCE = 10.0
STOPS = 0.25
"""How likely a process is frozen, at any moment, and not killed."""
BETWEEN_KILLS = (1_000, 9_000)
"""Bytes that the processes log between two kills, about 5 to 50 calls: a slow machine gets no more kills for it."""


@dataclass
class Child:
    """One process, and what it does."""

    work: Callable[[Settings], None]
    settings: Settings
    generation: int = 0
    process: ForkServerProcess | None = None
    done: bool = False

    def start(self) -> None:
        """Start it, under a name of this generation: forked by a server that has the imports behind it."""
        named = replace(self.settings, name=f"{self.settings.name}.{self.generation}")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([worker.__name__, receiver.__name__])
        self.process = context.Process(target=self.work, args=(named,))
        # Before Python 3.12.4, the server of forks does not know this process's sys.path.
        path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *sys.path])
        with patch.dict("os.environ", {"PYTHONPATH": path}):
            self.process.start()
        self.generation += 1

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.join(PATIENCE)


class Herd:
    """All of them. The last is the receiver of callbacks, which never ends by itself."""

    def __init__(
        self,
        workers: list[Child],
        receiver: Child,
        rng: random.Random,
        hear_of_death: Callable[[Note], object],
        stops: float = STOPS,
    ) -> None:
        """`hear_of_death` is told what a worker was paying that killed itself."""
        self.workers = workers
        self.receiver = receiver
        self.rng = rng
        self.events: Counter[str] = Counter()
        self._hear_of_death = hear_of_death
        self._stops = stops
        self._log = Path(receiver.settings.log)
        self._next_kill = self.rng.randrange(*BETWEEN_KILLS)
        for child in (*workers, receiver):
            child.start()

    def pids(self) -> list[int]:
        found = [child.process.pid for child in (*self.workers, self.receiver) if child.process is not None]
        return [pid for pid in found if pid is not None]

    @property
    def done(self) -> bool:
        return all(child.done for child in self.workers)

    def tend(self) -> None:
        """Start again what died, and kill one when the time for it has come."""
        for child in (*self.workers, self.receiver):
            assert child.process is not None
            code = None if child.done else child.process.exitcode
            if code == 0:
                child.done = True
            elif code == -signal.SIGKILL:
                self.events["kills of a worker by itself, around a payout"] += 1
                note = Note.take(child.settings.folder, f"dead-{child.process.pid}")
                if note is not None:
                    self._hear_of_death(note)
                child.start()
            elif code is not None:
                raise RuntimeError(f"{child.settings.name} ended with {code}: the campaign itself is broken")
        written = self._log.stat().st_size
        if written >= self._next_kill:
            self._next_kill = written + self.rng.randrange(*BETWEEN_KILLS)
            time.sleep(self.rng.uniform(0, 0.1))
            victims = [child for child in self.workers if not child.done]
            child = self.receiver if self.rng.random() < 0.12 else self.rng.choice(victims or [self.receiver])
            assert child.process is not None
            if child.process.exitcode is None and self.rng.random() < self._stops:
                assert child.process.pid is not None
                os.kill(child.process.pid, signal.SIGSTOP)
                self.events["a process was frozen"] += 1
            elif child.process.exitcode is None:
                child.kill()
                self.events["kills of the receiver" if child is self.receiver else "kills of a worker"] += 1
                child.start()

    def end(self) -> None:
        for child in (*self.workers, self.receiver):
            child.kill()


def dead_port() -> closing[socket.socket]:
    """Hold a port that refuses connections: bound, and nobody listens."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return closing(held)


def free_port() -> int:
    """Find a port for the receiver, which takes the same one each time it starts."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port
