"""Fault campaigns in virtual time: `python tests/campaign/simulation.py --payouts 100000 --seed 1`.

Processes pay the same orders from one journal, die, start again, and hear callbacks. After the storm, people release
what is in doubt, carelessly and then by the ledger. Neither sockets nor threads: a seed replays a campaign exactly. The
journal and its database are real.
"""

import argparse
import json
import logging
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import momopay
from campaign import controls
from campaign.bank import STYLES, Bank, called_back
from campaign.clocks import SKEWS, end_lease, own_time, settle_near
from campaign.history import disagreements
from campaign.judge import Finding, Order, Payment, Verdict, Word, judge
from campaign.orders import JUMPS, asking, drive, heard, lane_of, next_call, orders_of
from campaign.port import Fate, KilledError, Process, Scheduler, SimulatedIO, Task, Weather, asleep
from campaign.settings import KEY, SIGNER, Result
from momopay import AsyncClient, EntryKind, Journal, JournalState, MomoPayError, OutcomeUnknownError
from momopay.journal.journal import internals
from virtual import install_backend

CALM = Weather()
CALM.calm()
BATCH = 200
"""Payouts of one account and one journal."""
FIERCE = 0.7
"""How likely a fault strikes a payout of a control, which is to be caught soon."""
BASE_URL = "https://api.example/v1"
HOOK = "https://shop.example/momo"
PROCESSES = 3
TASKS = 3
FORGERIES = ("no token", "another's token", "made-up id", "another's id", "another amount", "garbage")
DELIVERIES = 5
"""How often the service repeats a callback at most."""


@dataclass(frozen=True)
class Batch:
    """What one process of the machine simulates at a time."""

    seed: int
    orders: int
    control: str | None = None
    keys: str = "ignored"
    claims_keys: bool = False  # whether the clients are told that the service honours keys


