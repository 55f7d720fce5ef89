"""One round of the campaign over sockets: a storm, what follows it, and the judge after each part."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from campaign import controls, receiver, worker
from campaign.clocks import SKEWS, Clock, hasten, unwind, wind
from campaign.forger import Forger
from campaign.freezer import Freezer
from campaign.herd import STOPS, Child, Herd
from campaign.human import BY, Human
from campaign.judge import Finding, Said, Verdict, Word, judge
from campaign.orders import Order, make_orders
from campaign.plan import Plan, Result
from campaign.settings import DEADLINE, TIMEOUT, Settings, read_word
from campaign.storm import KEY, LIST_CATCHES_UP, Service
from campaign.troubles import STYLES, Troubles
from campaign.words import heard
from momopay import CallbackSigner, Client, Journal, JournalError, JournalState
from postgresql import PostgresqlServer

WORKERS = 4
LOOKS_EVERY = 0.5
"""Seconds between two looks of the parent into the journal."""
STORM = 0.7
"""The storm's share of the time; the rest is for what follows it."""
BUSY = 1.0
"""Seconds that a busy machine takes, beyond a deadline, to execute a payout."""
COPIED, RESTORED = 2 / 3, 1 / 3
"""The shares of orders that are left to pay when a copy of the journal is made, and when it is written back."""
REFUSED = 0.7
"""The share of the storm in which everybody is refused then."""
ASKED = 8
"""Calls over an emptied journal."""
CAUGHT = controls.CAUGHT - {Finding.LOST}
"""What ends a control at once; what is lost may only be late."""


