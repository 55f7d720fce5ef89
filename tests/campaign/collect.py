"""The campaign of collections over sockets: a storm, sweeps, and the judge before and after the last orders are paid.

This process runs the service and its customers, who pay, cancel, forget, or pay when it is too late. Others collect
with `stk.collect_once`, sweep, and hear callbacks, and are killed and frozen.
"""

import random
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from unittest.mock import patch

from campaign.judge import Finding, Payment, by_order
from campaign.parent import Parent
from campaign.settings import Settings, repeated
from campaign.storm import Storm, Witness
from momopay.sandbox import Refusal, Sandbox, _lifecycle
from momopay.sandbox._records import COMPLETED, Kind, Status, Transaction
from postgresql import PostgresqlServer

WAYS = {"pays": 4, "cancels": 4, "forgets": 2, "leaves it open": 1}
"""What a customer does about a prompt, and how often; one that is left open is decided when the storm is over."""
SOON = (0.1, 2.5)
"""Seconds until the customer decides."""
LATE = (0.5, 8.0)
"""Seconds from the end of a prompt to its late PIN: within ten minutes of the service's time."""
LATE_ENOUGH = 700.0
"""Seconds of the service's time that pass before the last sweep: it runs more than ten minutes after every end."""
LATE_PIN, OFTEN_LATE = 0.25, 0.9
"""How likely a prompt that was cancelled or has expired is paid after all; and in a control that needs it."""
TRIES = 6
"""How often every order is asked for in the end."""
UNPAID = COMPLETED - {Status.SUCCESS}
CAUGHT = frozenset({Finding.TWO_OPEN, Finding.DOUBLE, Finding.READS_UNPAID, Finding.FORGOTTEN})
"""What a control must be caught at."""


class Till(Witness):
    def __init__(self, sandbox: Sandbox, storm: Storm) -> None:
        super().__init__(sandbox, storm)
        self._account.switches.health_rule = False
        self._ends: dict[str, datetime] = {}
        self._late: set[str] = set()

    @contextmanager
    def watched(self) -> Generator[None]:
        """Note when each prompt ends for the first time."""
        enter = _lifecycle.enter

        def noting(state: Any, transaction: Transaction, status: Status, code: str | None, now: datetime) -> None:
            if status in COMPLETED:
                self._ends.setdefault(transaction.id, now)
            enter(state, transaction, status, code, now)

        with patch.object(_lifecycle, "enter", noting):
            yield

    def payments(self) -> list[Payment]:
        return [
            Payment(
                each.reference,
                each.amount,
                each.phone,
                each.id,
                each.description,
                self._seconds(each.created_at),
                None if each.id not in self._ends else self._seconds(self._ends[each.id]),
                each.status is Status.SUCCESS,
                each.id in self._late,
            )
            for each in self.stk()
        ]

    def pay_late(self, transaction_id: str) -> bool:
        """Pay a prompt that ended without success after all; return whether it had ended so."""
        return bool(self.sandbox._started.on_loop(lambda: self._pay_late(transaction_id)))

    def _pay_late(self, transaction_id: str) -> bool:
        state, now = self._engine.state, self._engine.catch_up()
        transaction = state.transactions[transaction_id]
        if transaction.status not in UNPAID:
            return False
        self._late.add(transaction_id)
        if len(self._late) % 4:
            transaction.callback_mode = "lost"
        transaction.plan = []
        _lifecycle.enter(state, transaction, Status.SUCCESS, "0", now)
        self._engine.commit()
        return True

    def is_busy(self) -> bool:
        return any(each.status not in COMPLETED for each in self.stk())

    def stk(self) -> list[Transaction]:
        return [each for each in list(self._engine.state.transactions.values()) if each.kind is Kind.STK]


class Customers:
    def __init__(self, till: Till, seed: int, *, late_pin: float) -> None:
        """`late_pin`: how likely a prompt that was cancelled or has expired is paid after all."""
        self.events: Counter[str] = Counter()
        self._till = till
        self._late_pin = late_pin
        self._rng = random.Random(f"customers {seed}")
        self._due: dict[str, tuple[float, str]] = {}
        self._late: dict[str, float] = {}
        self.eager = False
        """The storm is over: everybody pays at once, and nobody pays late."""

    def decide(self) -> None:
        now = time.monotonic()
        for prompt in self._till.stk():
            if prompt.status is Status.PENDING:
                due, way = self._due.setdefault(prompt.id, self._decided(now))
                if self.eager and way == "leaves it open":
                    self._act(prompt.id, "pays")
                elif now >= due:
                    self._act(prompt.id, way)
            elif prompt.status in UNPAID:
                drawn = self._rng.uniform(*LATE) if self._rng.random() < self._late_pin else float("inf")
                is_due = now >= self._late.setdefault(prompt.id, now + drawn) and not self.eager
                self.events["pays late, after the end"] += is_due and self._till.pay_late(prompt.id)

    def _decided(self, now: float) -> tuple[float, str]:
        (way,) = self._rng.choices(list(WAYS), list(WAYS.values()))
        return now + self._rng.uniform(*SOON), "pays" if self.eager else way

    def _act(self, prompt: str, way: str) -> None:
        sandbox = self._till.sandbox
        acts = {"pays": sandbox.enter_pin, "cancels": sandbox.cancel, "forgets": sandbox.ignore}
        if way in acts:
            self._due[prompt] = (float("inf"), way)
            with suppress(Refusal):
                acts[way](prompt)
                self.events[way] += 1


class Collections(Parent):
    caught = CAUGHT

    def __init__(self, settings: Settings, till: Till, server: PostgresqlServer | None) -> None:
        super().__init__(settings, till, server)
        self.till = till
        self.parts = [self._finish]
        late_pin = OFTEN_LATE if self.plan.control == "end_not_read_again" else LATE_PIN
        self.customers = Customers(till, self.plan.seed, late_pin=late_pin)

    @contextmanager
    def at_work(self) -> Generator[None]:
        with super().at_work(), self.till.watched(), repeated(self.customers.decide, every=0.05):
            yield

    def calm_down(self) -> None:
        """Wait for the end of every prompt too; then sweep, ten minutes later."""
        self.customers.eager = True
        super().calm_down()
        until = time.monotonic() + 10
        while self.till.is_busy() and time.monotonic() < until:
            time.sleep(0.1)
        self.till.sandbox.advance(LATE_ENOUGH)
        self.clock.skew += LATE_ENOUGH  # so that it still shows the service's time
        for _ in range(2):  # what the first finds may be read again by the second
            self.patient.transactions.sweep(journal=self.journal)

    def _finish(self) -> None:
        """Get every order paid: settle by eye, release what was never prompted, and ask again."""
        self.settle_by_eye()
        for _ in range(TRIES):
            entries = self.entries()
            prompts = by_order(self.till.payments(), entries)
            left = [order.reference for order in self.orders if not any(p.is_paid for p in prompts[order.reference])]
            if not left:
                break
            doubtful = [name for name in left if (entry := entries[name]) is not None and entry.state == "UNKNOWN"]
            self.human.release_at_last(doubtful)
            self.ask(self.patient, left)
            time.sleep(1.0)
            while self.till.is_busy():
                time.sleep(0.1)
        self.calm_down()

    def counts(self) -> dict[str, Counter[str]]:
        return {**super().counts(), "customers": self.customers.events}
