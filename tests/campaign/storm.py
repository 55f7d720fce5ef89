"""The sandbox under a storm: a seeded plan strikes requests; and troubles of the account, the network, the database.

The network is the loopback link of a namespace of our own: set down, it loses every packet.
"""

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Self, TypeVar
from unittest.mock import patch

import psycopg

from campaign.judge import Payment
from campaign.settings import KEY, REFUSING, SPEED, TIMEOUT, Settings
from momopay import EntryKind
from momopay.sandbox import Account, Fault, MovementKind, Sandbox, Switches, _server
from momopay.sandbox._fault_middleware import EFFECT, FaultMiddleware
from momopay.sandbox._faults import FaultPlan, PlannedFault
from namespaces import set_link
from postgresql import PostgresqlServer

LIST_CATCHES_UP = 60 / SPEED + 1
"""Seconds after which every list shows every payment."""
FUNDS = Decimal(900_000_000)
BEFORE_COMMIT = (Fault.refuse, Fault.reset_before_read, Fault.error_before_commit, Fault.html_502)
AFTER_COMMIT = (
    *(Fault.reset_after_commit, Fault.hang_after_commit, Fault.error_after_commit, Fault.truncated, Fault.slow_drip),
    *(Fault.refused_after_commit, Fault.other_amount, Fault.other_phone, Fault.other_reference),
)
READ_FAULTS = (*BEFORE_COMMIT, Fault.truncated, Fault.list_lag)
TWISTS = (Fault.list_lag, Fault.callback_duplicate, Fault.callback_late, Fault.callback_reordered, Fault.callback_lost)


class Storm(FaultPlan):
    """Draws for each request whether a fault strikes it."""

    def __init__(self, seed: int, kind: EntryKind, *, fierce: bool = False, late: bool = False) -> None:
        """`fierce`: faults strike more often, and all after the commit, where a broken safety costs money.

        `late`: many payouts are executed long after the client stopped waiting.
        """
        super().__init__()
        pays = kind is EntryKind.PAYOUT
        self.path, self.what = ("/b2c/payouts", "payout") if pays else ("/payments/stk", "prompt")
        self.rng = random.Random(f"storm {seed}")
        self._likelihood, self._twist = (0.6, 0.8) if fierce else (0.32, 0.25)
        self._late = 0.4 if late else 0.03
        self.latest = 2.5 if late else 2 * TIMEOUT
        """For how many seconds a payout that was read waits to be executed, at most."""
        self._twists = (Fault.list_lag, Fault.callback_lost) if fierce else TWISTS
        self._faults = AFTER_COMMIT if fierce else (*BEFORE_COMMIT, *AFTER_COMMIT)
        self.struck: Counter[str] = Counter()
        self.calm = False

    def take(self, method: str, path: str) -> PlannedFault | None:
        pays = path == self.path
        if not self._strikes(self._likelihood if pays else 0.06):
            return None
        fault = self.rng.choice(self._faults if pays else READ_FAULTS)
        self.struck[f"{self.what if pays else 'read'}: {fault.value}"] += 1
        whole = fault is not Fault.truncated or self.rng.random() < 0.5
        return PlannedFault(method, path, fault, 1, whole, self.rng.choice(REFUSING))

    def twist(self) -> Fault | None:
        """Draw what follows from a payout, whatever becomes of its answer."""
        return self.rng.choice(self._twists) if self._strikes(self._twist) else None

    def lateness(self) -> float:
        """Draw for how long a payout that was read waits to be executed, seconds; longer than the client does."""
        if not self._strikes(self._late):
            return 0.0
        self.struck[f"{self.what}: late_commit"] += 1
        return self.rng.uniform(TIMEOUT, self.latest)

    def _strikes(self, likelihood: float) -> bool:
        return not self.calm and self.rng.random() < likelihood


