"""The campaign of collections over sockets: `python tests/campaign/collect.py --orders 300 --seconds 60 --seed 1`.

This process runs the service and its customers; others collect with `stk.collect_once`, sweep, and hear callbacks, and
are killed and frozen. The seed chooses orders, faults, kills and what customers do; what meets what is up to the
machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import collector, controls
from campaign.clocks import A_DAY, SKEWS, Clock, end_lease, hasten, unwind, wind
from campaign.collect_judge import (
    Finding,
    Verdict,
    Word,
    by_order,
    judge_journal,
    judge_prompts,
    judge_words,
    read_word,
)
from campaign.doubts import Doubts
from campaign.freezer import Freezer
from campaign.herd import Child, Herd, dead_port, free_port
from campaign.network import enter_namespace
from campaign.plan import Plan, Result
from campaign.settings import LANES, TIMEOUT, Settings
from campaign.storm import KEY, LIST_CATCHES_UP, SPEED, service_in_storm
from campaign.till import Customers, PromptStorm, Till
from campaign.troubles import Troubles
from momopay import Client, EntryKind, Journal, JournalEntry, JournalError, MomoPayError, OutcomeUnknownError
from postgresql import PostgresqlServer, running_postgresql

STORM = 0.7
"""The storm's share of the time."""
WORKERS = 4
WAITS = 2.5
"""Seconds for which something is in doubt before a careful person looks into the service's ledger."""
LATE_ENOUGH = 700.0
"""Seconds of the service's time that pass before the last sweep: it runs more than ten minutes after every end."""
FREEZES, DIES, CUTS = 0.004, 0.012, 0.01
LATE_PIN, OFTEN_LATE = 0.25, 0.9
"""How likely a prompt that was cancelled or has expired is paid after all; and in a control that needs it."""
TRIES = 6
"""How often every order is asked for in the end."""
CAUGHT = frozenset({Finding.TWO_OPEN, Finding.TWICE, Finding.UNPAID, Finding.FORGOTTEN})
"""What a control must be caught at."""
COLLECT_CONTROLS = {*controls.OF_ORDERS, "repeat_on_read_timeout", "send_again_when_absent"}


