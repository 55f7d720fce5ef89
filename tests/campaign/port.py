"""The simulation's port: virtual time, the bank for sockets, and a fault, a kill or another's turn at each step.

Tasks are stepped in an order that a seed chooses.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from email.utils import format_datetime
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from campaign.bank import HTML, PAYOUT, STYLES, Bank, refused
from campaign.settings import REFUSING
from momopay import Journal, JournalError
from momopay._transport.attempt import Headers, NoReplyError, NotSentError, Progress, RawResponse
from momopay._transport.sync_backend import SyncBackend

T = TypeVar("T")


class KilledError(BaseException):
    """The process is no more; nothing of it runs on."""


@dataclass
class Weather:
    """How likely things go wrong: of a payout, of a read, of what follows a payout, at one step, and in a handler."""

    payout: float = 0.3
    read: float = 0.06
    lag: float = 0.2
    callback: float = 0.2
    kill: float = 0.003
    cancel: float = 0.006
    journal: float = 0.002
    freeze: float = 0.01
    handler: float = 0.2
    fates: tuple[str, ...] = ("lost", "late", "reordered", "duplicate")

    def calm(self) -> None:
        self.payout = self.read = self.lag = self.callback = self.handler = 0.0
        self.kill = self.cancel = self.journal = self.freeze = 0.0


BEFORE_COMMIT = {"not_sent", "reset_before_read", "error_before_commit", "html_502", "rate_limited"}
MISTAKES: Mapping[str, tuple[str, ...]] = {
    "other_transaction": ("transactionId",),
    "other_amount": ("amount",),
    "other_phone": ("phone",),
    "other_reference": ("reference", "accountReference"),
}
"""The fields of an acceptance that a fault changes."""
PAYOUT_FAULTS = (
    *("not_sent", "reset_before_read", "reset_after_commit", "hang_after_commit", "late_commit"),
    *("error_before_commit", "error_after_commit", "request_timeout_after_commit", "html_502", "html_502_after_commit"),
    *("truncated", "truncated_json", "redirect_after_commit", "rate_limited", "refused_after_commit"),
    *MISTAKES,
)
READ_FAULTS = ("not_sent", "reset_before_read", "error_before_commit", "html_502", "truncated", "list_lag", *STYLES)
MOMENT = 0.05
"""Virtual seconds between two looks at whether a signal was set."""
INSTEAD: Mapping[str, tuple[int, bytes, dict[str, str]]] = {
    "rate_limited": (*refused(429, "RATE_LIMIT_EXCEEDED"), {"Retry-After": "2"}),
    "error_before_commit": (*refused(500, "INTERNAL_ERROR"), {}),
    "error_after_commit": (*refused(500, "INTERNAL_ERROR"), {}),
    "request_timeout_after_commit": (408, b"", {}),
    "html_502": (502, HTML, {}),
    "html_502_after_commit": (502, HTML, {}),
    "redirect_after_commit": (307, b"", {"Location": PAYOUT}),
}
"""Faults whose answer is not the bank's: its status, body and headers."""
CREEP = 0.02
"""Virtual seconds that one step takes at most."""
FROZEN = (1.5, 4.5)
"""Virtual seconds for which a process stops at a payout: longer than its row counts as fresh, shorter than its time."""


@dataclass(eq=False)
class Process:
    """One process: its own journal object on the shared database, its own client."""

    name: str
    journal: Journal
    client: Any
    skew: float
    alive: bool = True
    frozen_until: float = 0.0


