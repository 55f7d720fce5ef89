"""The simulated world: processes that pay the same orders from one journal, die, start again, and hear callbacks."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from campaign.bank import Bank, callback_body
from campaign.clocks import end_lease
from campaign.judge import Payment, Verdict, Word, judge
from campaign.orders import Order, make_orders
from campaign.port import Fate, KilledError, SimulatedIO, SuspendingIO, Weather, another_turn, awaited
from campaign.scheduler import Scheduler, Task
from campaign.words import heard
from momopay import (
    AsyncClient,
    CallbackError,
    CallbackSigner,
    Client,
    ForgedCallbackError,
    Journal,
    JournalState,
    MomoPayError,
    parse_callback,
)
from virtual import install_backend

KEY = "pk_test_simulation"
BASE_URL = "https://api.example/v1"
HOOK = "https://shop.example/momo"
PROCESSES = 3
TASKS = 3
PASSES = 2
AGAIN = 0.08
"""How likely an order is asked for once more that is known to be paid."""
DOUBTED = 0.25
"""How likely one is that is in doubt."""
IMPOSTOR = 0.03
"""How likely another amount is asked for under its reference."""
FORGERIES = ("no token", "another's token", "made-up id", "another's id", "another amount", "garbage")


@dataclass(eq=False)
class Process:
    """One process: its own journal object on the shared database, its own client."""

    name: str
    journal: Journal
    client: Any
    alive: bool = True


@dataclass
class Outcome:
    """What one batch came to."""

    verdict: Verdict
    left_unknown: int
    released: int
    counts: dict[str, Counter[str]]
    trace: int


class World:
    """One batch: so many orders, one account, one journal."""

    def __init__(self, seed: int, orders: int, client_kind: str, folder: Path, weather: Weather) -> None:
        self.seed = seed
        random.seed(seed)  # the backoff's jitter draws from it
        self.rng = random.Random(f"world {seed}")
        self.orders = make_orders(seed, orders)
        self.client_kind = client_kind
        self.url = f"sqlite:///{folder}/journal.db"
        self.bank = Bank(self.rng, self._call_back)
        self.fate = Fate(self.rng, self.bank, weather, self._kill, self._orphan)
        self.scheduler = Scheduler(self.rng, self.bank, lambda: self.fate.strikes(weather.cancel))
        self.signer = CallbackSigner("a secret of the simulation")
        self.words: list[Word] = []
        self.events: Counter[str] = Counter()
        self.callbacks: Counter[str] = Counter()
        self.processes: dict[str, Process] = {}
        self.under_way: list[Order] = []
        self.accepted: set[str] = set()
        self.calls = 0

    def run(self) -> Outcome:
        """Pay under fire, then in peace; judge, let a human look, and judge again."""
        for number in range(PROCESSES):
            self._start(f"p{number}", 0)
        self._plan_refusals()
        for _ in range(len(self.orders) // 4):
            self.bank.at(self.rng.uniform(0, 20), self._forge)
        self.scheduler.run()
        self.fate.weather.calm()
        self.bank.advance(self.bank.now + 1000)
        self.scheduler.run()
        for process in self.processes.values():
            _bury(process)
        closing = self._open("closing")
        self._in_peace(closing, self._close)
        before = self._judge(closed=False)
        unknown = before.left_unknown
        self._in_peace(closing, self._human)
        verdict = self._judge(closed=True)
        for finding, cases in before.findings.items():
            verdict.findings[finding] = list(dict.fromkeys([*cases, *verdict.findings[finding]]))
        _bury(closing)
        said = Counter(word.said.value for word in self.words)
        counts = {"faults": self.fate.faults, "calls": said, "events": self.events, "callbacks": self.callbacks}
        return Outcome(verdict, unknown, self.events["released by a human"], counts, self.fate.trace)

    def _open(self, name: str) -> Process:
        journal = Journal(self.url)
        suspends = self.client_kind == "async"
        kind: Any = AsyncClient if suspends else Client
        client = kind(KEY, base_url=BASE_URL, budget=None, timeout=5.0, deadline=30.0)
        process = Process(name, journal, client)
        install_backend(client, (SuspendingIO if suspends else SimulatedIO)(self.fate, process))
        self.processes[name] = process
        return process

    def _start(self, name: str, generation: int) -> None:
        process = self._open(name)

        async def recover(_task: Task) -> None:
            if generation:
                try:
                    await awaited(process.journal.reconcile_all(process.client))
                except MomoPayError:
                    self.events["reconciliation failed"] += 1
            shares = [self.orders[number::TASKS] for number in range(TASKS)]
            for share in shares:
                self.scheduler.spawn(process, partial(self._pay_all, process, share))

        self.scheduler.spawn(process, recover)

    def _kill(self, process: Any) -> None:
        name, _, generation = str(process.name).partition(".")
        self.events["kills"] += 1
        _bury(process)
        following = int(generation or 0) + 1
        self.bank.at(self.rng.uniform(0.1, 20), lambda: self._start(f"{name}.{following}", following))

    def _orphan(self, process: Any, work: Callable[[], object]) -> None:
        self.events["work that outlived its task"] += 1

        async def go_on(_task: Task) -> None:
            await another_turn()
            if process.alive:
                work()

        self.scheduler.spawn(process, go_on)

    def _plan_refusals(self) -> None:
        for code in ("INSUFFICIENT_FUNDS", "KYC_NOT_VERIFIED"):
            begins = self.rng.uniform(0, 40)
            self.bank.at(begins, partial(setattr, self.bank, "refuses", code))
            self.bank.at(begins + self.rng.uniform(0.1, 3), partial(setattr, self.bank, "refuses", None))

    async def _pay_all(self, process: Process, share: list[Order], task: Task) -> None:
        for number in range(PASSES):
            # In the same order as another process, so that they meet at the same references.
            for order in random.Random(f"{self.seed} {number}").sample(share, len(share)):
                await another_turn()
                if not process.alive:
                    raise KilledError
                if order.reference in self.accepted and self.rng.random() >= AGAIN:
                    continue
                entry = process.journal.get(order.reference)
                if entry is not None and self.fate.strikes(IMPOSTOR):
                    await self._pay(process, replace(order, amount=order.amount + 1), task)
                if entry is not None and entry.state is JournalState.ACCEPTED:
                    self.accepted.add(order.reference)
                if entry is None or entry.state is not JournalState.UNKNOWN or self.rng.random() < DOUBTED:
                    await self._pay(process, order, task)

    async def _pay(self, process: Process, order: Order, task: Task) -> None:
        self.calls += 1
        call = f"{process.name}#{self.calls}"
        with heard(self.words.append, call, order.reference, lambda: self.bank.now) as ear:
            task.cancellable = True
            self.under_way.append(order)
            try:
                ear.record = await awaited(
                    process.client.payouts.pay_once(
                        journal=process.journal,
                        reference=order.reference,
                        amount=order.amount,
                        phone=order.phone,
                        description=call,
                        callback_url=self.signer.url(HOOK, reference=order.reference),
                    )
                )
            finally:
                self.under_way.remove(order)
                task.cancellable = False

    def _call_back(self, url: str, body: bytes, *, forged: str = "", attempt: int = 0) -> None:
        process = self.rng.choice(list(self.processes.values()))
        if not process.alive:
            self._again(url, body, forged, attempt)
            return

        async def hear(_task: Task) -> None:
            try:
                heard = await self._hear(process, url, body)
            except CallbackError as error:
                heard = type(error).__name__
            except (MomoPayError, KilledError) as error:
                heard = f"to come again: {type(error).__name__ if process.alive else 'the receiver was killed'}"
                self._again(url, body, forged, attempt)
            self.callbacks[f"forged, {forged}: {heard}" if forged else heard] += 1

        self.scheduler.spawn(process, hear)

    def _again(self, url: str, body: bytes, forged: str, attempt: int) -> None:
        if attempt < 5:
            self.bank.at(10, lambda: self._call_back(url, body, forged=forged, attempt=attempt + 1))

    async def _hear(self, process: Process, url: str, body: bytes) -> str:
        reference = self.signer.verify(url)
        callback = parse_callback(body)
        if callback.transaction.account_reference != reference:
            raise ForgedCallbackError("the token is another payment's")
        with process.journal.handling(callback) as first:
            if not first:
                return "seen before"
            transaction = await awaited(process.client.transactions.confirm(callback))
            entry = process.journal.settle(transaction)
            return "settled" if entry is not None else "none of the journal's"

    def _forge(self) -> None:
        kind = self.rng.choice(FORGERIES)
        order = self.rng.choice(self._worth_forging())
        others = [payment for payment in self.bank.ledger if payment.reference != order.reference]
        made_up = f"{self.rng.getrandbits(48):x}"
        identity = self.rng.choice(others).transaction_id if kind == "another's id" and others else made_up
        amount = order.amount + (1 if kind == "another amount" else 0)
        body = callback_body(Payment(order.reference, amount, order.phone, identity, "", 0.0), "SUCCESS")
        token_for = order.reference + ("x" if kind == "another's token" else "")
        url = HOOK if kind == "no token" else self.signer.url(HOOK, reference=token_for)
        self._call_back(url, json.dumps([made_up]).encode() if kind == "garbage" else body, forged=kind, attempt=5)

    def _worth_forging(self) -> list[Order]:
        """Whoever forges knows which payouts are under way or in doubt: a settled one cannot be shaken."""
        open_now: list[Order] = []
        for process in self.processes.values():
            if process.alive:
                doubtful = {entry.reference for entry in process.journal.unresolved()}
                open_now = [order for order in self.orders if order.reference in doubtful]
                break
        return [*self.under_way, *open_now] or self.orders

    def _in_peace(self, process: Process, work: Callable[[Process], Any]) -> None:
        self.scheduler.spawn(process, lambda _task: work(process))
        self.scheduler.run()

    async def _close(self, process: Process) -> None:
        await awaited(process.journal.reconcile_all(process.client))
        for order in self.orders:
            entry = process.journal.get(order.reference)
            if entry is None or entry.state not in {JournalState.ACCEPTED, JournalState.UNKNOWN}:
                await self._pay(process, order, Task(process))

    async def _human(self, process: Process) -> None:
        paid = {payment.reference for payment in self.bank.ledger}
        orders = {order.reference: order for order in self.orders}
        for entry in process.journal.unresolved():
            if entry.reference not in paid:
                self.events["released by a human"] += 1
                end_lease(process.journal, entry.reference)
                process.journal.release(entry.reference, by="the simulation's human")
                await self._pay(process, orders[entry.reference], Task(process))

    def _judge(self, *, closed: bool) -> Verdict:
        with Journal(self.url) as journal:
            entries = {order.reference: journal.get(order.reference) for order in self.orders}
        return judge(self.orders, self.bank.ledger, entries, self.words, closed=closed)


def _bury(process: Process) -> None:
    """Do what a kernel does for a process that it killed: let go of its locks and its connections."""
    process.alive = False
    opened = process.journal._database
    opened._closed = True
    database: Any = opened._own.database
    if database._lock is not None:
        database._lock.release()
