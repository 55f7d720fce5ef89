"""The operations of a client, grouped by what they act on, and the connections that they share.

`momopay.client` imports this package at a client's first use. It is the boundary behind which httpx, pydantic and
everything that sends is loaded.
"""

from __future__ import annotations

from typing import Any, Generic

from momopay._core.backend import BackendT
from momopay._core.config import SHARED_BUDGET, Account, Limits
from momopay._core.key_state import key_state_for
from momopay._core.operation import run_sync
from momopay._core.session import Session
from momopay._polling.coordinator import WaitCoordinator
from momopay._ratelimit.budget import Budget
from momopay._ratelimit.limiter import SharedBudget
from momopay._transport import AsyncBackend, SyncBackend
from momopay.resources.channels import Channels
from momopay.resources.payouts import Payouts
from momopay.resources.stk import Stk
from momopay.resources.transactions import Transactions
from momopay.resources.wallet import Wallet


class Connections(Generic[BackendT]):
    """What a client and its copies share: open connections, and the waits that poll together."""

    def __init__(self, backend: BackendT) -> None:
        self.backend: BackendT = backend
        self.coordinator = WaitCoordinator()


def connect(transport: Any, *, is_async: bool) -> Connections[Any]:
    """Return the connections of a new client, over its own transport if it was given one."""
    return Connections(AsyncBackend(transport)) if is_async else Connections(SyncBackend(transport))


class Resources(Generic[BackendT]):
    """The groups of operations of one client, over one session."""

    def __init__(
        self,
        connections: Connections[BackendT],
        account: Account,
        budget: Budget | SharedBudget | SHARED_BUDGET | None,
        limits: Limits,
    ) -> None:
        key_state = key_state_for(account.hash)
        self.session: Session[BackendT] = Session(
            connections.backend,
            account,
            budget=key_state.budget if budget is SHARED_BUDGET else budget,
            stk_pause=key_state.stk_pause,
            limits=limits,
        )
        self.stk: Stk[BackendT] = Stk(self.session)
        self.payouts: Payouts[BackendT] = Payouts(self.session)
        self.transactions: Transactions[BackendT] = Transactions(self.session, connections.coordinator)
        self.wallet: Wallet[BackendT] = Wallet(self.session)
        self.channels: Channels[BackendT] = Channels(self.session)

    def close(self: Resources[SyncBackend]) -> None:
        """Close the connections of a blocking client."""
        run_sync(self.session.close())

    async def aclose(self: Resources[AsyncBackend]) -> None:
        """Close the connections of an asynchronous client."""
        await self.session.close()