class Shop:
    """The parent's work."""

    def __init__(self, plan: Plan, settings: Settings, till: Till, server: PostgresqlServer | None) -> None:
        self.plan = plan
        self.settings = settings
        self.till = till
        self.server = server
        self.begun = time.monotonic()
        self.rng = random.Random(f"shop {plan.seed}")
        self.clock = Clock(settings.epoch, settings.speed)
        self.journal = Journal(settings.database)
        self.orders = collector.collections_of(plan.seed, plan.size)
        late_pin = OFTEN_LATE if plan.control == "end_not_read_again" else LATE_PIN
        self.customers = Customers(till, plan.seed, late_pin=late_pin)
        self.client = Client(KEY, base_url=till.base_url, budget=None)
        self.words: list[Word] = []
        self.released: Counter[str] = Counter()
        self._doubts = Doubts()
        Path(settings.log).touch()

    def run(self) -> Result[Verdict]:
        """Collect under fire, sweep, judge; then in peace until every order is paid, sweep, and judge again."""
        wound, hastened = wind(self.clock), hasten()
        verdict = Verdict()
        try:
            with self.till.watched(), self.customers.at_home():
                counts = self._storm()
                self.till.storm.calm = self.customers.eager = True
                self._sweep_all()
                self._judge(verdict, closed=False)
                in_doubt = len(self.journal.unresolved())
                if not (self.plan.control and verdict.found & CAUGHT):
                    self._finish()
                    self._sweep_all()
                    self._judge(verdict, closed=True)
        finally:
            unwind(wound)
            for module, name, value in hastened:
                setattr(module, name, value)
            self.client.close()
            self.journal.close()
        details = {
            "seconds": round(time.monotonic() - self.begun),
            "in doubt after the storm and a sweep": in_doubt,
        }
        return Result(verdict, Counter(details), counts)

    def _storm(self) -> dict[str, Counter[str]]:
        kinds = ("blocking", "async")
        skews = [0.0, *self.rng.sample(SKEWS[2:], WORKERS - 1)]
        workers = [
            Child(collector.run, replace(self.settings, name=f"w{n}", client_kind=kinds[n % 2], skew=skews[n]))
            for n in range(WORKERS)
        ]
        sweeper = Child(collector.sweep, replace(self.settings, name="sweeper", freezes=0.0, dies=0.0))
        hears = Child(collector.hear, replace(self.settings, name="receiver"))
        herd = Herd([*workers, sweeper], hears, random.Random(f"kills {self.plan.seed}"), lambda _: None)
        nobody: Any = None
        freezer = Freezer(self.settings.folder, nobody, self.rng, draws=(0.0, 0.4))
        network = self.plan.network
        troubles = Troubles(self.till, self.server, self.settings.folder, self.rng, network=network, long=False)
        begun = time.monotonic()
        until = begun + STORM * self.plan.seconds
        try:
            with troubles:
                while not all(worker.done for worker in workers) and time.monotonic() < until:
                    herd.tend()
                    freezer.tend(herd.pids())
                    troubles.tend((time.monotonic() - begun) / (until - begun))
                    with suppress(JournalError):  # the database is down: looked at again later
                        self._look()
                    time.sleep(0.1)
        finally:
            freezer.join()
            herd.end()
        lines = [json.loads(line) for line in Path(self.settings.log).read_text().splitlines()]
        self.words += [read_word(line["collected"]) for line in lines if "collected" in line]
        return {
            "faults struck": self.till.struck(),
            "failures of the network and the database": troubles.events,
            "calls of collect_once in the storm": Counter(word.said.value for word in self.words),
            "kills": herd.events,
            "frozen senders": freezer.events,
            "released by a person": self.released,
            "customers": self.customers.events,
            "what the receiver and the sweeper heard": Counter(str(each["event"]) for each in lines if "event" in each),
        }

    def _look(self) -> None:
        """Release what was in doubt for long and, by the service's ledger, was never prompted."""
        entries = self._entries()
        known = [prompt.transaction_id for entry in entries.values() if entry for prompt in entry.transactions]
        self.till.storm.known_ids = known
        doubtful = [entry for entry in entries.values() if entry and entry.state == "UNKNOWN"]
        due = self._doubts.older_than(WAITS, doubtful)
        prompts = by_order(self.till.prompts(), entries)
        for entry in due:
            if not {each.transaction_id for each in prompts[entry.reference]} - set(entry.transaction_ids):
                self._release(entry.reference)

    def _release(self, reference: str) -> None:
        try:
            self.client.payouts.release(
                reference=reference,
                by="the campaign's human",
                kind=EntryKind.COLLECTION,
                searched_elsewhere=True,
                journal=self.journal,
            )
            self.released["after a look into the ledger"] += 1
        except MomoPayError as error:
            self.released[f"refused: {type(error).__name__}"] += 1

    def _entries(self) -> dict[str, JournalEntry | None]:
        return {order.reference: self.journal.get(order.reference, EntryKind.COLLECTION) for order in self.orders}

    def _sweep_all(self) -> None:
        """Let the lists catch up and every prompt end; then sweep, ten minutes later."""
        time.sleep(LIST_CATCHES_UP + TIMEOUT)
        until = time.monotonic() + 10
        while self.till.is_busy() and time.monotonic() < until:
            time.sleep(0.1)
        self.till.sandbox.advance(LATE_ENOUGH)
        self.clock.skew += LATE_ENOUGH  # so that it still shows the service's time
        for _ in range(2):  # what the first finds may be read again by the second
            self.client.transactions.sweep(journal=self.journal)

    def _finish(self) -> None:
        """Have every order paid: settle by eye, release what was never prompted, and ask again."""
        for order in self.orders:
            entry = self.journal.get(order.reference, EntryKind.COLLECTION)
            if entry is not None and entry.state == "UNKNOWN":
                self._settle_by_eye(order)
        for _ in range(TRIES):
            entries = self._entries()
            prompts = by_order(self.till.prompts(), entries)
            left = [order for order in self.orders if not any(each.is_paid for each in prompts[order.reference])]
            if not left:
                return
            with self.clock.ahead(2 * A_DAY):
                for order in left:
                    entry = entries[order.reference]
                    if entry is not None and entry.state == "UNKNOWN":
                        end_lease(self.journal, order.reference)
                        self._release(order.reference)
            with ThreadPoolExecutor(LANES) as pool:
                list(pool.map(self._collect, left))
            time.sleep(1.0)
            while self.till.is_busy():
                time.sleep(0.1)

    def _collect(self, order: Any) -> None:
        call = f"end#{time.monotonic_ns() % 10**9}"
        with collector.heard(self.words.append, call, order.reference) as ear:
            ear.record = self.client.stk.collect_once(
                journal=self.journal,
                reference=order.reference,
                amount=order.amount,
                phone=order.phone,
                transaction_desc=call,
            )

    def _settle_by_eye(self, order: Any) -> None:
        """Compare near matches: a clock of which nothing is known dates a prompt wrongly."""
        try:
            self.client.stk.collect_once(
                journal=self.journal, reference=order.reference, amount=order.amount, phone=order.phone
            )
        except OutcomeUnknownError as error:
            for near in error.near_matches:
                if self.journal.settle(near) is not None:
                    self.released["settled by eye"] += 1

    def _judge(self, verdict: Verdict, *, closed: bool) -> None:
        entries = self._entries()
        prompts = by_order(self.till.prompts(), entries)
        judge_prompts(verdict, self.orders, prompts)
        judge_words(verdict, self.words, prompts)
        judge_journal(verdict, self.orders, entries, prompts, closed=closed)


