"""The campaign of collections over sockets: a storm, sweeps, and the judge before and after the last orders are paid.

This process runs the service and its customers; others collect with `stk.collect_once`, sweep, and hear callbacks, and
are killed and frozen.
"""

from __future__ import annotations

import time
from collections import Counter

from campaign.judge import Finding, Verdict, by_order, judge
from campaign.parent import Parent
from campaign.plan import Result
from campaign.settings import TIMEOUT, Settings
from campaign.storm import LIST_CATCHES_UP
from campaign.till import Customers, Till
from postgresql import PostgresqlServer

LATE_ENOUGH = 700.0
"""Seconds of the service's time that pass before the last sweep: it runs more than ten minutes after every end."""
LATE_PIN, OFTEN_LATE = 0.25, 0.9
"""How likely a prompt that was cancelled or has expired is paid after all; and in a control that needs it."""
TRIES = 6
"""How often every order is asked for in the end."""
CAUGHT = frozenset({Finding.TWO_OPEN, Finding.DOUBLE, Finding.READS_UNPAID, Finding.FORGOTTEN})
"""What a control must be caught at."""


class Shop(Parent[Till]):
    def __init__(self, settings: Settings, till: Till, server: PostgresqlServer | None) -> None:
        super().__init__(settings, till, server, till.prompts, draws=(0.0, 0.4))
        late_pin = OFTEN_LATE if self.plan.control == "end_not_read_again" else LATE_PIN
        self.customers = Customers(till, self.plan.seed, late_pin=late_pin)

    def run(self) -> Result:
        """Collect under fire, sweep, judge; then in peace until every order is paid, sweep, and judge again."""
        with self.at_work(), self.service.watched(), self.customers.at_home():
            with self.troubles:
                self.storm()
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
        return Result(verdict, Counter(details), {**self.counts(), "customers": self.customers.events})

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
        self.settle_by_eye()
        for _ in range(TRIES):
            entries = self.entries()
            prompts = by_order(self.service.prompts(), entries)
            left = [order.reference for order in self.orders if not any(p.is_paid for p in prompts[order.reference])]
            if not left:
                return
            doubtful = [name for name in left if (entry := entries[name]) is not None and entry.state == "UNKNOWN"]
            self.human.release_at_last(doubtful)
            self.ask(self.patient, left)
            time.sleep(1.0)
            while self.service.is_busy():
                time.sleep(0.1)

    def _judged(self, *, closed: bool) -> Verdict:
        prompts, entries = self.service.prompts(), self.entries()
        return judge(self.orders, prompts, entries, self.words(), kind=self.plan.kind, closed=closed)