class World:
    """One batch: so many orders, one account, one journal."""

    def __init__(self, batch: Batch, folder: Path) -> None:
        weather = Weather()
        if batch.control is not None:
            weather = Weather(payout=FIERCE, lag=FIERCE, callback=FIERCE, fates=("lost",))
        self.batch = batch
        random.seed(batch.seed)  # the backoff's jitter draws from it
        self.rng = random.Random(f"world {batch.seed}")
        self.orders = orders_of(EntryKind.PAYOUT, batch.seed, batch.orders)
        self.url = f"sqlite:///{folder}/journal.db"
        self.bank = Bank(self.rng, self._deliver, batch.keys)
        self.fate = Fate(self.rng, self.bank, CALM, self._kill, self._orphan, self._freeze)
        self.weather = weather
        self.scheduler = Scheduler(self.rng, self.bank, lambda: self.fate.strikes(weather.cancel))
        self.words: list[Word] = []
        self.events: Counter[str] = Counter()
        self.callbacks: Counter[str] = Counter()
        self.shaken = list[str]()
        self.handled = defaultdict[str, list[str]](list)  # which ends of each transaction, in order
        self.processes: dict[str, Process] = {}
        self.under_way: list[Order] = []
        self.calls = 0

    def now(self) -> datetime:
        """Return what the process that runs takes for the present."""
        current: Any = self.scheduler.current
        return self.bank.time + timedelta(seconds=0.0 if current is None else current.skew)

    def boot(self) -> float:
        """Return the seconds since the beginning, on a clock that cannot be set."""
        return self.bank.now

    def run(self) -> Result:
        """Pay under fire, then in peace; judge, let a human look, and judge again."""
        with own_time(self, hastened=False):
            self._in_peace(self._open("opening"), self._sweep)  # what ended before the first sweep is not handled
            self.fate.weather = self.weather
            for number in range(PROCESSES):
                self._start(f"p{number}", 0)
            self._plan_refusals()
            for _ in range(len(self.orders) // 4):
                self.bank.at(self.rng.uniform(0, 20), self._forge)
            self.scheduler.run()
            self.fate.weather = CALM
            if self.batch.claims_keys:
                helper = self._open("helper")
                self._in_peace(helper, self._pay_what_is_in_doubt)
            self.bank.advance(self.bank.now + 1000)
            self.scheduler.run()
            for process in self.processes.values():
                _bury(process)
            closing = self._open("closing")
            self._in_peace(closing, self._release_carelessly)
            self._in_peace(closing, self._close)
            before = self._judge(closed=False)
            self._in_peace(closing, self._ask_a_human)
            self.bank.advance(self.bank.now + 1000)
            self._in_peace(closing, self._sweep)
            verdict = self._judge(closed=True)
            self._in_peace(closing, self._shake)
            for reference in self.shaken:
                verdict.note(Finding.BELIEVED, f"{reference} changed by the word of a stranger")
            _bury(closing)
        verdict.join(before)
        said = Counter(word.said.value for word in self.words)
        counts = {"faults": self.fate.faults, "calls": said, "events": self.events, "callbacks": self.callbacks}
        details = {"trace": self.fate.trace, "left UNKNOWN when the faults were over": before.left_unknown}
        return Result(verdict, Counter(details), counts)

    def _open(self, name: str) -> Process:
        with patch("momopay.journal.sharing._open", dict[str, Any]()):  # processes share nothing in memory
            journal = Journal(self.url)
        options: dict[str, Any] = {"budget": None, "timeout": 5.0, "deadline": 30.0}
        options["payout_keys"] = self.batch.claims_keys
        client = AsyncClient(KEY, base_url=BASE_URL, journal=journal, **options)
        process = Process(name, journal, client, self.rng.choice(SKEWS))
        install_backend(client, SimulatedIO(self.fate, process))
        self.processes[name] = process
        return process

    def _start(self, name: str, generation: int) -> None:
        process = self._open(name)

        async def recover(_task: Task) -> None:
            if generation:
                try:
                    await self._sweep(process)
                except MomoPayError:
                    self.events["a sweep failed"] += 1
            for number in range(TASKS):
                self.scheduler.spawn(process, partial(self._pay_all, process, number))

        self.scheduler.spawn(process, recover)

    async def _sweep(self, process: Process) -> None:
        await process.client.transactions.sweep(handler=self._handle)

    def _handle(self, payment: momopay.Payment) -> None:
        if self.fate.strikes(self.fate.weather.handler):
            raise LookupError("the shop's database is away")
        self.handled[str(payment.transaction_id)].append(str(payment.status))

    def _kill(self, process: Process) -> None:
        name, _, generation = process.name.partition(".")
        self.events["kills"] += 1
        _bury(process)
        following = int(generation or 0) + 1
        self.bank.at(self.rng.uniform(0.1, 20), lambda: self._start(f"{name}.{following}", following))

    def _orphan(self, process: Process, work: Callable[[], object]) -> None:
        self.events["work that outlived its task"] += 1

        async def go_on(_task: Task) -> None:
            await asleep()
            if process.alive:
                work()

        self.scheduler.spawn(process, go_on)

    def _plan_refusals(self) -> None:
        for code in ("INSUFFICIENT_FUNDS", "KYC_NOT_VERIFIED"):
            begins = self.rng.uniform(0, 40)
            self.bank.at(begins, partial(setattr, self.bank, "refuses", code))
            self.bank.at(begins + self.rng.uniform(0.1, 3), partial(setattr, self.bank, "refuses", None))

    async def _pay_all(self, process: Process, number: int, task: Task) -> None:
        for order in lane_of(self.orders, self.batch.seed, number, TASKS):
            await asleep()
            if not process.alive:
                raise KilledError
            entry = process.journal.get(order.reference)
            if entry is not None and entry.state is JournalState.ACCEPTED:
                self.fate.known_ids.append(str(entry.transaction_id))
            wanted = next_call(self.rng, order, entry)
            if wanted is not None:
                await self._pay(process, wanted, task)

    async def _pay(self, process: Process, order: Order, task: Task) -> None:
        self.calls += 1
        if self.fate.strikes(JUMPS):
            process.skew = self.rng.choice(SKEWS)
        call = f"{process.name}#{self.calls}"
        with heard(self.words.append, call, order.reference, lambda: self.bank.now) as ear:
            task.cancellable = True
            self.under_way.append(order)
            try:
                url = _signed(order.reference)
                ear.record = await asking(process.client, EntryKind.PAYOUT, order, call, callback_url=url)()
            finally:
                self.under_way.remove(order)
                task.cancellable = False

    async def _pay_one(self, process: Process, reference: str) -> None:
        (order,) = (order for order in self.orders if order.reference == reference)
        await self._pay(process, order, Task(process))

    def _in_peace(self, process: Process, work: Callable[[Process], Any]) -> None:
        self.scheduler.spawn(process, lambda _task: work(process))
        self.scheduler.run()

    async def _release_carelessly(self, process: Process) -> None:
        """Release without the ledger, while the list shows all that was paid, in one way or another; and pay."""
        for number, entry in enumerate(process.journal.unresolved()):
            way = number % (len(STYLES) + 3)
            if way == 0:
                continue  # for the reconciliation
            self.bank.style = STYLES[way - 3] if way >= 3 else ""
            await self._release_late(process, entry.reference, searched_elsewhere=way == 1)
        self.bank.style = ""

    async def _release_late(self, process: Process, reference: str, *, searched_elsewhere: bool) -> None:
        end_lease(process.journal, reference)
        how = f"release, {'without' if searched_elsewhere else 'with'} a search"
        try:
            await _release(process, reference, searched_elsewhere=searched_elsewhere)
        except MomoPayError as error:
            self.events[f"{how}: {type(error).__name__}"] += 1
        else:
            self.events[how] += 1
            await self._pay_one(process, reference)

    async def _pay_what_is_in_doubt(self, process: Process) -> None:
        """Do what a program does that knows that its payouts have keys: pay again, and ask nobody."""
        for _ in range(3):  # the list may still lag
            for entry in process.journal.unresolved():
                await self._pay_one(process, entry.reference)
        self.events["payouts that need a person"] += len(process.journal.unresolved())

    async def _close(self, process: Process) -> None:
        """Settle what the list shows, and pay what surely was not paid."""
        await process.journal.reconcile_all(process.client)
        for unclear in process.journal.unresolved():
            order = Order(unclear.reference, unclear.amount, unclear.phone)
            try:
                await asking(process.client, EntryKind.PAYOUT, order, "by eye")()
            except OutcomeUnknownError as error:
                self.events["settled by eye"] += settle_near(process.journal, error)
        for each in self.orders:
            entry = process.journal.get(each.reference)
            if entry is None or entry.state not in {JournalState.ACCEPTED, JournalState.UNKNOWN}:
                await self._pay_one(process, each.reference)

    async def _ask_a_human(self, process: Process) -> None:
        """Release what is in doubt and, by the ledger, was not paid; and pay."""
        paid = {payment.reference for payment in self.bank.ledger}
        for entry in process.journal.unresolved():
            if entry.reference not in paid:
                await self._release_late(process, entry.reference, searched_elsewhere=True)

    def _freeze(self, frozen: Process, reference: str) -> None:
        """Release, as a person does, what a process was paying when it stopped, after the database's clock jumped."""
        self.events["frozen at a payout"] += 1
        others = [process for process in self.processes.values() if process.alive and process is not frozen]
        if not others:
            return
        person = self.rng.choice(others)
        work = partial(self._release_frozen, person, frozen, reference)
        self.bank.at(self.rng.uniform(0.1, 1.2), lambda: self.scheduler.spawn(person, work))

    async def _release_frozen(self, process: Process, frozen: Process, reference: str, _task: Task) -> None:
        if not process.alive or reference in {payment.reference for payment in self.bank.ledger}:
            return
        # If this person was held up longer than the payer, only the lease, which is ended here, would forbid a release.
        if frozen.frozen_until <= self.bank.now:
            return
        end_lease(process.journal, reference)
        try:
            drive(_release(process, reference, searched_elsewhere=True))
        except MomoPayError:
            return
        self.events["released while its payer was frozen"] += 1
        await self._pay_one(process, reference)

    def _deliver(self, url: str, body: bytes, *, forgery: str = "", attempt: int = 0) -> None:
        process = self.rng.choice(list(self.processes.values()))

        def again() -> None:
            if attempt < DELIVERIES:
                self.bank.at(10, lambda: self._deliver(url, body, forgery=forgery, attempt=attempt + 1))

        async def hear(_task: Task) -> None:
            heard = "the receiver was killed"
            with suppress(KilledError):
                receiving = process.client.transactions.receive(url, body, self._handle, signer=SIGNER)
                heard = str(int(await receiving))
            if not heard.startswith(("2", "4")):
                again()
            self.callbacks[f"forged, {forgery}: {heard}" if forgery else heard] += 1

        if process.alive:
            self.scheduler.spawn(process, hear)
        else:
            again()

    def _forge(self) -> None:
        """Forge a callback of a payout under way or in doubt: a settled one cannot be shaken."""
        kind, worth = self.rng.choice(FORGERIES), list(self.under_way)
        alive = next((process for process in self.processes.values() if process.alive), None)
        if alive is not None:
            doubtful = {entry.reference for entry in alive.journal.unresolved()}
            worth += [order for order in self.orders if order.reference in doubtful]
        order, identity = self.rng.choice(worth or self.orders), f"{self.rng.getrandbits(48):x}"
        others = [payment for payment in self.bank.ledger if payment.reference != order.reference]
        if kind == "another's id" and others:
            identity = self.rng.choice(others).transaction_id
        amount = order.amount + (kind == "another amount")
        body = called_back(Payment(order.reference, amount, order.phone, identity, "", 0.0), "SUCCESS")
        body = body[:-9] if kind == "garbage" else body
        url = HOOK if kind == "no token" else _signed(order.reference + "x" * (kind == "another's token"))
        self._deliver(url, body, forgery=kind, attempt=DELIVERIES)

    async def _shake(self, process: Process) -> None:
        """Deliver what a reader of signed URLs could say of each end that was delivered: another code, fee and time."""
        for order in self.orders:
            before = process.journal.get(order.reference)
            delivered = any(each.what == "delivered" for each in process.journal.history(order.reference))
            if before is None or not before.has_settled or not delivered:
                continue
            payment = Payment(order.reference, order.amount, order.phone, before.transaction_ids[-1], "", 0.0)
            stated = json.loads(called_back(payment, "SUCCESS" if before.status == "SUCCESS" else "CANCELLED"))
            stated["transaction"] |= {"result_code": "17", "transaction_fee": 555, "updated_at": "2020-01-01T00:00:00Z"}
            body = json.dumps(stated).encode()
            await process.client.transactions.receive(_signed(order.reference), body, self._handle, signer=SIGNER)
            if process.journal.get(order.reference) != before:
                self.shaken.append(order.reference)

    def _judge(self, *, closed: bool) -> Verdict:
        with Journal(self.url) as journal:
            entries = {order.reference: journal.get(order.reference) for order in self.orders}
            wrong = disagreements(journal)
            assert not wrong, wrong
        verdict = judge(self.orders, self.bank.ledger, entries, self.words, closed=closed)
        ends = {record.payment.transaction_id: record.status for record in self.bank.records}
        for identity in ends.keys() | self.handled.keys() if closed else ():
            handled, end = self.handled[identity], ends.get(identity)
            # Whoever looks after it was credited back does not hear of its failure.
            if handled != [end] and (end, handled) != ("REVERSED", ["FAILED", "REVERSED"]):
                verdict.note(Finding.HANDLED, f"{identity} is {end}, and was handled as {handled}")
        return verdict


def _bury(process: Process) -> None:
    """Do what a kernel does for a process that it killed: let go of its locks and its connections."""
    process.alive = False
    database: Any = internals(process.journal).store.database
    database._is_closed = True
    database.shared.release_locks()


async def _release(process: Process, reference: str, *, searched_elsewhere: bool) -> None:
    by = "the simulation's human"
    await process.client.payouts.release(reference=reference, by=by, searched_elsewhere=searched_elsewhere)


def _signed(reference: str) -> str:
    return SIGNER.url(HOOK, reference=reference)


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """Make a folder on a disk in memory, where there is one."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


def simulate(batch: Batch) -> Result:
    """Run one batch, in memory: what is tested is the order of the writes."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    with in_memory() as name, controls.broken(batch.control):
        return World(batch, Path(name)).run()


def run(batches: Sequence[Batch], jobs: int = 1) -> Result:
    """Simulate batches, in so many processes of this machine; that changes no result."""
    total = Result()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) if jobs > 1 else nullcontext() as pool:
        for result in map(simulate, batches) if pool is None else pool.map(simulate, batches):
            total.add(result)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Fault campaigns in virtual time.")
    parser.add_argument("--payouts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)), help="printed, to be given again")
    parser.add_argument("--control", choices=sorted(controls.OF_SIMULATION), help="break one safety on purpose")
    parser.add_argument("--jobs", type=int, default=1, help="processes of this machine; changes no result")
    options = parser.parse_args()
    batches = [
        Batch(options.seed * 1_000_003 + number, min(BATCH, left), options.control)
        for number, left in enumerate(range(options.payouts, 0, -BATCH))
    ]
    result = run(batches, options.jobs)
    sys.stdout.write(result.report(f"seed {options.seed}, {vars(options)}") + "\n")
    return 0 if result.verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
