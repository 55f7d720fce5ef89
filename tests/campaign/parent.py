"""What the parents of both campaigns do alike: start the processes of a storm, ask for orders, hear what was said."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from campaign import receiver, worker
from campaign.clocks import SKEWS, Clock, own_time, settle_near
from campaign.herd import STOPS, Child, Herd
from campaign.judge import Word
from campaign.orders import Order, asked, once, orders_of
from campaign.plan import Plan
from campaign.settings import LANES, Note, Settings, read_log
from campaign.storm import KEY, Service
from campaign.troubles import Troubles
from campaign.words import heard
from momopay import CallbackSigner, Client, Journal, JournalEntry, OutcomeUnknownError
from postgresql import PostgresqlServer

S = TypeVar("S", bound=Service)

STORM = 0.7
"""The storm's share of the time; the rest is for what follows it."""
WORKERS = 4
LATEST_START = 30.0
"""Seconds within which a worker calls for the first time."""
SIGNER = CallbackSigner("a secret of the parent")


class Parent(Generic[S]):
    """The process that runs the service, the only witness."""

    def __init__(self, plan: Plan, settings: Settings, service: S, server: PostgresqlServer | None) -> None:
        self.plan = plan
        self.settings = settings
        self.service = service
        self.begun = time.monotonic()
        self.rng = random.Random(f"parent {plan.seed}")
        self.clock = Clock(settings.epoch, settings.speed)
        self.journal = Journal(settings.database)
        self.orders = orders_of(plan.kind, plan.seed, plan.size)
        self.patient = self.client()
        self.kills: Counter[str] = Counter()
        self._said: list[Word] = []
        self._calls = count()
        long = plan.control == "late_arrival"
        self.troubles = Troubles(service, server, settings.folder, self.rng, network=plan.network, long=long)
        Path(settings.log).touch()

    @contextmanager
    def at_work(self) -> Generator[None]:
        with own_time(self.clock, hastened=True), self.patient:
            yield
        self.journal.close()

    def client(self, **options: Any) -> Client:
        return Client(KEY, base_url=self.service.base_url, budget=None, **options)

    def herd(self, number: int, *helpers: Child, hear_of_death: Callable[[Note], object], stops: float = STOPS) -> Herd:
        kinds = ("blocking", "async") if self.plan.client_kind == "both" else (self.plan.client_kind,)
        skews = [0.0, *self.rng.sample(SKEWS[2:], WORKERS - 1)]
        named = [
            replace(self.settings, name=f"w{number}{n}", client_kind=kinds[n % len(kinds)], skew=skews[n])
            for n in range(WORKERS)
        ]
        workers = [Child(worker.run, settings) for settings in named]
        hears = Child(receiver.run, replace(self.settings, name=f"receiver{number}"))
        luck = random.Random(f"kills {self.plan.seed} {number}")
        return Herd([*workers, *helpers], hears, luck, hear_of_death, stops)

    def spent_of_a_storm(self, seconds: float) -> Callable[[], float]:
        """Return what tells how much of a storm's time is over, from 0 to 1.

        The time begins with the first outcome that a worker logs: on a busy machine, a worker takes long to start.
        """
        words, begun = self._logged(), time.monotonic()
        latest, has_begun = begun + LATEST_START, False

        def spent() -> float:
            nonlocal begun, has_begun
            now = time.monotonic()
            has_begun = has_begun or now > latest or self._logged() > words
            begun = begun if has_begun else now
            return (now - begun) / seconds

        return spent

    def _logged(self) -> int:
        return len(read_log(self.settings.log)[0])

    def ask(self, client: Client, references: Iterable[str], journal: Journal | None = None) -> None:
        orders, kind = {order.reference: order for order in self.orders}, self.plan.kind

        def ask(reference: str) -> None:
            call = f"parent#{next(self._calls)}"
            arguments = asked(kind, orders[reference], call)
            url = SIGNER.url(self.settings.hook, reference=reference)
            with heard(self._said.append, call, reference, time.monotonic) as ear:
                ear.record = once(client, kind)(journal=journal or self.journal, callback_url=url, **arguments)

        with ThreadPoolExecutor(LANES) as pool:
            list(pool.map(ask, list(references)))

    def settle_by_eye(self) -> int:
        """Ask for what is in doubt, and settle what only looks similar; return how much was."""
        settled, kind = 0, self.plan.kind
        for entry in self.journal.unresolved():
            order = Order(entry.reference, entry.amount, entry.phone)
            try:
                once(self.patient, kind)(journal=self.journal, **asked(kind, order, "by eye"))
            except OutcomeUnknownError as error:
                settled += settle_near(self.journal, error)
        return settled

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
            "what the receiver and the sweeper heard": Counter(events),
        }