@dataclass
class Fate:
    """What the seed has in store; counts what struck and keeps the trace by which a replay is told."""

    rng: random.Random
    bank: Bank
    weather: Weather
    kill: Callable[[Process], None]
    orphan: Callable[[Process, Callable[[], object]], None]
    freeze: Callable[[Process, str], None]
    known_ids: list[str] = field(default_factory=list[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    trace: int = 0

    def strikes(self, likelihood: float) -> bool:
        return likelihood > 0 and self.rng.random() < likelihood

    def note(self, *event: object) -> None:
        self.trace = (self.trace * 1_000_003 + sum(repr(event).encode())) % (1 << 61)


@coroutine
def asleep(until: float = 0.0) -> Generator[float, None, None]:
    """Give way to whichever task the scheduler chooses, and go on no sooner than `until`."""
    yield until


class SimulatedIO(SyncBackend):
    """The asynchronous client: at each step another task may go on, and a kill or a cancellation may come."""

    is_async = True

    def __init__(self, fate: Fate, process: Process) -> None:
        super().__init__()
        self.fate = fate
        self.process = process
        self.mistaken = False

    def bind_to_loop(self) -> None:
        """Do nothing: there is no event loop."""

    async def step(self, name: str) -> None:
        self._check_alive()
        await asleep()
        self._check_alive()
        self.fate.note(self.process.name, name)
        if self.fate.strikes(self.fate.weather.kill):
            self.fate.kill(self.process)
            raise KilledError

    async def pass_time(self, seconds: float) -> None:
        await asleep(self.fate.bank.now + seconds)

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
        answer = await self._struck(method, path, body, headers.get("Idempotency-Key", ""), timeout)
        await self.step("after the socket")
        return answer

    async def _be_held_up(self, body: bytes | None) -> None:
        """Go on, or freeze here while a person looks after the payout."""
        if self.fate.strikes(self.fate.weather.freeze):
            until = self.fate.bank.now + self.fate.rng.uniform(*FROZEN)
            self.process.frozen_until = until
            self.fate.freeze(self.process, json.loads(body or b"")["reference"])
            await self.pass_time(max(0.0, until - self.fate.bank.now))
            self._check_alive()

    async def _struck(self, method: str, path: str, body: bytes | None, key: str, timeout: float) -> RawResponse:
        fate = self.fate
        pays = path == PAYOUT
        fault = ""
        if fate.strikes(fate.weather.payout if pays else fate.weather.read):
            fault = fate.rng.choice(PAYOUT_FAULTS if pays else READ_FAULTS)
            fate.faults[f"{'payout' if pays else 'read'}: {fault}"] += 1
        fate.note(method, path, fault)
        if fault == "not_sent":
            raise NotSentError("connection refused")
        if fault == "reset_before_read":
            raise NoReplyError("reset")
        if fault in BEFORE_COMMIT:
            return self._response(*INSTEAD[fault])
        lag, callback = self._twists() if pays else (fault == "list_lag", "")
        style = fault if fault in STYLES else ""
        execute = partial(fate.bank.answer, method, path, body, key, lag=lag, callback=callback, style=style)
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
        match fault:
            case "reset_after_commit" | "hang_after_commit":
                raise NoReplyError("reset, or no answer in time")
            case "truncated":
                raise NoReplyError("hung up", status=status, partial=text[: len(text) // 2])
            case "truncated_json":
                text = text[: len(text) // 2]
            case "refused_after_commit":
                status, text = refused(self.fate.rng.choice(REFUSING), "REQUEST_CONFLICT")
            case _ if fault in MISTAKES and status == 200:
                text = self._mistaken(fault, text)
            case _ if fault in INSTEAD:
                return self._response(*INSTEAD[fault])
            case _:
                pass
        return self._response(status, text, {})

    def _response(self, status: int, text: bytes, headers: Mapping[str, str]) -> RawResponse:
        date = format_datetime(self.fate.bank.time, usegmt=True)
        return RawResponse(status, Headers({"Date": date, **headers}), text)

    def _mistaken(self, fault: str, text: bytes) -> bytes:
        answer = json.loads(text)
        data: dict[str, Any] = answer["data"]
        # Only an id that the journal has as accepted: it cannot know of others.
        known = self.fate.known_ids
        others = {"other_transaction": self.fate.rng.choice(known) if known else data["transactionId"]}
        others |= {"other_amount": data["amount"] + 67, "other_phone": "254799999999", "other_reference": "SAL-OTHER"}
        answer["data"] = {name: others[fault] if name in MISTAKES[fault] else shown for name, shown in data.items()}
        return json.dumps(answer).encode()


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


@dataclass(eq=False)
class Task:
    process: Process
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
        self.current: Process | None = None

    def spawn(self, process: Process, work: Callable[[Task], Coroutine[Any, Any, None]]) -> None:
        task = Task(process)
        task.coroutine = work(task)
        self._tasks.append(task)

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
            task.wakes = until
        finally:
            self.current = None


def _wakes(task: Task) -> float:
    return max(task.wakes, task.process.frozen_until)
