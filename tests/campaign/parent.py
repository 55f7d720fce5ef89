"""What the parents of both campaigns do alike: a storm over processes that pay, calls of their own, what was said."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any, Generic, TypeVar

from campaign import worker
from campaign.clocks import SKEWS, Clock, own_time, settle_near
from campaign.herd import Child, Freezer, Herd
from campaign.human import Human
from campaign.judge import Order, Payment, Word
from campaign.orders import asked, heard, once, orders_of
from campaign.settings import DEADLINE, KEY, LANES, TIMEOUT, Settings, read_log
from campaign.storm import Service
from campaign.troubles import Troubles
from momopay import Client, EntryKind, Journal, JournalEntry, JournalError, OutcomeUnknownError
from postgresql import PostgresqlServer

S = TypeVar("S", bound=Service)

STORM = 0.7
"""The storm's share of the time; the rest is for what follows it."""
WORKERS = 4
STOPS = 0.25
"""How likely a process is frozen, at any moment, and not killed."""
LATEST_START = 30.0
"""Seconds within which a worker calls for the first time."""
LOOKS_EVERY = 0.5
"""Seconds between two looks of the parent, and of a person, into the journal."""


class Parent(Generic[S]):
    """The process that runs the service, the only witness."""

    def __init__(
        self,
        settings: Settings,
        service: S,
        server: PostgresqlServer | None,
        payments: Callable[[], list[Payment]],
        draws: tuple[float, float],
    ) -> None:
        """`payments` reads the service's ledger; `draws` are those of the `Freezer`."""
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
        self.human = Human(self.plan.kind, payments, self.journal, self.hasty, self.clock, self._ask_one)
        self.freezer = Freezer(settings.folder, self.human, self.rng, draws)
        self.troubles = Troubles(service, server, settings, self.rng)
        self.kills: Counter[str] = Counter()
        self._said: list[Word] = []
        self._calls, self._storms = count(), count()
        settings.log.touch()

    @contextmanager
    def at_work(self) -> Generator[None]:
        with own_time(self.clock, hastened=True), self.patient, self.hasty:
            yield
        self.journal.close()

    def client(self, **options: Any) -> Client:
        return Client(KEY, base_url=self.service.base_url, budget=None, **options)

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
        herd, over = self.herd(), threading.Event()
        works = [self.human.look, *([self.human.press] if self.plan.fault == "late" else [])]
        people = [threading.Thread(target=self._repeat, args=(work, over)) for work in works]
        for person in people:
            person.start()
        seconds, words, latest = share * STORM * self.plan.seconds, self._logged(), time.monotonic() + LATEST_START
        while self._logged() == words and time.monotonic() < latest:
            time.sleep(0.05)
        begun, look, waiting = time.monotonic(), 0.0, 1.0
        try:
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
        finally:
            over.set()
            self.freezer.tend(herd.pids())  # what the herd stopped last may hold the database's lock
            for person in people:
                person.join()
            self.freezer.join()
            herd.end()
        self.kills.update(herd.events)

    def waiting(self) -> float:
        """Return the share of the orders that may still be paid; -1 if the storm is to end at once."""
        return 1.0

    def _repeat(self, work: Callable[[], None], over: threading.Event) -> None:
        while not over.wait(LOOKS_EVERY):
            with suppress(JournalError):  # the database is down: they look again later
                work()

    def _logged(self) -> int:
        return len(read_log(self.settings.log)[0])

    def ask(self, client: Client, references: Iterable[str], journal: Journal | None = None) -> None:
        orders, kind = {order.reference: order for order in self.orders}, self.plan.kind

        def ask(reference: str) -> None:
            call = f"parent#{next(self._calls)}"
            options = asked(kind, orders[reference], call) | {"callback_url": self.settings.hook(reference)}
            with heard(self._said.append, call, reference, time.monotonic) as ear:
                ear.record = once(client, kind)(journal=journal or self.journal, **options)

        with ThreadPoolExecutor(LANES) as pool:
            list(pool.map(ask, list(references)))

    def _ask_one(self, reference: str) -> None:
        self.ask(self.hasty, [reference])

    def settle_by_eye(self) -> None:
        """Ask for what is in doubt, and settle what only looks similar."""
        for entry in self.journal.unresolved():
            order = Order(entry.reference, entry.amount, entry.phone)
            try:
                once(self.patient, self.plan.kind)(journal=self.journal, **asked(self.plan.kind, order, "by eye"))
            except OutcomeUnknownError as error:
                self.human.events["settled by eye"] += settle_near(self.journal, error)

    def entries(self) -> dict[str, JournalEntry | None]:
        return {order.reference: self.journal.get(order.reference, self.plan.kind) for order in self.orders}

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
