"""A campaign over sockets: a storm over processes that pay, what follows it, and the judge after each part."""

import random
import time
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from campaign import controls, worker
from campaign.clocks import A_DAY, SKEWS, Clock, own_time, settle_near
from campaign.herd import Child, Freezer, Herd, Human
from campaign.judge import Finding, Order, Verdict, Word, judge
from campaign.orders import asking, heard, orders_of
from campaign.settings import DEADLINE, LANES, SPEED, TIMEOUT, Result, Settings, read_log, repeated
from campaign.storm import LIST_CATCHES_UP, Troubles, Witness
from momopay import Client, EntryKind, Journal, JournalEntry, JournalError, JournalState, OutcomeUnknownError
from momopay._transport import clock
from momopay.journal.entries import Moment
from momopay.journal.rules import seconds_to_resend
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
        self.journal.unresolved()  # from now on, a database that is away is an outage
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
        self.parts = [self._close, self._release_the_rest]
        """What follows the storm and the calm after it."""
        self._said: list[Word] = []
        self._calls = count()
        settings.log.touch()

    def run(self) -> Result:
        """Pay under fire, then in peace; judge after each part."""
        with self.at_work():
            with self.troubles:
                self.storm()
            self.service.storm.calm = True
            self.calm_down()
            if self.plan.keys == "honoured":
                self._send_again()
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
        skews = [0.0, *self.rng.sample(SKEWS[2:], WORKERS - 1)]
        workers = [
            Child(worker.run, replace(self.settings, name=f"w{n}", is_async=n % 2 == 1, skew=skew))
            for n, skew in enumerate(skews)
        ]
        if self.plan.kind is EntryKind.COLLECTION:
            workers.append(Child(worker.sweep, replace(self.settings, name="sweeper", freezes=0.0, dies=0.0)))
        receiver = Child(worker.receive, replace(self.settings, name="receiver"))
        # A storm of late payouts is shorter than what stops would take.
        stops = 0.0 if self.plan.late else STOPS
        return Herd(workers, receiver, random.Random(f"kills {self.plan.seed}"), stops)

    def storm(self) -> None:
        """Pay until no order is left, or the storm's time is over.

        The time begins with the first outcome that a worker logs: on a busy machine, a worker takes long to start.
        """
        herd = self.herd()
        # Where payouts are sent again with their keys, nobody looks after them.
        works = [] if self.plan.keys == "honoured" else [self.human.look]
        works += [self.human.press, self._step_clock] if self.plan.late else []
        latest = time.monotonic() + LATEST_START
        try:
            with repeated(*works, every=LOOKS_EVERY):
                while not self._has_begun() and time.monotonic() < latest:
                    time.sleep(0.05)
                self._let_pay(herd)
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
        return len(self._unasked()) / len(self.orders)

    def _let_pay(self, herd: Herd) -> None:
        begun, seconds, look, waiting = time.monotonic(), STORM * self.plan.seconds, 0.0, 1.0
        while waiting > 0 and not herd.done and (spent := (time.monotonic() - begun) / seconds) < 1:
            herd.tend()
            self.freezer.tend(herd.pids())
            if not self.plan.late:
                self.troubles.tend(max(spent, 1 - waiting))
            if time.monotonic() >= look:
                look = time.monotonic() + LOOKS_EVERY
                with suppress(JournalError):  # the database is down
                    waiting = self.waiting()
            time.sleep(0.1)

    def _has_begun(self) -> bool:
        return bool(read_log(self.settings.log)[0])

    def ask(self, client: Client, references: Iterable[str]) -> None:
        orders, kind = {order.reference: order for order in self.orders}, self.plan.kind

        def ask(reference: str) -> None:
            call = f"parent#{next(self._calls)}"
            options = {"journal": self.journal, "callback_url": self.settings.hook(reference)}
            with heard(self._said.append, call, reference, time.monotonic) as ear:
                ear.record = asking(client, kind, orders[reference], call, **options)()

        with ThreadPoolExecutor(LANES) as pool:
            list(pool.map(ask, list(references)))

    def _send_again(self) -> None:
        """Send again what is in doubt, and count what needs a person although its key may still be sent.

        On a machine that was too busy, the service's fifteen minutes are over.
        """
        self.ask(self.patient, [entry.reference for entry in self.journal.unresolved()])
        left, now = self.journal.unresolved(), time.monotonic()
        moment = Moment(clock.machine(), clock.now(), self.service.epoch + now * SPEED)
        late = [each for each in left if each.key_since is not None and seconds_to_resend(each, moment) <= 0]
        self.details["payouts that need a person"] = len(left) - len(late)
        self.details["payouts whose keys became too old"] = len(late)

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

    def _unasked(self) -> list[str]:
        done = {JournalState.ACCEPTED, JournalState.UNKNOWN}
        return [name for name, entry in self.entries().items() if entry is None or entry.state not in done]

    def _close(self) -> None:
        """Settle what the list shows, which has caught up; pay what surely was not paid, and look again."""
        with self.clock.ahead(A_DAY):
            self.journal.reconcile_all(self.patient)
        self.ask(self.patient, self._unasked())
        time.sleep(TIMEOUT)
        self.journal.reconcile_all(self.patient)
        self.settle_by_eye()

    def _release_the_rest(self) -> None:
        unpaid = [entry.reference for entry in self.human.unpaid(self.journal.unresolved())]
        self.human.release_at_last(unpaid)
        self.ask(self.patient, unpaid)

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