def _middleware_in(storm: Storm) -> type[FaultMiddleware]:
    class StormMiddleware(FaultMiddleware):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope.get("method") == "POST" and scope["path"] == f"/v1{storm.path}":
                scope[EFFECT] = storm.twist()
            await super().__call__(scope, receive, send)

        async def _read_body(self, scope: Any, receive: Any) -> bytes | None:
            body = await super()._read_body(scope, receive)
            if scope["path"] == f"/v1{storm.path}" and (late := storm.lateness()):
                await asyncio.sleep(late)
            return body

    return StormMiddleware


NORMAL: dict[str, object] = {
    "b2c_balance": FUNDS,
    "service_balance": FUNDS,
    "kyc_approved": True,
    "rate_limit": None,
    **{name: getattr(Switches(), name) for name in ("list_phone", "list_amount", "list_type", "list_times")},
}
"""What troubles change of the account and of its switches."""


class Witness:
    """The service, the only witness."""

    def __init__(self, sandbox: Sandbox, storm: Storm) -> None:
        self.base_url = sandbox.base_url
        self.storm = storm
        self.sandbox = sandbox
        self._engine = sandbox._running
        self._account: Account = sandbox.account(KEY)
        instant, since = self._engine.clock._origin
        assert since is not None
        self.epoch = instant.timestamp() - since * SPEED
        """The service's time when the monotonic clock was 0, in Unix seconds; it runs `SPEED` times as fast."""
        self.restore()

    def payments(self) -> list[Payment]:
        """Return every payout that was committed, dated by the monotonic clock that all processes share."""
        transactions = self._engine.state.transactions
        return [
            Payment(
                movement.reference,
                movement.amount,
                movement.phone,
                movement.transaction_id,
                transactions[movement.transaction_id].description,
                self._seconds(movement.at),
            )
            for movement in list(self._engine.state.ledger)
            if movement.kind is MovementKind.payout
        ]

    def _seconds(self, at: datetime) -> float:
        base, since = self._engine.clock._origin
        assert since is not None
        return since + (at - base).total_seconds() / SPEED

    def struck(self) -> Counter[str]:
        """Count the faults by kind; a twist of what follows counts where there was a payout for it to follow."""
        counts = Counter(self.storm.struck)
        for transaction in self._engine.state.transactions.values():
            counts[f"{self.storm.what}: list_lag"] += transaction.listed_from is not None
            if transaction.callback_mode:
                counts[f"{self.storm.what}: callback_{transaction.callback_mode}"] += 1
        return counts

    def deliveries(self) -> int:
        return len(self._engine.state.callbacks)

    def change(self, name: str, value: object) -> None:
        """Set one of `NORMAL` to something else."""
        setattr(self._account.switches if name.startswith("list_") else self._account, name, value)

    def use_keys(self, keys: Any) -> None:
        """Honour the keys of payouts, ignore them, or forget them after ten minutes."""
        self._account.switches.payout_keys = keys

    def restore(self) -> None:
        for name, value in NORMAL.items():
            self.change(name, value)


S = TypeVar("S", bound=Witness)


@contextmanager
def service_in_storm(storm: Storm, kind: Callable[[Sandbox, Storm], S]) -> Generator[S]:
    sandbox = Sandbox(speed=SPEED)
    with patch.object(_server, "FaultMiddleware", _middleware_in(storm)):
        sandbox.start()
    try:
        sandbox._running.faults = storm
        yield kind(sandbox, storm)
    finally:
        sandbox.close()


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
"""Seconds for which it loses every packet."""
FROZEN = (0.3, 4.0)
"""Seconds for which the database's backends stop; a deadline is 3."""


class Troubles:
    def __init__(
        self, service: Witness, server: PostgresqlServer | None, settings: Settings, rng: random.Random
    ) -> None:
        self.events: Counter[str] = Counter()
        self._service = service
        self._server = server
        self._folder = settings.folder
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
            self._over.wait(self._rng.uniform(*LINK_DOWN))
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
