"""What the calls of one client share: backend, account, limits, rate limiter and headers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Generic, Self

from momopay import __version__
from momopay._core.backend import BackendT
from momopay._core.clock import ServiceClock
from momopay._core.config import SHARED_BUDGET, Account, Limits
from momopay._core.key_state import StkPause, hash_of, key_state_for
from momopay._ratelimit.budget import Lane
from momopay._ratelimit.limiter import BaseBudget, RateLimiter
from momopay._transport import Headers, common_headers
from momopay.errors import BudgetExhaustedError

if TYPE_CHECKING:  # a client without an observer does not load it
    from momopay._core.events import Observer, Operation


class Session(Generic[BackendT]):
    """The context of every call of one client. Safe to use from as many threads or tasks as its backend is."""

    def __init__(
        self,
        backend: BackendT,
        account: Account,
        *,
        budget: BaseBudget | None,
        stk_pause: StkPause,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.backend: BackendT = backend
        self.account = account
        self.budget = budget
        self.limiter: RateLimiter | None = None if budget is None else RateLimiter(budget, backend, hash_of(account))
        self.stk_pause = stk_pause
        self.clock: ServiceClock = ServiceClock(on_loopback=account.on_loopback)
        self.observer = observer
        # Of a copy: the call that it is for.
        self.operation: Operation | None = None
        self.limits = limits
        # Built once: encoding and sorting them for each request would cost more than sending them.
        self.headers: Headers = common_headers(
            account.base_url,
            {
                "Authorization": "Basic " + base64.b64encode(f"{account.api_key}:".encode()).decode(),
                "Accept": "application/json",
                # A cached answer would show a wait an old status for ever, and a cache would keep phones.
                "Cache-Control": "no-cache, no-store",
                "Accept-Encoding": "identity",  # an answer has a few hundred bytes, and compression invites bombs
                "User-Agent": f"momopay/{__version__}",
            },
        )
        if headers is not None:
            self.headers.update(headers)

    def with_operation(self, operation: Operation) -> Self:
        """Return a copy that one call uses, so that its events know their operation. It shares everything."""
        of_call = copy(self)
        of_call.operation = operation
        return of_call

    async def acquire_slot(self, lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot of the rate budget, if there is one, and return whether it had to be waited for.

        Raises:
            BudgetExhaustedError: There is no slot by the monotonic time `latest`; none was taken.
        """
        if self.limiter is None:
            return False
        if self.operation is None:
            return await self.limiter.acquire(lane, latest=latest, describe=describe)
        started = self.backend.now()
        try:
            waited = await self.limiter.acquire(lane, latest=latest, describe=describe)
        except BudgetExhaustedError as error:
            self.operation.budget_waited(lane.value, self.backend.now() - started, error)
            raise
        if waited:
            self.operation.budget_waited(lane.value, self.backend.now() - started, None)
        return waited

    async def close(self) -> None:
        """Close the connections, those of a shared budget included."""
        if self.limiter is not None:
            await self.limiter.close()
        await self.backend.close()


def open_session(
    backend: BackendT,
    account: Account,
    budget: BaseBudget | SHARED_BUDGET | None,
    limits: Limits,
    headers: Mapping[str, str] | None,
    observer: Observer | None,
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
        observer=observer,
    )
