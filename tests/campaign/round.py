"""One round of the campaign of payouts over sockets: a storm, what follows it, and the judge after each part."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from campaign import controls
from campaign.clocks import A_DAY
from campaign.forger import Forger
from campaign.freezer import Freezer
from campaign.herd import STOPS
from campaign.human import BY, Human
from campaign.judge import Finding, Said, Verdict, judge
from campaign.orders import Order
from campaign.parent import STORM, Parent
from campaign.plan import Plan, Result
from campaign.settings import DEADLINE, TIMEOUT, Settings
from campaign.storm import LIST_CATCHES_UP, Service
from campaign.troubles import STYLES
from momopay import Journal, JournalError, JournalState
from postgresql import PostgresqlServer

LOOKS_EVERY = 0.5
"""Seconds between two looks of the parent into the journal."""
BUSY = 1.0
"""Seconds that a busy machine takes, beyond a deadline, to execute a payout."""
COPIED, RESTORED = 2 / 3, 1 / 2
"""When a copy of the journal is made: the share of orders that is left to pay; when it is written back: that of those.

A storm pays a few more while it ends, so the second share cannot be of all orders: none might be paid in between.
"""
REFUSED = 0.7
"""The share of the storm in which everybody is refused then."""
ASKED = 8
"""Calls over an emptied journal."""
CAUGHT = controls.CAUGHT - {Finding.LOST}
"""What ends a control at once; what is lost may only be late."""


class Round(Parent[Service]):
    def __init__(self, plan: Plan, settings: Settings, service: Service, server: PostgresqlServer | None) -> None:
        super().__init__(plan, settings, service, server)
        self.hasty = self.client(timeout=TIMEOUT, deadline=DEADLINE)
        self.human = Human(service, self.journal, self.hasty, self.clock, lambda each: self.ask(self.hasty, [each]))
        draws, _ = controls.OF_FREEZING.get(plan.control or "", ((0.0, 1.0), ()))
        self.freezer = Freezer(settings.folder, self.human, self.rng, draws=draws)
        self.emptied = self.refused = 0
        self.forgotten: set[str] = set()
        """What a restored copy does not have, and is not to be paid again."""
        self._storms = count()
        self._in_doubt: list[Order] = []

    def run(self) -> Result:
        """Pay under fire, then in peace; judge after each part."""
        with self.at_work(), self.hasty:
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
                self.ask(self.patient, self.human.release_unpaid())
                verdicts.append(self._judged(closed=True))
            for earlier in verdicts[:-1]:
                verdicts[-1].join(earlier)
            return self._result(verdicts[-1], verdicts[0], forger)

    def _storm_and_restore(self) -> None:
        """Write an older copy of the journal over it while nobody pays; then let everybody try to pay."""
        path = Path(self.settings.database.removeprefix("sqlite:///"))
        copy = path.with_suffix(".copy")
        self._storm(left=COPIED)
        self.journal.backup(copy)
        self._storm(left=RESTORED * len(self._look(self.orders)) / len(self.orders))
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
        return sum(word.said is Said.MISCONFIGURED for word in self.words())

    def _storm(self, *, left: float = 0.0, share: float = 1.0) -> None:
        """Pay until that share of the orders is left, or that share of the storm's time is over."""
        # A storm with one more fault is shorter than what stops would take.
        stops = STOPS if self.plan.fault is None else 0.0
        herd = self.herd(next(self._storms), hear_of_death=self.human.hear_of_death, stops=stops)
        over = threading.Event()
        works = [self.human.look, self.human.hurry, *([self.human.press] if self.plan.fault == "late" else [])]
        people = [threading.Thread(target=self._repeat, args=(work, over)) for work in works]
        for person in people:
            person.start()
        spent, look = self.spent_of_a_storm(share * STORM * self.plan.seconds), 0.0
        # Signals strike calls whether or not they pay.
        waiting, all_along = self.orders, self.plan.fault == "struck"
        enough = left * len(self.orders)
        try:
            while (len(waiting) > enough or all_along) and not herd.done and spent() < 1:
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
            entries = self.entries()
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
        with self.clock.ahead(A_DAY):
            self.journal.reconcile_all(self.patient)
        unpaid = {order.reference for order in self._look(self.orders)}
        self.ask(self.patient, unpaid - self.forgotten)
        time.sleep(TIMEOUT)
        self.journal.reconcile_all(self.patient)
        self.human.events["settled by eye"] += self.settle_by_eye()

    def _be_careless(self) -> None:
        """Release without a look into the ledger, while the list shows all that was paid, in one way or another."""
        doubtful = [entry.reference for entry in self.journal.unresolved()]
        self.rng.shuffle(doubtful)
        unseen, seen = doubtful[::3], [*doubtful[1::3], *doubtful[2::3]]
        self.ask(self.patient, self.human.release_carelessly(unseen, look=False))
        styles = (*STYLES, (0.0, "", None))
        for number, (_, switch, value) in enumerate(styles):
            self.service.restyle(switch, value)
            self.ask(self.patient, self.human.release_carelessly(seen[number :: len(styles)], look=True))

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
        self.emptied = 2 * len(asked) - (len(self.service.payments()) - before)
        self._put_back(kept, path)

    def _put_back(self, copy: Path, path: Path) -> None:
        """Write a copy over the journal's file, which nobody has open."""
        _delete_logs(path)
        shutil.copyfile(copy, path)
        self.journal = self.human.journal = Journal(self.settings.database)

    def _judged(self, *, closed: bool = False) -> Verdict:
        words = self.words()
        while True:
            with suppress(JournalError):  # the database is down
                return judge(
                    self.orders,
                    self.service.payments(),
                    self.entries(),
                    words,
                    closed=closed,
                    latest=DEADLINE + self.service.storm.latest + BUSY,
                    misled=self.service.storm.misled,
                    released=self.human.began,
                    forgotten=self.forgotten,
                )
            time.sleep(LOOKS_EVERY)

    def _result(self, verdict: Verdict, after_the_storm: Verdict, forger: Forger) -> Result:
        details = {
            "seconds": round(time.monotonic() - self.begun),
            "in doubt when the storm ended": after_the_storm.left_unknown,
            "calls refused over an emptied journal": self.emptied,
            "calls refused over a restored copy": self.refused,
            "payouts that a restored copy had forgotten": len(self.forgotten),
            "callbacks POSTed by the service": self.service.deliveries(),
        }
        counts = {
            **self.counts(),
            "frozen senders": self.freezer.events,
            "releases": self.human.events,
            "forged callbacks": forger.answers,
        }
        return Result(verdict, Counter(details), counts)


def _delete_logs(path: Path) -> None:
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