def campaign(plan: Plan) -> Result[Verdict]:
    """Run a campaign."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    storm = PromptStorm(plan.seed, fierce=plan.control is not None)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="momopay-campaign-"))
        till = stack.enter_context(service_in_storm(storm, Till))
        dead = stack.enter_context(dead_port())
        server = stack.enter_context(running_postgresql()) if plan.database == "postgresql" else None
        stack.enter_context(controls.broken(plan.control) if plan.control else nullcontext())
        settings = Settings(
            name="parent",
            client_kind="both",
            seed=plan.seed,
            orders=plan.size,
            database=f"sqlite:///{folder}/orders.db" if server is None else server.new_database(),
            base_url=till.base_url,
            key=KEY,
            hook_port=free_port(),
            dead_port=dead.getsockname()[1],
            pace=STORM * plan.seconds * LANES / plan.size / (2 * collector.ROUNDS),
            epoch=till.epoch,
            speed=SPEED,
            skew=0.0,
            freezes=FREEZES,
            dies=DIES,
            cuts=CUTS if plan.network else 0.0,
            log=f"{folder}/log.jsonl",
            control=plan.control,
        )
        return Shop(plan, settings, till, server).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 0 if it holds, 1 if it does not."""
    parser = argparse.ArgumentParser(description="Fault campaigns of collections over real sockets.")
    parser.add_argument("--orders", dest="size", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long it may take")
    parser.add_argument("--seed", type=int, default=None, help="printed, so that it can be given again")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--control", choices=sorted(COLLECT_CONTROLS), help="break one safety on purpose")
    parser.add_argument("--result", type=Path, help="a file for the result, pickled")
    options = vars(parser.parse_args(arguments))
    path = options.pop("result")
    if options["seed"] is None:
        options["seed"] = int.from_bytes(os.urandom(3))
    threading.excepthook = lambda failure: os._exit(3)
    obstacle = enter_namespace()
    plan = Plan("orders", **options, network=obstacle is None)
    result = campaign(plan)
    report = result.report(plan, "loses packets" if obstacle is None else f"does not fail: {obstacle}")
    sys.stdout.write(report + "\n")
    if path is not None:
        path.write_bytes(pickle.dumps((result, report)))
    return 1 if result.verdict.found else 0


if __name__ == "__main__":
    sys.exit(main())
