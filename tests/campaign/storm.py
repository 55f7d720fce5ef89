"""The sandbox under a storm: a seeded plan strikes requests all along, and faults that the sandbox lacks are added."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar
from unittest.mock import patch

from campaign.judge import Payment
from campaign.settings import KEY, REFUSING, SPEED, TIMEOUT
from momopay import EntryKind
from momopay.sandbox import Account, Fault, MovementKind, Sandbox, Switches, _server
from momopay.sandbox._fault_middleware import EFFECT, FaultMiddleware
from momopay.sandbox._faults import FaultPlan, PlannedFault

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
        """Draw the fault of a request."""
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


class Service:
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

    def restore(self) -> None:
        for name, value in NORMAL.items():
            self.change(name, value)


S = TypeVar("S", bound=Service)


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
