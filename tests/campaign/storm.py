"""The sandbox under a storm: a seeded plan strikes requests all along, and faults that the sandbox lacks are added."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, TypeVar
from unittest.mock import patch

from campaign.judge import Payment
from campaign.settings import TIMEOUT
from momopay.sandbox import Account, Fault, MovementKind, Sandbox, Switches, _fault_middleware, _server
from momopay.sandbox._fault_middleware import EFFECT, FaultMiddleware
from momopay.sandbox._faults import FaultPlan, PlannedFault

SPEED = 20.0
"""Virtual seconds a second: a callback comes after 1.75 s, a late list catches up within 3 s."""
LIST_CATCHES_UP = 60 / SPEED + 1
"""Seconds after which every list shows every payment."""
KEY = "pk_test_campaign"
FUNDS = Decimal(900_000_000)
BEFORE_COMMIT = (Fault.refuse, Fault.reset_before_read, Fault.error_before_commit, Fault.html_502)
AFTER_COMMIT = (
    Fault.reset_after_commit,
    Fault.hang_after_commit,
    Fault.error_after_commit,
    Fault.truncated,
    Fault.slow_drip,
    Fault.refused_after_commit,
    Fault.other_transaction,
    Fault.other_amount,
    Fault.other_phone,
    Fault.other_reference,
)
REFUSING = (200, 409, 425, 499)
"""Statuses of refusals with an unknown code, of payouts that were executed."""
READ_FAULTS = (
    Fault.refuse,
    Fault.reset_before_read,
    Fault.error_before_commit,
    Fault.truncated,
    Fault.html_502,
    Fault.list_lag,
)
TWISTS = (
    Fault.list_lag,
    Fault.callback_duplicate,
    Fault.callback_late,
    Fault.callback_reordered,
    Fault.callback_lost,
)


class Storm(FaultPlan):
    """Draws for each request whether a fault strikes it. `path` is where payments, or prompts, are asked for."""

    path: ClassVar[str] = "/b2c/payouts"
    what: ClassVar[str] = "payout"

    def __init__(self, seed: int, *, fierce: bool = False, late: bool = False) -> None:
        """`fierce`: faults strike more often, and all after the commit, where a broken safety costs money.

        `late`: many payouts are executed long after the client stopped waiting.
        """
        super().__init__()
        self.rng = random.Random(f"storm {seed}")
        self._likelihood = 0.6 if fierce else 0.32
        self._redirects = 0.2 if fierce else 0.04
        self._late = 0.4 if late else 0.03
        self.latest = 2.5 if late else 2 * TIMEOUT
        """For how many seconds a payout that was read waits to be executed, at most."""
        self._twist = 0.8 if fierce else 0.25
        self._twists = (Fault.list_lag, Fault.callback_lost) if fierce else TWISTS
        self._payout_faults = AFTER_COMMIT if fierce else (*BEFORE_COMMIT, *AFTER_COMMIT)
        self.struck: Counter[str] = Counter()
        self.calm = False
        self.known_ids: list[str] = []
        self.misled: dict[str, str] = {}
        """The calls whose answer had the id of another payout, and that id."""

    def take(self, method: str, path: str) -> PlannedFault | None:
        """Draw the fault of a request."""
        pays = path == self.path
        if not self._strikes(self._likelihood if pays else 0.06):
            return None
        fault = self.rng.choice(self._payout_faults if pays else READ_FAULTS)
        if fault is Fault.other_transaction and not self.known_ids:
            return None
        self.struck[f"{self.what if pays else 'read'}: {fault.value}"] += 1
        whole = fault is not Fault.truncated or self.rng.random() < 0.5
        status = self.rng.choice(REFUSING)
        return PlannedFault(method, path, fault, 1, whole, status)

    def another_id(self, transaction: Any, _state: object) -> str:
        """Draw the id of a payout that the journal has as accepted: only then can it know that another has it."""
        drawn = self.rng.choice(self.known_ids)
        self.misled[transaction.description] = drawn
        return drawn

    def twist(self) -> Fault | None:
        """Draw what follows from a payout, whatever becomes of its answer."""
        if not self._strikes(self._twist):
            return None
        return self.rng.choice(self._twists)

    def redirects(self) -> bool:
        """Draw whether a payout is executed and answered with a redirect to itself."""
        return self._own("redirect_after_commit", self._redirects)

    def lateness(self) -> float:
        """Draw for how long a payout that was read waits to be executed, seconds; longer than the client does."""
        return self.rng.uniform(TIMEOUT, self.latest) if self._own("late_commit", self._late) else 0.0

    def _own(self, name: str, likelihood: float) -> bool:
        strikes = self._strikes(likelihood)
        self.struck[f"{self.what}: {name}"] += strikes
        return strikes

    def _strikes(self, likelihood: float) -> bool:
        return not self.calm and self.rng.random() < likelihood


def _middleware_in(storm: Storm) -> type[FaultMiddleware]:
    class StormMiddleware(FaultMiddleware):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope.get("method") == "POST" and scope["path"] == f"/v1{storm.path}":
                scope[EFFECT] = storm.twist()
                send = _redirecting(send, scope["path"]) if storm.redirects() else send
            await super().__call__(scope, receive, send)

        async def _read_body(self, scope: Any, receive: Any) -> bytes | None:
            body = await super()._read_body(scope, receive)
            if scope["path"] == f"/v1{storm.path}" and (late := storm.lateness()):
                await asyncio.sleep(late)
            return body

    return StormMiddleware


def _redirecting(send: Any, path: str) -> Any:
    async def redirect(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = [(b"location", path.encode()), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 307, "headers": headers})
        elif not message.get("more_body", False):
            await send({"type": "http.response.body", "body": b""})

    return redirect


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
        self.mend()
        self._account.b2c_balance = FUNDS
        self._account.service_balance = FUNDS

    def payments(self) -> list[Payment]:
        """Give every payout that was committed, dated by the monotonic clock that all processes share."""
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

    def refuse(self, why: str) -> None:
        """Refuse payouts for a reason that money or an office mends."""
        account = self._account
        match why:
            case "funds":
                account.b2c_balance = Decimal(0)
            case "fees":
                account.service_balance = Decimal(0)
            case "kyc":
                account.kyc_approved = False
            case _:
                account.rate_limit = 1

    def restyle(self, switch: str = "", value: object = None) -> None:
        """Show lists in another style; without one, as they are."""
        fresh = Switches()
        for name in ("list_phone", "list_amount", "list_type", "list_times"):
            setattr(self._account.switches, name, value if name == switch else getattr(fresh, name))

    def mend(self) -> None:
        account = self._account
        account.kyc_approved = True
        account.rate_limit = None
        if not account.b2c_balance:
            account.b2c_balance = FUNDS
        if not account.service_balance:
            account.service_balance = FUNDS


S = TypeVar("S", bound=Service)


@contextmanager
def service_in_storm(storm: Storm, kind: Callable[[Sandbox, Storm], S]) -> Generator[S]:
    sandbox = Sandbox(speed=SPEED)
    with patch.object(_server, "FaultMiddleware", _middleware_in(storm)):
        sandbox.start()
    try:
        sandbox._running.faults = storm
        with patch.object(_fault_middleware, "_another_id", storm.another_id):
            yield kind(sandbox, storm)
    finally:
        sandbox.close()
