"""What the calls of one client share: backend, account, limits, rate limiter and headers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Generic

from momopay import __version__
from momopay._core.backend import BackendT
from momopay._core.clock import ServiceClock
from momopay._core.config import SHARED_BUDGET, Account, Limits
from momopay._core.key_state import StkPause, hash_of, key_state_for
from momopay._ratelimit.budget import Budget
from momopay._ratelimit.limiter import RateLimiter, SharedBudget
from momopay._transport import Headers, common_headers


class Session(Generic[BackendT]):
    """The context of every call of one client. Safe to use from as many threads or tasks as its backend is."""

    def __init__(
        self,
        backend: BackendT,
        account: Account,
        *,
        budget: Budget | SharedBudget | None,
        stk_pause: StkPause,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.backend: BackendT = backend
        self.account = account
        self.budget = budget
        self.limiter: RateLimiter | None = None if budget is None else RateLimiter(budget, backend, hash_of(account))
        self.stk_pause = stk_pause
        self.clock: ServiceClock = ServiceClock()
        self.limits = limits
        # Built once: encoding and sorting them for each request would cost more than sending them.
        self.headers: Headers = common_headers(
            account.base_url,
            {
                "Authorization": "Basic " + base64.b64encode(f"{account.api_key}:".encode()).decode(),
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # an answer has a few hundred bytes, and compression invites bombs
                "User-Agent": f"momopay/{__version__}",
            },
        )
        if headers is not None:
            self.headers.update(headers)

    async def close(self) -> None:
        """Close the connections, those of a shared budget included."""
        if self.limiter is not None:
            await self.limiter.close()
        await self.backend.close()


def open_session(
    backend: BackendT,
    account: Account,
    budget: Budget | SharedBudget | SHARED_BUDGET | None,
    limits: Limits,
    headers: Mapping[str, str] | None,
) -> Session[BackendT]:
    """Return a session over these connections, with the state that all clients of the key share."""
    key_state = key_state_for(account)
    return Session(
        backend,
        account,
        budget=key_state.budget if budget is SHARED_BUDGET else budget,
        stk_pause=key_state.stk_pause,
        limits=limits,
        headers=headers,
    )
