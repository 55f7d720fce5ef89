"""The session of a client: what each of its calls uses."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self

from momopay._core.config import SHARED_BUDGET, Account, Hooks, Limits
from momopay._core.response import remaining_requests
from momopay._core.state import RecentlySeen, ServiceClock, StkPause, key_state_for
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import BaseBudget, Lane, Slots
from momopay._transport.attempt import Headers, common_headers
from momopay.errors import BudgetExhaustedError

if TYPE_CHECKING:  # a client without an observer does not load it
    from momopay._core.events import CallEvents, Observer


class Session(Generic[BackendT]):
    """What the calls of one client share. As many threads or tasks may use it as its backend allows."""

    def __init__(
        self,
        backend: BackendT,
        account: Account,
        budget: BaseBudget | SHARED_BUDGET | None,
        limits: Limits,
        headers: Mapping[str, str],
        observer: Observer | None,
        open_journal: Callable[[], Any] | None,
        hooks: Hooks,
        *,
        payout_keys: bool,
    ) -> None:
        key_state = key_state_for(account)
        self.backend: BackendT = backend
        self.account = account
        self.budget: BaseBudget | None = key_state.budget if budget is SHARED_BUDGET else budget
        self.stk_pause: StkPause = key_state.stk_pause
        self.given_ids: RecentlySeen = key_state.given_ids
        self.clock: ServiceClock = ServiceClock(on_loopback=account.on_loopback)
        self.unread: RecentlySeen = RecentlySeen()  # items of the list that a WARNING has named
        self.strangers: RecentlySeen = RecentlySeen()  # transactions of another journal that a WARNING has named
        self.observer = observer
        self.events: CallEvents | None = None  # of one call; a call with events has a copy of the session
        self.limits = limits
        self.open_journal = open_journal  # None if the client has no journal
        self.hooks = hooks
        self.payout_keys = payout_keys  # whether the service honours the Idempotency-Key of a payout
        # Built once: encoding and sorting them for each request would cost more than sending them.
        self.headers: Headers = common_headers(
            account.base_url,
            {
                "Authorization": "Basic " + base64.b64encode(f"{account.api_key}:".encode()).decode(),
                "Accept": "application/json",
                # A cache would answer polls with an old status for ever, and would store phone numbers.
                "Cache-Control": "no-cache, no-store",
                "Accept-Encoding": "identity",  # responses have a few hundred bytes, and compression invites bombs
            },
        )
        self.headers.update(headers)

    def without_max_wait(self) -> Self:
        """Return a copy for work in the background, which may wait for the rate budget for any time."""
        patient = copy(self)
        patient.limits = replace(self.limits, max_wait=None)
        return patient

    def callback_url(self, given: str | None, reference: str | None) -> str | None:
        """Return a payment's callback URL: the given one, or else the one that an integration makes."""
        make = self.hooks.make_callback_url
        return given if given is not None or reference is None or make is None else make(reference)

    def _slots(self, budget: BaseBudget) -> Slots:
        # Asked for each time, because a fork replaces them.
        return budget._slots(self.account.hash)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def acquire_slot(self, lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot of the client's rate budget, if it has a budget, and return whether the call had to wait for it.

        Raise BudgetExhaustedError if there is no slot by the monotonic time `latest` or within `max_wait`.
        """
        if self.budget is None:
            return False
        if self.limits.max_wait is not None and lane is not Lane.POLL:  # nobody waits for a single poll
            latest = min(latest, self.backend.now() + self.limits.max_wait)
        started = self.backend.now()
        try:
            slots = self._slots(self.budget)
            has_waited = await slots.acquire(self.backend, lane, latest=latest, describe=describe)
        except BudgetExhaustedError as error:
            if self.events is not None:
                self.events.budget_waited(lane.value, self.backend.now() - started, error)
            raise
        if has_waited and self.events is not None:
            self.events.budget_waited(lane.value, self.backend.now() - started, None)
        return has_waited

    def note_remaining(self, headers: Headers) -> None:
        """Correct the rate budget, downwards only, by what an answer shows of the service's own count."""
        remaining = remaining_requests(headers)
        if self.budget is not None and remaining is not None:
            self._slots(self.budget).note_remaining(self.backend.now(), *remaining)

    async def pause(self, seconds: float) -> None:
        """Give no slot of the rate budget for so many seconds, because the service answered 429."""
        if self.budget is not None:
            await self._slots(self.budget).stop(self.backend, seconds)

    async def close(self) -> None:
        try:
            if self.budget is not None:
                self.budget.close()
        finally:
            await self.backend.close()
