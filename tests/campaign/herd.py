"""The campaign's processes, which are killed and frozen, and the person who looks after what is in doubt.

The careful one may do anything that the ledger allows. The hasty one trusts `client.payouts.release`, which must keep
her from what was sent a moment ago.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from campaign import worker
from campaign.clocks import A_DAY, Clock, end_lease
from campaign.judge import Payment, by_order
from campaign.settings import DEADLINE, Settings
from forked import in_a_fresh_process
from momopay import Client, EntryKind, Journal, JournalEntry, JournalError, MomoPayError
from momopay.journal.journal import internals

WAITS = 2.5
"""Seconds for which something is in doubt before the careful one acts: what is still under way has come by then."""
GIVES_UP = 12.0
"""Seconds after which she leaves a payout whose release is refused."""
DOUBTED = 3.5
"""Seconds for which the hasty one tries to release what just came to be in doubt. A call takes 3.6 s at most, so this
too is over before its lease and a minute are, after 7.5 s."""
BY = "the campaign's human"


@dataclass
class Human:
    """Releases payments, and has `pay` pay what was released; `payments` reads the service's ledger."""

    kind: EntryKind
    payments: Callable[[], list[Payment]]
    journal: Journal
    client: Client
    clock: Clock
    pay: Callable[[Iterable[str]], object]
    events: Counter[str] = field(default_factory=Counter[str])
    began: dict[str, float] = field(default_factory=dict[str, float])
    """When each release began, by the clock of the payments."""
    _doubted: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    _pressed: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    """Since when each attempt is known to be in doubt, to the careful one and to the hasty one. An attempt may be
    executed a moment after its call has ended, so the time counts anew with each."""

    def look(self) -> None:
        """Release what was in doubt for long and, by the ledger, was not paid; have it paid."""
        now, entries = time.monotonic(), self.journal.unresolved()
        self._doubted = {_attempt(entry): self._doubted.get(_attempt(entry), now) for entry in entries}
        left = internals(self.journal).store.seconds_to_release
        due = [entry for entry in entries if now - self._doubted[_attempt(entry)] >= WAITS and left(entry) <= 0]
        for entry in sorted(self.unpaid(due), key=_attempt)[:3]:
            # To pay the one before took seconds, in which somebody may have attempted this one.
            if self._attempts(entry.reference) != entry.attempts or not self.unpaid([entry]):
                continue
            if self._release(entry.reference) or self._release(entry.reference, unseen=True):
                self.events["released after a look into the ledger"] += 1
                self.pay([entry.reference])

    def press(self) -> None:
        """Release, without any search, what just came to be in doubt; have it paid."""
        now, doubtful = time.monotonic(), self.journal.unresolved()
        fresh = [entry for entry in doubtful if now - self._pressed.setdefault(_attempt(entry), now) < DOUBTED]
        released = [entry.reference for entry in fresh if self._release(entry.reference, unseen=True)]
        self.events["released as soon as it was in doubt"] += len(released)
        self.pay(released)

    def release_in_time(self, reference: str) -> bool:
        """Release what a frozen process is paying, once its lease and a minute are over; have it paid."""
        begun, first = time.monotonic(), 0
        while time.monotonic() - begun < GIVES_UP:
            time.sleep(0.2)
            with suppress(JournalError):  # the database is down
                entry = self.journal.get(reference, self.kind)
                attempts = 0 if entry is None else entry.attempts
                first = first or attempts
                if attempts != first:
                    return False
                if entry is not None and self.unpaid([entry]) and self._release(reference):
                    self.pay([reference])
                    return True
        return False

    def release_at_last(self, references: Iterable[str]) -> None:
        """Release them two days later."""
        with self.clock.ahead(2 * A_DAY):
            for reference in references:
                end_lease(self.journal, reference)
                released = self._release(reference) or self._release(reference, unseen=True)
                self.events["released at the end"] += released

    def _attempts(self, reference: str) -> int:
        entry = self.journal.get(reference, self.kind)
        return 0 if entry is None else entry.attempts

    def unpaid(self, entries: list[JournalEntry]) -> list[JournalEntry]:
        """Return those for which the service has made nothing, apart from the prompts that the journal has."""
        made = by_order(self.payments(), {entry.reference: entry for entry in entries})

        def is_unpaid(entry: JournalEntry) -> bool:
            known = entry.transaction_ids if self.kind is EntryKind.COLLECTION else ()
            return {each.transaction_id for each in made[entry.reference]} <= set(known)

        return list(filter(is_unpaid, entries))

    def _release(self, reference: str, *, unseen: bool = False) -> bool:
        self.began[reference] = time.monotonic()
        options: dict[str, Any] = {"reference": reference, "kind": self.kind, "by": BY, "searched_elsewhere": unseen}
        try:
            self.client.payouts.release(journal=self.journal, **options)
        except MomoPayError as error:
            how = "without a search" if unseen else "with a search"
            self.events[f"client.payouts.release, {how}: {type(error).__name__}"] += 1
            return False
        return True


def _attempt(entry: JournalEntry) -> tuple[str, int]:
    return entry.reference, entry.attempts


PATIENCE = 10.0
SHORT = (0.1, 1.0)
LONG = (DEADLINE + 2.4, DEADLINE + 3.2)
"""Seconds for which a process stays frozen."""
BETWEEN_KILLS = (1_000, 9_000)
"""Bytes that the processes log between two kills, about 5 to 50 calls: a slow machine gets no more kills for it."""


class Child:
    def __init__(self, work: Callable[[Settings], None], settings: Settings) -> None:
        self.work = work
        self.settings = settings
        self.done = False
        self._generation = count()
        self.start()

    def start(self) -> None:
        named = replace(self.settings, name=f"{self.settings.name}.{next(self._generation)}")
        self.process = in_a_fresh_process(self.work, named)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE)


@dataclass
class Herd:
    """All of them. The receiver of callbacks never ends by itself; `stops` is how likely one is frozen, not killed."""

    workers: list[Child]
    receiver: Child
    rng: random.Random
    stops: float
    events: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.children = [*self.workers, self.receiver]
        self._log = self.receiver.settings.log
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
        if self.rng.random() < self.stops:
            with suppress(ProcessLookupError):  # it has just killed itself
                os.kill(child.pid, signal.SIGSTOP)
                self.events["a process was frozen"] += 1
        else:
            child.kill()
            self.events["kills of the receiver" if child is self.receiver else "kills of a worker"] += 1
            child.start()

    def end(self) -> None:
        for child in self.children:
            child.kill()


@dataclass
class Freezer:
    """Finds processes that stopped, has a person look into their payouts, and lets them go on.

    Between `draws`, it is drawn how long a process stays frozen, and whose payout is released.
    """

    folder: Path
    human: Human
    rng: random.Random
    draws: tuple[float, float]
    events: Counter[str] = field(default_factory=Counter[str])
    _threads: dict[int, threading.Thread] = field(default_factory=dict[int, threading.Thread])

    def tend(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if _is_stopped(pid) and (pid not in self._threads or not self._threads[pid].is_alive()):
                draw = self.rng.uniform(*self.draws)
                self._threads[pid] = threading.Thread(target=self._thaw, args=(pid, draw), daemon=True)
                self._threads[pid].start()

    def join(self) -> None:
        for thread in self._threads.values():
            thread.join()

    def _thaw(self, pid: int, draw: float) -> None:
        note = self.folder / f"frozen-{pid}"
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
            released = self.human.release_in_time(reference)
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
