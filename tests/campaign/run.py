"""The campaign over real sockets: `python tests/campaign/run.py --payouts 500 --seconds 60 --seed 1`.

This process runs the service and is the only witness's keeper; worker processes pay, and are killed. The seed chooses
orders, faults, kills and luck; what meets what is up to the machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import controls, receiver, worker
from campaign.forger import Forger
from campaign.herd import Child, Herd, dead_port, free_port
from campaign.judge import Finding, Verdict, Word, judge, table
from campaign.orders import Order, make_orders
from campaign.settings import LANES, Settings, read_word
from campaign.storm import KEY, LIST_CATCHES_UP, Service, Storm, service_in_storm
from campaign.words import heard
from momopay import CallbackSigner, Client, Journal, JournalState

ROUND = 500
"""Payouts of one account and one journal: a search walks the account's whole list of these minutes."""
WORKERS = 4
LOOKS_EVERY = 0.5
"""Seconds between two looks of the parent into the journal."""
PACE = 0.1
"""The longest mean pause between two calls of one thread or task, seconds."""
REFUSALS = ((0.1, "funds"), (0.3, "kyc"), (0.5, "fees"), (0.7, "rate"))
"""When, by the share of orders that are paid or in doubt, payouts begin to be refused for a while, and why."""
REFUSED_FOR = 1.0
"""Seconds."""
STORM = 0.7
"""The storm's share of the time; the rest is for what follows it."""

CAUGHT = {Finding.DOUBLE, Finding.WRONG_STATE}
"""What ends the storm of a control. (While payments are under way, others of the findings come and go.)"""


@dataclass(frozen=True)
class Plan:
    """What a campaign is asked for."""

    payouts: int
    seconds: float
    seed: int
    client_kind: str = "both"
    database: str = "sqlite"
    control: str | None = None

    @property
    def command(self) -> str:
        """The command that runs it again."""
        command = f"python tests/campaign/run.py --payouts {self.payouts} --seconds {self.seconds:g} --seed {self.seed}"
        options = f" --client {self.client_kind} --database {self.database.partition(':')[0]}"
        return command + options + (f" --control {self.control}" if self.control else "")


@dataclass
class Result:
    """What it came to."""

    verdict: Verdict
    details: Counter[str]
    counts: dict[str, Counter[str]]

    def add(self, other: Result) -> None:
        """Sum up two rounds."""
        self.verdict.add(other.verdict)
        self.details.update(other.details)
        for name, counts in other.counts.items():
            self.counts.setdefault(name, Counter()).update(counts)

    def report(self, plan: Plan) -> str:
        """Write the table."""
        return f"{plan.command}\n{table(self.verdict, {'seed': plan.seed, **self.details}, self.counts)}"


def campaign(plan: Plan) -> Result:
    """Run a campaign, in as many rounds as it takes."""
    total = Result(Verdict(0, 0, 0, 0), Counter(), {})
    rounds = ceil(plan.payouts / ROUND)
    for number in range(rounds):
        size = plan.payouts // rounds + (number < plan.payouts % rounds)
        begun = replace(plan, payouts=size, seconds=plan.seconds / rounds, seed=plan.seed * 1000 + number)
        total.add(_round(begun))
        if rounds > 1:
            held = "holds" if total.verdict.holds else f"has found {', '.join(total.verdict.found)}"
            sys.stderr.write(f"round {number + 1} of {rounds}: the campaign {held}\n")
    return total


def _round(plan: Plan) -> Result:
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    begun = time.monotonic()
    storm = Storm(plan.seed, fierce=plan.control is not None)
    with tempfile.TemporaryDirectory(prefix="momopay-campaign-") as folder, service_in_storm(storm) as service:
        url = f"sqlite:///{folder}/payouts.db" if plan.database == "sqlite" else plan.database
        with dead_port() as dead, Journal(url) as journal:
            settings = Settings(
                name="parent",
                client_kind=plan.client_kind,
                seed=plan.seed,
                orders=plan.payouts,
                database=url,
                base_url=service.base_url,
                key=KEY,
                hook_port=free_port(),
                dead_port=dead.getsockname()[1],
                pace=min(PACE, 0.4 * STORM * plan.seconds * LANES / plan.payouts),
                log=f"{folder}/log.jsonl",
                control=plan.control,
            )
            return _Campaign(plan, settings, service, journal, begun).run()


