"""What the parent of a campaign does to the service, to the network and to the database while payouts are made.

The network is the loopback link of a namespace of our own: set down, it loses every packet.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Self

import psycopg

from campaign.settings import Settings
from campaign.storm import Service
from namespaces import set_link
from postgresql import PostgresqlServer

TROUBLES: tuple[tuple[float, str, object], ...] = (
    (0.1, "b2c_balance", Decimal(0)),
    (0.2, "list_phone", "masked"),
    (0.3, "kyc_approved", False),
    (0.4, "list_amount", "with_fee"),
    (0.5, "service_balance", Decimal(0)),
    (0.6, "list_type", "lower"),
    (0.7, "rate_limit", 1),
    (0.8, "list_times", "local"),
)
"""When payouts begin to be refused for a while, or the list to show only near matches: by the share of the storm that
is over; and what of the account changes, and how."""
FOR_A_WHILE = 1.5
"""Seconds."""
BETWEEN = (4.0, 9.0)
"""Seconds between two failures of the network, and between two of the database."""
CUTS = "cut-*"
"""The files by which a worker asks that the network fails now."""
UP = 1.5
"""Seconds for which the network works at least."""
LINK_DOWN = (0.1, 1.5)
LONG_DOWN = (4.5, 6.0)
"""Seconds; the long one outlasts a payout's timeout and the look of a person."""
FROZEN = (0.3, 4.0)
"""Seconds for which the database's backends stop; a deadline is 3."""


class Troubles:
    """All of them, each in its own time."""

    def __init__(
        self, service: Service, server: PostgresqlServer | None, settings: Settings, rng: random.Random
    ) -> None:
        self.events: Counter[str] = Counter()
        self._service = service
        self._server = server
        self._folder = settings.folder
        self._down = LONG_DOWN if settings.plan.control == "late_arrival" else LINK_DOWN
        self._rng = rng
        self._planned = list(TROUBLES)
        self._restore_at = 0.0
        self._over = threading.Event()
        works = [self._fail_link] if settings.cuts else []  # the loopback link is ours to set down
        works += [self._fail_server] if server is not None else []
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._service.restore()

    def tend(self, progress: float) -> None:
        """Begin and end what is changed of the account, as far as the campaign has come."""
        now = time.monotonic()
        if now >= self._restore_at:
            self._service.restore()
            if self._planned and progress >= self._planned[0][0]:
                _, name, value = self._planned.pop(0)
                self._service.change(name, value)
                self.events[f"{name} is {value}"] += 1
                self._restore_at = now + FOR_A_WHILE

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._over.is_set():
            work()

    def _fail_link(self) -> None:
        self._over.wait(UP)
        until = time.monotonic() + self._rng.uniform(*BETWEEN) - UP
        while time.monotonic() < until and not any(self._folder.glob(CUTS)):
            if self._over.wait(0.005):
                return
        set_link(up=False)
        try:
            for file in self._folder.glob(CUTS):  # whoever left it goes on when it is gone
                file.unlink(missing_ok=True)
            self._over.wait(self._rng.uniform(*self._down))
        finally:
            set_link(up=True)
        self.events["network lost every packet for a while"] += 1

    def _fail_server(self) -> None:
        if self._server is None or self._over.wait(self._rng.uniform(*BETWEEN)):
            return
        what = self._rng.choice(("killed", "terminated", "frozen", "crashed"))
        try:
            if what == "killed":
                self._server.kill()
            elif what == "terminated":
                self._server.disconnect_all()
            else:
                self._signal_backends(what, self._server.backends())
        except psycopg.Error:  # the network is down: the server cannot be asked
            return
        finally:
            if what == "killed":
                self._server.restart()
        self.events[f"PostgreSQL {what}"] += 1

    def _signal_backends(self, what: str, backends: list[int]) -> None:
        if what == "crashed":
            backends, sent = backends[:1], signal.SIGKILL
        else:
            sent = signal.SIGSTOP
        for pid in backends:
            with suppress(ProcessLookupError):
                os.kill(pid, sent)
        if sent == signal.SIGSTOP:
            self._over.wait(self._rng.uniform(*FROZEN))
            for pid in backends:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
