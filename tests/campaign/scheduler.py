"""Tasks of the simulation, stepped in an order that a seed chooses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from campaign.bank import Bank
from campaign.port import Alive, KilledError

CREEP = 0.02
"""Virtual seconds that one step takes at most."""


@dataclass(eq=False)
class Task:
    """One coroutine of one process."""

    process: Alive
    coroutine: Coroutine[Any, Any, None] | None = None
    wakes: float = 0.0
    cancellable: bool = False


class Scheduler:
    """Runs tasks until none is left; time creeps while they run, and leaps when all sleep."""

    def __init__(self, rng: random.Random, bank: Bank, cancels: Callable[[], bool]) -> None:
        self._rng = rng
        self._bank = bank
        self._cancels = cancels
        self._tasks: list[Task] = []
        self.current: Alive | None = None

    def spawn(self, process: Alive, work: Callable[[Task], Coroutine[Any, Any, None]]) -> None:
        task = Task(process)
        task.coroutine = work(task)
        self._tasks.append(task)

    @contextmanager
    def running(self, process: Alive) -> Generator[None]:
        self.current, interrupted = process, self.current
        try:
            yield
        finally:
            self.current = interrupted

    def run(self) -> None:
        """Go on until nothing is left to do, now or later."""
        bank = self._bank
        while self._tasks or bank.next_due is not None:
            ready = [task for task in self._tasks if _wakes(task) <= bank.now or not task.process.alive]
            if ready:
                self._step(self._rng.choice(ready))
                bank.advance(bank.now + self._rng.random() * CREEP)
            else:
                due = [_wakes(task) for task in self._tasks]
                bank.advance(min(due if bank.next_due is None else [*due, bank.next_due]))

    def _step(self, task: Task) -> None:
        assert task.coroutine is not None
        self.current = task.process
        try:
            if task.cancellable and task.process.alive and self._cancels():
                until = task.coroutine.throw(asyncio.CancelledError())
            else:
                until = task.coroutine.send(None)
        except (StopIteration, KilledError):
            self._tasks.remove(task)
        except Exception:
            self._tasks.remove(task)
            if task.process.alive:  # what a dead process's code still says, nobody hears
                raise
        else:
            task.wakes = 0.0 if until is None else until
        finally:
            self.current = None


def _wakes(task: Task) -> float:
    return max(task.wakes, task.process.frozen_until)