class Round:
    """The parent's work."""

    def __init__(self, plan: Plan, settings: Settings, service: Service, server: PostgresqlServer | None) -> None:
        self.plan = plan
        self.settings = settings
        self.service = service
        self.begun = time.monotonic()
        self.rng = random.Random(f"round {plan.seed}")
        self.clock = Clock(settings.epoch, settings.speed)
        self.journal = Journal(settings.database)
        self.orders = make_orders(plan.seed, plan.size)
        self.words: list[Word] = []
        self.hasty = self._client(timeout=TIMEOUT, deadline=DEADLINE)
        self.patient = self._client()
        self.human = Human(service, self.journal, self.hasty, self.clock, self._pay_one)
        draws, _ = controls.OF_FREEZING.get(plan.control or "", ((0.0, 1.0), ()))
        self.freezer = Freezer(settings.folder, self.human, self.rng, draws=draws)
        self.troubles = Troubles(
            service, server, settings.folder, self.rng, network=plan.network, long=plan.control == "late_arrival"
        )
        self.kills: Counter[str] = Counter()
        self.emptied = self.refused = 0
        self.forgotten: set[str] = set()
        """What a restored copy does not have, and is not to be paid again."""
        self._storms = count()
        self._in_doubt: list[Order] = []
        Path(settings.log).touch()
        if self.journal.get(self.orders[0].reference) is not None:
            raise SystemExit("the database has a journal with this seed's orders already: take a new one")

    def run(self) -> Result[Verdict]:
        """Pay under fire, then in peace; judge after each part."""
        with self._closing(), self._own_time():
            forger = Forger(self.settings, lambda: self._in_doubt or self.orders, self.service.payments)
            with forger.at_work(), self.troubles:
                if self.plan.fault == "restored":
                    self._storm_and_restore()
                else:
                    self._storm()
            self.service.storm.calm = True
            time.sleep(LIST_CATCHES_UP + self.service.storm.latest)
            if self.plan.fault == "restored":
                self._accept_restored()
            verdicts = [self._judged()]
            if not self._is_caught(verdicts[0]):
                self._close()
                verdicts.append(self._judged())
            if not self._is_caught(verdicts[-1]):
                self._pay(self.patient, self.human.release_unpaid())
                verdicts.append(self._judged(closed=True))
            verdict = verdicts[-1]
            for earlier in reversed(verdicts[:-1]):
                for finding, cases in earlier.findings.items():
                    verdict.findings[finding] = list(dict.fromkeys([*cases, *verdict.findings[finding]]))
            return self._result(verdict, verdicts, forger)

    @contextmanager
    def _closing(self) -> Generator[None]:
        with self.hasty, self.patient:
            yield
        self.journal.close()

    @contextmanager
    def _own_time(self) -> Generator[None]:
        wound, hastened = wind(self.clock), hasten()
        try:
            yield
        finally:
            unwind(wound)
            for module, name, value in hastened:
                setattr(module, name, value)

    def _client(self, **options: Any) -> Client:
        return Client(KEY, base_url=self.service.base_url, budget=None, **options)

    def _storm_and_restore(self) -> None:
        """Write an older copy of the journal over it while nobody pays; then let everybody try to pay."""
        path = Path(self.settings.database.removeprefix("sqlite:///"))
        copy = path.with_suffix(".copy")
        self._storm(left=COPIED)
        self.journal.backup(copy)
        self._storm(left=RESTORED)
        self.journal.close()
        self._put_back(copy, path)
        before = self._refusals()
        self._storm(share=REFUSED)
        self.refused = self._refusals() - before

    def _accept_restored(self) -> None:
        """Reconcile, take what the copy does not have out of what is to be paid, and accept it."""
        first = datetime.fromtimestamp(self.settings.epoch + self.begun * self.settings.speed, UTC)
        report = self.patient.transactions.reconcile(
            journal=self.journal, day=first.date(), last_day=self.clock.now().date(), utc=True
        )
        self.forgotten = {each.reference for each in report.differences if self.journal.get(each.reference) is None}
        self.journal.accept_restored(by=BY)

    def _refusals(self) -> int:
        return sum(line["word"]["said"] == Said.MISCONFIGURED for line in self._lines() if "word" in line)

    def _storm(self, *, left: float = 0.0, share: float = 1.0) -> None:
        """Pay until that share of the orders is left, or that share of the storm's time is over."""
        number = next(self._storms)
        kinds = ("blocking", "async") if self.plan.client_kind == "both" else (self.plan.client_kind,)
        skews = [0.0, *self.rng.sample(SKEWS[2:], WORKERS - 1)]
        workers = [
            Child(
                worker.run,
                replace(self.settings, name=f"w{number}-{n}", client_kind=kinds[n % len(kinds)], skew=skews[n]),
            )
            for n in range(WORKERS)
        ]
        hears = Child(receiver.run, replace(self.settings, name=f"receiver{number}"))
        luck = random.Random(f"kills {self.plan.seed} {number}")
        # A storm with one more fault is shorter than what stops would take.
        stops = STOPS if self.plan.fault is None else 0.0
        herd = Herd(workers, hears, luck, self.human.hear_of_death, stops)
        over = threading.Event()
        works = [self.human.look, self.human.hurry, *([self.human.press] if self.plan.fault == "late" else [])]
        people = [threading.Thread(target=self._repeat, args=(work, over)) for work in works]
        for person in people:
            person.start()
        begun, length, look = time.monotonic(), share * STORM * self.plan.seconds, 0.0
        # Signals strike calls whether or not they pay.
        waiting, all_along = self.orders, self.plan.fault == "struck"
        enough = left * len(self.orders)
        try:
            while (len(waiting) > enough or all_along) and not herd.done and time.monotonic() < begun + length:
                herd.tend()
                self.freezer.tend(herd.pids())
                if self.plan.control and self._is_caught(self._judged()):
                    break
                if self.plan.fault is None:
                    self.troubles.tend(1 - len(waiting) / len(self.orders))
                if time.monotonic() >= look:
                    look = time.monotonic() + LOOKS_EVERY
                    waiting = self._look(waiting)
                time.sleep(0.1)
        finally:
            over.set()
            self.freezer.tend(herd.pids())  # what the herd stopped last may hold the database's lock
            for person in people:
                person.join()
            self.freezer.join()
            herd.end()
        self.kills.update(herd.events)

    def _repeat(self, work: Any, over: threading.Event) -> None:
        while not over.wait(LOOKS_EVERY):
            with suppress(JournalError):  # the database is down: they look again later
                work()

    def _look(self, waiting: list[Order]) -> list[Order]:
        """Return which orders may still be paid; see which are in doubt, and which ids the journal has."""
        try:
            entries = {order.reference: self.journal.get(order.reference) for order in self.orders}
        except JournalError:
            return waiting
        states = {reference: entry.state for reference, entry in entries.items() if entry is not None}
        known = [each.transaction_id for each in entries.values() if each and each.state is JournalState.ACCEPTED]
        self.service.storm.known_ids = [each for each in known if each is not None]
        self._in_doubt = [order for order in self.orders if states.get(order.reference) is JournalState.UNKNOWN]
        done = {JournalState.ACCEPTED, JournalState.UNKNOWN}
        return [order for order in waiting if states.get(order.reference) not in done]

    def _is_caught(self, verdict: Verdict) -> bool:
        return self.plan.control is not None and bool(CAUGHT & verdict.found)

    def _close(self) -> None:
        """Settle what the list shows, which has caught up; pay what surely was not paid, and look again."""
        if self.plan.database == "sqlite" and self.plan.fault is None:
            self._empty_the_journal()
        self._be_careless()
        with self.clock.ahead(86_400.0):
            self.journal.reconcile_all(self.patient)
        unpaid = {order.reference for order in self._look(self.orders)}
        self._pay(self.patient, unpaid - self.forgotten)
        time.sleep(TIMEOUT)
        self.journal.reconcile_all(self.patient)
        self.human.settle_by_eye(self.patient)

    def _be_careless(self) -> None:
        """Release without a look into the ledger, while the list shows all that was paid, in one way or another."""
        doubtful = [entry.reference for entry in self.journal.unresolved()]
        self.rng.shuffle(doubtful)
        unseen, seen = doubtful[::3], [*doubtful[1::3], *doubtful[2::3]]
        self._pay(self.patient, self.human.release_carelessly(unseen, look=False))
        styles = (*STYLES, (0.0, "", None))
        for number, (_, switch, value) in enumerate(styles):
            self.service.restyle(switch, value)
            self._pay(self.patient, self.human.release_carelessly(seen[number :: len(styles)], look=True))

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
        self._pay(self.hasty, asked)
        # And as it is after a restart, when nothing but the file is left.
        self.journal.close()
        _delete_logs(path)
        os.truncate(path, 0)
        with Journal(self.settings.database) as fresh:
            self._pay(self.hasty, asked, fresh)
        self.emptied = 2 * len(asked) - (len(self.service.payments()) - before)
        self._put_back(kept, path)

    def _put_back(self, copy: Path, path: Path) -> None:
        """Write a copy over the journal's file, which nobody has open."""
        _delete_logs(path)
        shutil.copyfile(copy, path)
        self.journal = self.human.journal = Journal(self.settings.database)

    def _pay_one(self, reference: str) -> None:
        self._pay(self.hasty, [reference])

    def _pay(self, client: Client, references: Iterable[str], journal: Journal | None = None) -> None:
        signer = CallbackSigner("a secret of the parent")
        orders = {order.reference: order for order in self.orders}

        def pay(reference: str) -> None:
            call = f"parent {reference} {len(self.words)}"
            with heard(self.words.append, call, reference, time.monotonic) as ear:
                ear.record = client.payouts.pay_once(
                    journal=journal or self.journal,
                    reference=reference,
                    amount=orders[reference].amount,
                    phone=orders[reference].phone,
                    description=call,
                    callback_url=signer.url(self.settings.hook, reference=reference),
                )

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(pay, list(references)))

    def _judged(self, *, closed: bool = False) -> Verdict:
        words = [*self.words, *(read_word(line["word"]) for line in self._lines() if "word" in line)]
        while True:
            with suppress(JournalError):  # the database is down
                entries = {order.reference: self.journal.get(order.reference) for order in self.orders}
                return judge(
                    self.orders,
                    self.service.payments(),
                    entries,
                    words,
                    closed=closed,
                    latest=DEADLINE + self.service.storm.latest + BUSY,
                    misled=self.service.storm.misled,
                    released=self.human.began,
                    forgotten=self.forgotten,
                )
            time.sleep(LOOKS_EVERY)

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.settings.log).read_text().splitlines()]

    def _result(self, verdict: Verdict, verdicts: list[Verdict], forger: Forger) -> Result[Verdict]:
        lines = self._lines()
        said = Counter(word.said.value for word in self.words)
        said.update(str(line["word"]["said"]) for line in lines if "word" in line)
        details = Counter(
            {
                "seconds": round(time.monotonic() - self.begun),
                "payments made while the storm lasted": verdicts[0].payments,
                "in doubt when the storm ended": verdicts[0].left_unknown,
                "left UNKNOWN when the list had caught up": verdicts[min(1, len(verdicts) - 1)].left_unknown,
                "calls refused over an emptied journal": self.emptied,
                "calls refused over a restored copy": self.refused,
                "payouts that a restored copy had forgotten": len(self.forgotten),
                "callbacks POSTed by the service": self.service.deliveries(),
            }
        )
        counts = {
            "faults struck": self.service.struck(),
            "failures of the network and the database": self.troubles.events,
            "calls of pay_once": said,
            "kills": self.kills,
            "frozen senders": self.freezer.events,
            "releases": self.human.events,
            "what the receiver heard": Counter(str(line["event"]) for line in lines if "event" in line),
            "forged callbacks": forger.answers,
        }
        return Result(verdict, details, counts)


def _delete_logs(path: Path) -> None:
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