class _Campaign:
    def __init__(self, plan: Plan, settings: Settings, service: Service, journal: Journal, begun: float) -> None:
        self.plan = plan
        self.settings = settings
        self.service = service
        self.journal = journal
        self.begun = begun
        self.orders = make_orders(plan.seed, plan.payouts)
        self.words: list[Word] = []
        self.events: Counter[str] = Counter()
        self._in_doubt: list[Order] = []
        self._refusals = list(REFUSALS)
        self._refused_until = 0.0
        Path(settings.log).touch()
        if journal.get(self.orders[0].reference) is not None:
            raise SystemExit("the database has a journal with this seed's orders already: take a new one")

    def run(self) -> Result:
        forger = Forger(self.settings, lambda: self._in_doubt or self.orders, self.service.payments)
        with forger.at_work():
            self._storm()
        verdicts = [self._judged()]
        self.service.storm.calm = True
        self.service.mend()
        self._close()
        verdicts.append(self._judged())
        released = self._ask_a_human()
        verdict = self._judged(closed=True)
        for earlier in reversed(verdicts):
            for finding, cases in earlier.findings.items():
                verdict.findings[finding] = list(dict.fromkeys([*cases, *verdict.findings[finding]]))
        return self._result(verdict, verdicts, released, forger)

    def _storm(self) -> None:
        kinds = ("blocking", "async") if self.plan.client_kind == "both" else (self.plan.client_kind,)
        workers = [
            Child(worker.run, replace(self.settings, name=f"w{n}", client_kind=kinds[n % len(kinds)]))
            for n in range(WORKERS)
        ]
        hears = Child(receiver.run, replace(self.settings, name="receiver"))
        herd = Herd(workers, hears, random.Random(f"kills {self.plan.seed}"))
        begun, length, look = time.monotonic(), STORM * self.plan.seconds, 0.0
        waiting = self.orders
        try:
            while waiting and not herd.done and time.monotonic() < begun + length:
                herd.tend()
                if self.plan.control and CAUGHT & self._judged().found:
                    break
                self._refuse_for_a_while(1 - len(waiting) / len(self.orders))
                if time.monotonic() >= look:
                    look = time.monotonic() + LOOKS_EVERY
                    waiting = [order for order in waiting if self._may_be_paid(order)]
                    doubtful = {entry.reference for entry in self.journal.unresolved()}
                    self._in_doubt = [order for order in self.orders if order.reference in doubtful]
                time.sleep(0.1)
        finally:
            herd.end()
        self.events.update(herd.events)

    def _refuse_for_a_while(self, progress: float) -> None:
        if time.monotonic() < self._refused_until:
            return
        self.service.mend()
        if self._refusals and progress >= self._refusals[0][0]:
            self.service.refuse(self._refusals.pop(0)[1])
            self._refused_until = time.monotonic() + REFUSED_FOR

    def _client(self) -> Client:
        return Client(KEY, base_url=self.service.base_url, budget=None)

    def _close(self) -> None:
        """Settle what the list shows, pay what surely was not paid, and look again when the list has caught up."""
        with self._client() as client:
            self.journal.reconcile_all(client)
            self._pay(client, [order for order in self.orders if self._may_be_paid(order)])
            time.sleep(LIST_CATCHES_UP)
            self.journal.reconcile_all(client)

    def _may_be_paid(self, order: Order) -> bool:
        entry = self.journal.get(order.reference)
        return entry is None or entry.state not in {JournalState.ACCEPTED, JournalState.UNKNOWN}

    def _ask_a_human(self) -> int:
        """Release what is in doubt and, by the service's ledger, was not paid; pay it."""
        paid = {payment.reference for payment in self.service.payments()}
        unpaid = {entry.reference for entry in self.journal.unresolved()} - paid
        for reference in unpaid:
            self.journal.release(reference)
        with self._client() as client:
            self._pay(client, (order for order in self.orders if order.reference in unpaid))
        return len(unpaid)

    def _pay(self, client: Client, orders: Iterable[Order]) -> None:
        signer = CallbackSigner("a secret of the parent")

        def pay(order: Order) -> None:
            call = f"closing {order.reference}"
            with heard(self.words.append, call, order.reference, time.monotonic) as ear:
                ear.record = client.payouts.pay_once(
                    journal=self.journal,
                    reference=order.reference,
                    amount=order.amount,
                    phone=order.phone,
                    description=call,
                    callback_url=signer.url(self.settings.hook, reference=order.reference),
                )

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(pay, list(orders)))

    def _judged(self, *, closed: bool = False) -> Verdict:
        words = [*self.words, *(read_word(line["word"]) for line in self._lines() if "word" in line)]
        entries = {order.reference: self.journal.get(order.reference) for order in self.orders}
        return judge(self.orders, self.service.payments(), entries, words, closed=closed)

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.settings.log).read_text().splitlines()]

    def _result(self, verdict: Verdict, earlier: list[Verdict], released: int, forger: Forger) -> Result:
        lines = self._lines()
        said = Counter(word.said.value for word in self.words)
        said.update(str(line["word"]["said"]) for line in lines if "word" in line)
        events = Counter(str(line["event"]) for line in lines if "event" in line)
        details = Counter(
            {
                "seconds": round(time.monotonic() - self.begun),
                "payments made while the storm lasted": earlier[0].payments,
                "in doubt when the storm ended": earlier[0].left_unknown,
                "left UNKNOWN when the list had caught up": earlier[1].left_unknown,
                "released by a human, then paid": released,
                "callbacks POSTed by the service": self.service.deliveries(),
            }
        )
        counts = {
            "faults struck": self.service.struck(),
            "calls of pay_once": said,
            "kills": self.events,
            "what the receiver heard": events,
            "forged callbacks": forger.answers,
        }
        return Result(verdict, details, counts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 0 if it holds, 1 if it does not."""
    parser = argparse.ArgumentParser(description="Fault campaigns over real sockets.")
    parser.add_argument("--payouts", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long it may take")
    parser.add_argument("--seed", type=int, default=None, help="printed, so that it can be given again")
    parser.add_argument("--client", dest="client_kind", choices=("both", "blocking", "async"), default="both")
    parser.add_argument("--database", default="sqlite", help="sqlite, or the URL of a new PostgreSQL database")
    parser.add_argument("--control", choices=sorted(controls.CONTROLS), help="break one safety on purpose")
    options = vars(parser.parse_args(arguments))
    if options["seed"] is None:
        options["seed"] = int.from_bytes(os.urandom(3))
    plan = Plan(**options)
    result = campaign(plan)
    sys.stdout.write(result.report(plan) + "\n")
    return 0 if result.verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
