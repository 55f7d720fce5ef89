"""A campaign over sockets: a storm over processes that pay, what follows it, and the judge after each part."""

import os
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from campaign import controls, worker
from campaign.clocks import A_DAY, SKEWS, Clock, own_time, settle_near
from campaign.herd import BY, Child, Freezer, Herd, Human
from campaign.judge import Finding, Order, Said, Verdict, Word, judge
from campaign.orders import asking, heard, orders_of
from campaign.settings import DEADLINE, LANES, PRESSED, SPEED, TIMEOUT, Result, Settings, read_log, repeated
from campaign.storm import LIST_CATCHES_UP, Troubles, Witness
from momopay import Client, EntryKind, Journal, JournalEntry, JournalError, JournalState, OutcomeUnknownError
from postgresql import PostgresqlServer

STORM = 0.7
"""The storm's share of the time; the rest is for what follows it."""
WORKERS = 4
STOPS = 0.25
"""How likely a process is frozen, at any moment, and not killed."""
LATEST_START = 30.0
"""Seconds within which a worker calls for the first time."""
LOOKS_EVERY = 0.5
"""Seconds between two looks of the parent, and of a person, into the journal."""
BUSY = 1.0
"""Seconds that a busy machine takes, beyond a deadline, to execute a payment."""
COPIED, RESTORED = 2 / 3, 1 / 2
"""When a copy of the journal is made: the share of orders that is left to pay; when it is written back: that of those.

A storm pays a few more while it ends, so the second share cannot be of all orders: none might be paid in between.
"""
REFUSED = 0.7
"""The share of the storm in which everybody is refused then."""
ASKED = 8
"""Calls over an emptied journal."""


