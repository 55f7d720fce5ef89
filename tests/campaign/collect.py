"""The campaign of collections over sockets: a storm, sweeps, and the judge before and after the last orders are paid.

This process runs the service and its customers; others collect with `stk.collect_once`, sweep, and hear callbacks, and
are killed and frozen.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

from campaign import worker
from campaign.clocks import A_DAY, end_lease
from campaign.freezer import Freezer
from campaign.herd import Child
from campaign.human import Doubts
from campaign.judge import Finding, Verdict, by_order, judge
from campaign.parent import STORM, Parent
from campaign.plan import Plan, Result
from campaign.settings import TIMEOUT, Settings
from campaign.storm import LIST_CATCHES_UP
from campaign.till import Customers, Till
from momopay import EntryKind, JournalError, MomoPayError
from postgresql import PostgresqlServer

WAITS = 2.5
"""Seconds for which something is in doubt before a careful person looks into the service's ledger."""
LATE_ENOUGH = 700.0
"""Seconds of the service's time that pass before the last sweep: it runs more than ten minutes after every end."""
LATE_PIN, OFTEN_LATE = 0.25, 0.9
"""How likely a prompt that was cancelled or has expired is paid after all; and in a control that needs it."""
TRIES = 6
"""How often every order is asked for in the end."""
CAUGHT = frozenset({Finding.TWO_OPEN, Finding.DOUBLE, Finding.READS_UNPAID, Finding.FORGOTTEN})
"""What a control must be caught at."""


class Shop(Parent[Till]):
    def __init__(self, plan: Plan, settings: Settings, till: Till, server: PostgresqlServer | None) -> None:
        super().__init__(plan, settings, till, server)
        late_pin = OFTEN_LATE if plan.control == "end_not_read_again" else LATE_PIN
        self.customers = Customers(till, plan.seed, late_pin=late_pin)
        self.released: Counter[str] = Counter()
        self._doubts = Doubts()
        nobody: Any = None
        self.freezer = Freezer(settings.folder, nobody, self.rng, draws=(0.0, 0.4))

    def run(self) -> Result:
        """Collect under fire, sweep, judge; then in peace until every order is paid, sweep, and judge again."""
        with self.at_work(), self.service.watched(), self.customers.at_home():
            self._storm()
            self.service.storm.calm = self.customers.eager = True
            self._sweep_all()
            verdict = self._judged(closed=False)
            in_doubt = len(self.journal.unresolved())
            if not (self.plan.control and verdict.found & CAUGHT):
                self._finish()
                self._sweep_all()
                closed = self._judged(closed=True)
                closed.join(verdict)
                verdict = closed
        details = {"seconds": round(time.monotonic() - self.begun), "in doubt after the storm and a sweep": in_doubt}
        counts = {
            **self.counts(),
            "frozen senders": self.freezer.events,
            "released by a person": self.released,
            "customers": self.customers.events,
        }
        return Result(verdict, Counter(details), counts)

    def _storm(self) -> None:
        sweeper = Child(worker.sweep, replace(self.settings, name="sweeper", freezes=0.0, dies=0.0))
        herd = self.herd(0, sweeper, hear_of_death=lambda _: None)
        spent = self.spent_of_a_storm(STORM * self.plan.seconds)
        try:
            with self.troubles:
                while (share := spent()) < 1 and not all(child.done for child in herd.workers if child is not sweeper):
                    herd.tend()
                    self.freezer.tend(herd.pids())
                    self.troubles.tend(share)
                    with suppress(JournalError):  # the database is down: looked at again later
                        self._look()
                    time.sleep(0.1)
        finally:
            self.freezer.join()
            herd.end()
        self.kills.update(herd.events)

    def _look(self) -> None:
        """Release what was in doubt for long and, by the service's ledger, was never prompted."""
        entries = self.entries()
        known = [prompt.transaction_id for entry in entries.values() if entry for prompt in entry.transactions]
        self.service.storm.known_ids = known
        doubtful = [entry for entry in entries.values() if entry and entry.state == "UNKNOWN"]
        due = self._doubts.older_than(WAITS, doubtful)
        prompts = by_order(self.service.prompts(), entries)
        for entry in due:
            if not {each.transaction_id for each in prompts[entry.reference]} - set(entry.transaction_ids):
                self._release(entry.reference)

    def _release(self, reference: str) -> None:
        try:
            self.patient.payouts.release(
                reference=reference,
                by="the campaign's human",
                kind=EntryKind.COLLECTION,
                searched_elsewhere=True,
                journal=self.journal,
            )
            self.released["after a look into the ledger"] += 1
        except MomoPayError as error:
            self.released[f"refused: {type(error).__name__}"] += 1

    def _sweep_all(self) -> None:
        """Let the lists catch up and every prompt end; then sweep, ten minutes later."""
        time.sleep(LIST_CATCHES_UP + TIMEOUT)
        until = time.monotonic() + 10
        while self.service.is_busy() and time.monotonic() < until:
            time.sleep(0.1)
        self.service.sandbox.advance(LATE_ENOUGH)
        self.clock.skew += LATE_ENOUGH  # so that it still shows the service's time
        for _ in range(2):  # what the first finds may be read again by the second
            self.patient.transactions.sweep(journal=self.journal)

    def _finish(self) -> None:
        """Have every order paid: settle by eye, release what was never prompted, and ask again."""
        self.released["settled by eye"] += self.settle_by_eye()
        for _ in range(TRIES):
            entries = self.entries()
            prompts = by_order(self.service.prompts(), entries)
            left = [order.reference for order in self.orders if not any(p.is_paid for p in prompts[order.reference])]
            if not left:
                return
            with self.clock.ahead(2 * A_DAY):
                for reference in left:
                    entry = entries[reference]
                    if entry is not None and entry.state == "UNKNOWN":
                        end_lease(self.journal, reference)
                        self._release(reference)
            self.ask(self.patient, left)
            time.sleep(1.0)
            while self.service.is_busy():
                time.sleep(0.1)

    def _judged(self, *, closed: bool) -> Verdict:
        prompts, entries = self.service.prompts(), self.entries()
        return judge(self.orders, prompts, entries, self.words(), kind=self.plan.kind, closed=closed)
