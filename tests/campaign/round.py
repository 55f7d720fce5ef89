"""One round of the campaign of payouts over sockets: a storm, what follows it, and the judge after each part."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from campaign import controls
from campaign.clocks import A_DAY
from campaign.human import BY
from campaign.judge import Finding, Said, Verdict, judge
from campaign.parent import LOOKS_EVERY, Parent
from campaign.settings import DEADLINE, SPEED, TIMEOUT, Result, Settings
from campaign.storm import LIST_CATCHES_UP, Service
from momopay import Journal, JournalError, JournalState
from postgresql import PostgresqlServer

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
    def __init__(self, settings: Settings, service: Service, server: PostgresqlServer | None) -> None:
        draws = (0.2, 0.4) if settings.plan.control == "no_fence" else (0.0, 1.0)
        super().__init__(settings, service, server, service.payments, draws)
        self.emptied = self.refused = 0
        self.forgotten: set[str] = set()
        """What a restored copy does not have, and is not to be paid again."""

    def run(self) -> Result:
        """Pay under fire, then in peace; judge after each part."""
        with self.at_work():
            with self.troubles:
                if self.plan.fault == "restored":
                    self._storm_and_restore()
                else:
                    self.storm()
            self.service.storm.calm = True
            time.sleep(LIST_CATCHES_UP + self.service.storm.latest)
            if self.plan.fault == "restored":
                self._accept_restored()
            verdicts = [self._judged()]
            if not self._is_caught(verdicts[0]):
                self._close()
                verdicts.append(self._judged())
            if not self._is_caught(verdicts[-1]):
                unpaid = [entry.reference for entry in self.human.unpaid(self.journal.unresolved())]
                self.human.release_at_last(unpaid)
                self.ask(self.patient, unpaid)
                verdicts.append(self._judged(closed=True))
            for earlier in verdicts[:-1]:
                verdicts[-1].join(earlier)
            return self._result(verdicts[-1], verdicts[0])

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
        self.refused = self._refusals() - before

    def _accept_restored(self) -> None:
        """Reconcile, take what the copy does not have out of what is to be paid, and accept it."""
        first = datetime.fromtimestamp(self.settings.epoch + self.begun * SPEED, UTC)
        report = self.patient.transactions.reconcile(
            journal=self.journal, day=first.date(), last_day=self.clock.now().date(), utc=True
        )
        self.forgotten = {each.reference for each in report.differences if self.journal.get(each.reference) is None}
        self.journal.accept_restored(by=BY)

    def _refusals(self) -> int:
        return sum(word.said is Said.MISCONFIGURED for word in self.words())

    def waiting(self) -> float:
        if self.plan.control and self._is_caught(self._judged()):
            return -1.0
        # Signals strike calls whether or not they pay.
        return 1.0 if self.plan.fault == "struck" else len(self._unasked()) / len(self.orders)

    def _unasked(self) -> list[str]:
        """Return the references that may still be paid."""
        done = {JournalState.ACCEPTED, JournalState.UNKNOWN}
        return [name for name, entry in self.entries().items() if entry is None or entry.state not in done]

    def _is_caught(self, verdict: Verdict) -> bool:
        return self.plan.control is not None and bool(CAUGHT & verdict.found)

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
                    released=self.human.began,
                    forgotten=self.forgotten,
                )
            time.sleep(LOOKS_EVERY)

    def _result(self, verdict: Verdict, after_the_storm: Verdict) -> Result:
        details = {
            "seconds": round(time.monotonic() - self.begun),
            "in doubt when the storm ended": after_the_storm.left_unknown,
            "calls refused over an emptied journal": self.emptied,
            "calls refused over a restored copy": self.refused,
            "payouts that a restored copy had forgotten": len(self.forgotten),
            "callbacks POSTed by the service": self.service.deliveries(),
        }
        return Result(verdict, Counter(details), self.counts())


def _delete_logs(path: Path) -> None:
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