class Parent:
    """The process that runs the service, the only witness."""

    caught = controls.CAUGHT - {Finding.LOST}
    """What ends a control at once; what is lost may only be late."""

    def __init__(self, settings: Settings, service: Witness, server: PostgresqlServer | None) -> None:
        self.plan = settings.plan
        self.settings = settings
        self.service = service
        self.begun = time.monotonic()
        self.rng = random.Random(f"parent {self.plan.seed}")
        self.clock = Clock(settings.epoch)
        self.journal = Journal(settings.database)
        self.orders = orders_of(self.plan.kind, self.plan.seed, self.plan.size)
        self.patient = self.client()
        self.hasty = self.client(timeout=TIMEOUT, deadline=DEADLINE)
        pay = partial(self.ask, self.hasty)
        self.human = Human(self.plan.kind, service.payments, self.journal, self.hasty, self.clock, pay)
        # For a prompt, nobody looks while its payer is frozen.
        draws = (0.0, 1.0) if self.plan.kind is EntryKind.PAYOUT else (0.0, 0.4)
        self.freezer = Freezer(settings.folder, self.human, self.rng, draws)
        self.troubles = Troubles(service, server, settings, self.rng)
        self.kills: Counter[str] = Counter()
        self.details: Counter[str] = Counter()
        self.forgotten: set[str] = set()
        """What a restored copy does not have, and is not to be paid again."""
        self.parts = [self._close, self._release_the_rest]
        """What follows the storm and the calm after it."""
        self._said: list[Word] = []
        self._calls, self._storms = count(), count()
        settings.log.touch()

    def run(self) -> Result:
        """Pay under fire, then in peace; judge after each part."""
        is_restored = self.plan.fault == "restored"
        with self.at_work():
            with self.troubles:
                (self._storm_and_restore if is_restored else self.storm)()
            self.service.storm.calm = True
            self.calm_down()
            if is_restored:
                self._accept_restored()
            if self.plan.keys == "honoured":
                self.ask(self.patient, [entry.reference for entry in self.journal.unresolved()])
                self.details["payouts that need a person"] = len(self.journal.unresolved())
            verdict = self.judged()
            self.details["in doubt when the storm ended"] = verdict.left_unknown
            for part in self.parts:
                if self.is_caught(verdict):
                    break
                part()
                earlier, verdict = verdict, self.judged(closed=part is self.parts[-1])
                verdict.join(earlier)
            self.details["seconds"] = round(time.monotonic() - self.begun)
            self.details["callbacks POSTed by the service"] = self.service.deliveries()
            return Result(verdict, self.details, self.counts())

    def calm_down(self) -> None:
        """Wait until the lists have caught up and what is under way has arrived."""
        time.sleep(LIST_CATCHES_UP + self.service.storm.latest)

    @contextmanager
    def at_work(self) -> Generator[None]:
        with own_time(self.clock, hastened=True), self.patient, self.hasty:
            yield
        self.journal.close()

    def client(self, **options: Any) -> Client:
        return Client(**self.plan.client, base_url=self.service.base_url, **options)

    def herd(self) -> Herd:
        number, struck = next(self._storms), self.plan.fault == "struck"  # signals raise into blocking calls only
        skews = [0.0, *self.rng.sample(SKEWS[2:], WORKERS - 1)]
        workers = [
            Child(
                worker.run, replace(self.settings, name=f"w{number}{n}", is_async=n % 2 == 1 and not struck, skew=skew)
            )
            for n, skew in enumerate(skews)
        ]
        if self.plan.kind is EntryKind.COLLECTION:
            workers.append(Child(worker.sweep, replace(self.settings, name="sweeper", freezes=0.0, dies=0.0)))
        receiver = Child(worker.receive, replace(self.settings, name=f"receiver{number}"))
        # A storm with one more fault is shorter than what stops would take.
        stops = 0.0 if self.plan.fault else STOPS
        return Herd(workers, receiver, random.Random(f"kills {self.plan.seed} {number}"), stops)

    def storm(self, share: float = 1.0, left: float = 0.0) -> None:
        """Pay until that share of the orders is left, or that share of the storm's time is over.

        The time begins with the first outcome that a worker logs: on a busy machine, a worker takes long to start.
        """
        herd = self.herd()
        # Where payouts are sent again with their keys, nobody looks after them.
        works = [] if self.plan.keys == "honoured" else [self.human.look]
        works += [self.human.press] if self.plan.fault in PRESSED else []
        works += [self._step_clock] if self.plan.fault == "stepped" else []
        seconds, words, latest = share * STORM * self.plan.seconds, self._logged(), time.monotonic() + LATEST_START
        try:
            with repeated(*works, every=LOOKS_EVERY):
                while self._logged() == words and time.monotonic() < latest:
                    time.sleep(0.05)
                self._let_pay(herd, seconds, left)
                self.freezer.tend(herd.pids())  # what the herd stopped last may hold the database's lock
            self.freezer.join()
        finally:
            herd.end()
            self.clock.skew = 0.0
        self.kills.update(herd.events)

    def _step_clock(self) -> None:
        """Set the clock of the process in which people release payouts."""
        self.clock.skew = self.rng.choice(SKEWS)

    def waiting(self) -> float:
        """Return the share of the orders that may still be paid; -1 if the storm is to end at once."""
        if self.plan.kind is EntryKind.COLLECTION:
            return 1.0
        if self.plan.control and self.is_caught(self.judged()):
            return -1.0
        # Signals strike calls whether or not they pay.
        return 1.0 if self.plan.fault == "struck" else len(self._unasked()) / len(self.orders)

    def _let_pay(self, herd: Herd, seconds: float, left: float) -> None:
        begun, look, waiting = time.monotonic(), 0.0, 1.0
        while waiting > left and not herd.done and (spent := (time.monotonic() - begun) / seconds) < 1:
            herd.tend()
            self.freezer.tend(herd.pids())
            if self.plan.fault is None:
                self.troubles.tend(max(spent, 1 - waiting))
            if time.monotonic() >= look:
                look = time.monotonic() + LOOKS_EVERY
                with suppress(JournalError):  # the database is down
                    waiting = self.waiting()
            time.sleep(0.1)

    def _logged(self) -> int:
        return len(read_log(self.settings.log)[0])

    def ask(self, client: Client, references: Iterable[str], journal: Journal | None = None) -> None:
        orders, kind = {order.reference: order for order in self.orders}, self.plan.kind

        def ask(reference: str) -> None:
            call = f"parent#{next(self._calls)}"
            options = {"journal": journal or self.journal, "callback_url": self.settings.hook(reference)}
            with heard(self._said.append, call, reference, time.monotonic) as ear:
                ear.record = asking(client, kind, orders[reference], call, **options)()

        with ThreadPoolExecutor(LANES) as pool:
            list(pool.map(ask, list(references)))

    def settle_by_eye(self) -> None:
        """Ask for what is in doubt, and settle what only looks similar."""
        for entry in self.journal.unresolved():
            order = Order(entry.reference, entry.amount, entry.phone)
            try:
                asking(self.patient, self.plan.kind, order, "by eye", journal=self.journal)()
            except OutcomeUnknownError as error:
                self.human.events["settled by eye"] += settle_near(self.journal, error)

    def entries(self) -> dict[str, JournalEntry | None]:
        return {order.reference: self.journal.get(order.reference, self.plan.kind) for order in self.orders}

    def _storm_and_restore(self) -> None:
        """Write an older copy of the journal over it while nobody pays; then let everybody try to pay."""
        path = Path(self.settings.database.removeprefix("sqlite:///"))
        copy = path.with_suffix(".copy")
        self.storm(left=COPIED)
        self.journal.backup(copy)
        self.storm(left=RESTORED * self.waiting())
        self.journal.close()
        self._put_back(copy, path)
        before = self._refusals()
        self.storm(share=REFUSED)
        self.details["calls refused over a restored copy"] = self._refusals() - before

    def _accept_restored(self) -> None:
        """Reconcile, take what the copy does not have out of what is to be paid, and accept it."""
        first = datetime.fromtimestamp(self.settings.epoch + self.begun * SPEED, UTC)
        report = self.patient.transactions.reconcile(
            journal=self.journal, day=first.date(), last_day=self.clock.now().date(), utc=True
        )
        self.forgotten = {each.reference for each in report.differences if self.journal.get(each.reference) is None}
        self.details["payouts that a restored copy had forgotten"] = len(self.forgotten)
        self.journal.accept_restored(by=BY)

    def _refusals(self) -> int:
        return sum(word.said is Said.MISCONFIGURED for word in self.words())

    def _unasked(self) -> list[str]:
        done = {JournalState.ACCEPTED, JournalState.UNKNOWN}
        return [name for name, entry in self.entries().items() if entry is None or entry.state not in done]

    def _close(self) -> None:
        """Settle what the list shows, which has caught up; pay what surely was not paid, and look again."""
        if self.plan.database == "sqlite" and self.plan.fault is None:
            self._empty_the_journal()
        with self.clock.ahead(A_DAY):
            self.journal.reconcile_all(self.patient)
        self.ask(self.patient, set(self._unasked()) - self.forgotten)
        time.sleep(TIMEOUT)
        self.journal.reconcile_all(self.patient)
        self.settle_by_eye()

    def _release_the_rest(self) -> None:
        unpaid = [entry.reference for entry in self.human.unpaid(self.journal.unresolved())]
        self.human.release_at_last(unpaid)
        self.ask(self.patient, unpaid)

    def _empty_the_journal(self) -> None:
        """Cut the journal's file to nothing, call for orders of every kind, and set it right again."""
        path = Path(self.settings.database.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        kept = path.with_suffix(".kept")
        shutil.copyfile(path, kept)
        asked = [order.reference for order in self.rng.sample(self.orders, min(ASKED, len(self.orders)))]
        before = len(self.service.payments())
        os.truncate(path, 0)
        self.ask(self.hasty, asked)
        # And as it is after a restart, when nothing but the file is left.
        self.journal.close()
        _delete_logs(path)
        os.truncate(path, 0)
        with Journal(self.settings.database) as fresh:
            self.ask(self.hasty, asked, fresh)
        made = len(self.service.payments()) - before
        self.details["calls refused over an emptied journal"] = 2 * len(asked) - made
        self._put_back(kept, path)

    def _put_back(self, copy: Path, path: Path) -> None:
        """Write a copy over the journal's file, which nobody has open."""
        _delete_logs(path)
        shutil.copyfile(copy, path)
        self.journal = self.human.journal = Journal(self.settings.database)

    def is_caught(self, verdict: Verdict) -> bool:
        return self.plan.control is not None and bool(self.caught & verdict.found)

    def judged(self, *, closed: bool = False) -> Verdict:
        words = self.words()
        while True:
            with suppress(JournalError):  # the database is down
                return judge(
                    self.orders,
                    self.service.payments(),
                    self.entries(),
                    words,
                    kind=self.plan.kind,
                    closed=closed,
                    latest=DEADLINE + self.service.storm.latest + BUSY,
                    released=self.human.began,
                    forgotten=self.forgotten,
                )
            time.sleep(LOOKS_EVERY)

    def words(self) -> list[Word]:
        return [*self._said, *read_log(self.settings.log)[0]]

    def counts(self) -> dict[str, Counter[str]]:
        words, events = read_log(self.settings.log)
        return {
            "faults struck": self.service.struck(),
            "failures of the network and the database": self.troubles.events,
            "calls": Counter(word.said.value for word in [*self._said, *words]),
            "kills": self.kills,
            "frozen senders": self.freezer.events,
            "releases": self.human.events,
            "what the receiver and the sweeper heard": Counter(events),
        }


def _delete_logs(path: Path) -> None:
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
