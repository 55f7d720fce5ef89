"""The simulation's port: virtual time, the bank for sockets, and a fault, a kill or another's turn at each step."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import format_datetime
from functools import partial
from inspect import isawaitable
from types import coroutine
from typing import Any, Protocol, TypeVar

from campaign.answers import BEFORE_COMMIT, PAYOUT_FAULTS, executed, unexecuted
from campaign.bank import PAYOUT, STYLES, Bank
from momopay import JournalError
from momopay._transport.attempt import Headers, NoReplyError, Progress, RawResponse
from momopay._transport.sync_backend import SyncBackend

T = TypeVar("T")


class KilledError(BaseException):
    """The process is no more; nothing of it runs on."""


CALLBACK_FATES = ("lost", "late", "reordered", "duplicate")


@dataclass
class Weather:
    """How likely things go wrong: of a payout, of a read, of what follows a payout, and at one step."""

    payout: float = 0.3
    read: float = 0.06
    lag: float = 0.2
    callback: float = 0.2
    kill: float = 0.003
    cancel: float = 0.006
    journal: float = 0.002
    freeze: float = 0.01
    fates: tuple[str, ...] = CALLBACK_FATES

    def calm(self) -> None:
        self.payout = self.read = self.lag = self.callback = self.kill = self.cancel = self.journal = self.freeze = 0.0


READ_FAULTS = ("not_sent", "reset_before_read", "error_before_commit", "html_502", "truncated", "list_lag", *STYLES)
MOMENT = 0.05
"""Virtual seconds between two looks at whether a signal was set."""
FROZEN = (1.5, 4.5)
"""Virtual seconds for which a process stops at a payout: longer than its row counts as fresh, shorter than its time."""


class Alive(Protocol):
    """A process of the simulation, as its port sees it."""

    name: str
    alive: bool
    frozen_until: float


@dataclass
class Fate:
    """What the seed has in store; counts what struck and keeps the trace by which a replay is told."""

    rng: random.Random
    bank: Bank
    weather: Weather
    kill: Callable[[Alive], None]
    orphan: Callable[[Alive, Callable[[], object]], None]
    freeze: Callable[[Alive, str], None]
    known_ids: list[str] = field(default_factory=list[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    trace: int = 0

    def strikes(self, likelihood: float) -> bool:
        return likelihood > 0 and self.rng.random() < likelihood

    def note(self, *event: object) -> None:
        self.trace = (self.trace * 1_000_003 + sum(repr(event).encode())) % (1 << 61)


@coroutine
def another_turn() -> Generator[None, None, None]:
    """Let the scheduler go on with whichever task it likes."""
    yield


@coroutine
def asleep(until: float) -> Generator[float, None, None]:
    """Let the scheduler go on with others until then."""
    yield until


class SimulatedIO(SyncBackend):
    """The blocking client: a call is over before another begins, unless the process is killed on the way."""

    def __init__(self, fate: Fate, process: Alive) -> None:
        super().__init__()
        self.fate = fate
        self.process = process
        self.mistaken = False

    async def step(self, name: str) -> None:
        """Be killed here, or go on."""
        self._check_alive()
        await self.give_way()
        self._check_alive()
        self.fate.note(self.process.name, name)
        if self.fate.strikes(self.fate.weather.kill):
            self.fate.kill(self.process)
            raise KilledError

    async def give_way(self) -> None:
        """Let others go on; this client does not."""

    async def pass_time(self, seconds: float) -> None:
        self.fate.bank.advance(self.fate.bank.now + seconds)

    def _check_alive(self) -> None:
        if not self.process.alive:
            raise KilledError

    def now(self) -> float:
        return self.fate.bank.now

    def signal(self) -> Any:
        return SimulatedSignal(self)

    async def sleep(self, seconds: float) -> None:
        await self.pass_time(seconds)
        await self.step("slept")

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            await self.step("before the journal")
        except asyncio.CancelledError:
            # Harsher than the real port, which waits: the thread goes on without the task that began it.
            if self.fate.strikes(0.5):
                self.fate.orphan(self.process, lambda: work(*arguments))
            raise
        # Nobody can tell an acceptance with another's id from a true one while the journal cannot be asked.
        fails = not self.mistaken and self.fate.strikes(self.fate.weather.journal)
        if fails and self.fate.strikes(0.5):
            self.fate.faults["journal fails"] += 1
            raise JournalError("the journal fails, as planned")
        result = work(*arguments)
        if fails:
            self.fate.faults["journal fails after writing"] += 1
            raise JournalError("the journal fails, as planned")
        await self.step("after the journal")
        return result

    async def finish_in_thread(self, work: Callable[[], object]) -> None:
        await self.in_thread(work)

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes | None, *, timeout: float, progress: Progress | None
    ) -> RawResponse:
        await self.step("before the socket")
        path = url.partition("/v1")[2]
        begun = self.fate.bank.now
        if path == PAYOUT:
            await self._be_held_up(body)
        await self.pass_time(self.fate.rng.uniform(0.01, 0.3))
        self._check_alive()
        if progress is not None and progress.before_body is not None:
            progress.trace("http11.send_request_headers.started", {})
            await self._be_held_up(body)
            await progress.before_body()
            if self.fate.bank.now > begun + timeout:
                raise NoReplyError("the time was over before the body was written")
        answer = await self._struck(method, path, body, timeout)
        await self.step("after the socket")
        return answer

    async def _be_held_up(self, body: bytes | None) -> None:
        """Be frozen here, while a person looks after the payout, or go on."""
        if self.fate.strikes(self.fate.weather.freeze):
            until = self.fate.bank.now + self.fate.rng.uniform(*FROZEN)
            self.process.frozen_until = until
            self.fate.freeze(self.process, json.loads(body or b"")["reference"])
            await self.pass_time(max(0.0, until - self.fate.bank.now))
            self._check_alive()

    async def _struck(self, method: str, path: str, body: bytes | None, timeout: float) -> RawResponse:
        fate = self.fate
        pays = path == PAYOUT
        fault = ""
        if fate.strikes(fate.weather.payout if pays else fate.weather.read):
            fault = fate.rng.choice(PAYOUT_FAULTS if pays else READ_FAULTS)
            fate.faults[f"{'payout' if pays else 'read'}: {fault}"] += 1
        fate.note(method, path, fault)
        if fault in BEFORE_COMMIT:
            return unexecuted(fault, self._headers())
        lag, callback = self._twists() if pays else (fault == "list_lag", "")
        style = fault if fault in STYLES else ""
        execute = partial(fate.bank.answer, method, path, body, lag=lag, callback=callback, style=style)
        if fault == "late_commit":
            fate.bank.at(fate.rng.uniform(0.5, 3) * timeout, execute)
            await self.pass_time(timeout)
            raise NoReplyError("no answer in time")
        return await self._answered(fault, execute(), timeout)

    def _twists(self) -> tuple[bool, str]:
        fate = self.fate
        lag = fate.strikes(fate.weather.lag)
        callback = fate.rng.choice(fate.weather.fates) if fate.strikes(fate.weather.callback) else ""
        fate.faults["payout: list_lag"] += lag
        if callback:
            fate.faults[f"payout: callback_{callback}"] += 1
        return lag, callback

    async def _answered(self, fault: str, done: tuple[int, bytes], timeout: float) -> RawResponse:
        status, text = done
        await self.step("after the commit")
        self.mistaken = fault == "other_transaction"
        if fault == "hang_after_commit":
            await self.pass_time(timeout)
        return executed(fault, status, text, self._headers(), self.fate.rng, self.fate.known_ids)

    def _headers(self) -> Headers:
        return Headers({"Date": format_datetime(self.fate.bank.time, usegmt=True)})


class SimulatedSignal:
    """Wakes a task from another one of its process, within a moment of virtual time."""

    def __init__(self, port: SimulatedIO) -> None:
        self._port = port
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    async def wait(self, seconds: float) -> None:
        until = self._port.now() + seconds
        while not self._is_set and self._port.now() < until:
            await self._port.sleep(MOMENT)
        self._is_set = False


class SuspendingIO(SimulatedIO):
    """The asynchronous client: at each step another task may go on, and a cancellation may come."""

    is_async = True

    def bind_to_loop(self) -> None:
        """Do nothing: there is no event loop."""

    async def give_way(self) -> None:
        await another_turn()

    async def pass_time(self, seconds: float) -> None:
        await asleep(self.fate.bank.now + seconds)


def drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, while nobody else goes on."""
    with suppress(StopIteration):
        while True:
            coroutine.send(None)


async def awaited(result: Any) -> Any:
    """Take a call's result from a client of either kind."""
    if isawaitable(result):
        result = await result
    return result
