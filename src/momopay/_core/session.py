"""What the calls of a client use: its session, its measure of the service's clock, and what its key's clients share."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from momopay._core.config import SHARED_BUDGET, Account, Hooks, Limits
from momopay._core.response import http_date, remaining_requests
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import BaseBudget, Lane, RateBudget, Slots
from momopay._transport.attempt import Headers, common_headers, now
from momopay.errors import BudgetExhaustedError, StkTempBannedError, ThrottledError

if TYPE_CHECKING:  # a client without an observer does not load it
    from momopay._core.events import CallEvents, Observer

logger: logging.Logger = logging.getLogger("momopay")

_WORTH_A_WARNING: Final = 60.0  # seconds; a smaller offset may be latency, and the header's resolution of one second
_LARGEST: Final = 10 * 365 * 86_400.0  # seconds; a larger offset is a broken header, which must not mislead a search
_TEMP_BAN: Final = 3600.0  # seconds, as the service documents it
_HEALTH_BLOCK: Final = 1800.0  # seconds, as the service documents it
_IDS_REMEMBERED: Final = 1000  # ids, and as many of the time before


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
        self.account: Account = account
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


class ServiceClock:
    """The service's time, as one client measures it. It needs no lock: all threads measure the same."""

    def __init__(self, *, on_loopback: bool = False) -> None:
        # A service on loopback is a sandbox with virtual time, so this machine's clock is not at fault.
        self._may_warn: bool = not on_loopback
        # The service's time, and this machine's boot clock at that moment. Nobody sets the boot clock, so the two give
        # the service's time later on, even if somebody sets this machine's time of day.
        self._measured: tuple[datetime, float] | None = None
        self._warned: float = 0.0

    @property
    def offset(self) -> float | None:
        """Seconds by which this machine's clock is ahead now; None if no response had a ``Date``."""
        return self.offset_at(self.reading())

    @staticmethod
    def reading() -> tuple[datetime, float]:
        """Return this machine's time, and its boot clock at that moment."""
        return datetime.now(UTC), now()

    def offset_at(self, reading: tuple[datetime, float]) -> float | None:
        """Return by how many seconds this machine's clock was ahead then; None if no response had a ``Date`` yet."""
        if self._measured is None:
            return None
        (shown, at), (date, measured_at) = reading, self._measured
        return (shown - date).total_seconds() - (at - measured_at)

    @property
    def ahead(self) -> float:
        """Seconds by which this machine's clock is ahead; 0 if it is behind or the offset is unknown."""
        return max(0.0, self.offset or 0.0)

    def service_now_if_known(self) -> datetime | None:
        """Return the service's time; None if no response had a ``Date``."""
        if self._measured is None:
            return None
        date, at = self._measured
        return date + timedelta(seconds=now() - at)

    def observe(self, headers: Mapping[str, str]) -> None:
        """Measure the service's time by a response that has just arrived."""
        # Called only after requests that may need reconciliation: parsing takes a twentieth of a request's time.
        date = http_date(headers.get("date", ""))
        if date is None:
            return
        offset = (datetime.now(UTC) - date).total_seconds()
        if abs(offset) > _LARGEST:
            return
        self._measured = date, now()
        # Once, and again only if the clock jumps. Else a payroll would log it for each payout.
        if self._may_warn and abs(offset) > _WORTH_A_WARNING and abs(offset - self._warned) > _WORTH_A_WARNING:
            self._warned = offset
            direction = "ahead of" if offset > 0 else "behind"
            logger.warning("this machine's clock is %.0f s %s the service's: set it", abs(offset), direction)


class StkPause:
    """The pause that STK_TEMP_BANNED or TRANSACTION_HEALTH_BLOCKED ordered. Only prompts respect it.

    It needs no lock: at worst, a race lets one more prompt reach the service, which refuses it.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._refusal: ThrottledError | None = None

    def begin(self, now: float, refusal: ThrottledError) -> None:
        """Start a pause of as many seconds as the refusal states, or else as the service documents."""
        default = _TEMP_BAN if isinstance(refusal, StkTempBannedError) else _HEALTH_BLOCK
        until = now + (default if refusal.retry_after is None else refusal.retry_after)
        # If two prompts are refused at the same time, the later answer may state the shorter pause.
        if until > self._until:
            self._until, self._refusal = until, refusal

    def refusal(self, now: float) -> ThrottledError | None:
        """Return the refusal with the seconds that remain, or None if there is no pause."""
        original = self._refusal
        if original is None or now >= self._until:
            return None
        again = copy(original)
        again.retry_after = self._until - now
        return again


class KeyState:
    def __init__(self) -> None:
        self.budget = RateBudget()
        self.stk_pause = StkPause()
        self.given_ids = RecentlySeen()  # of payments that the service accepted


_key_states: dict[str, KeyState] = {}


def key_state_for(account: Account) -> KeyState:
    """Return the state that all clients of this account in the process share. A hash names it, to keep no API key."""
    # No lock, which a forked child might inherit held: `setdefault` is atomic, so all threads get the same state.
    return _key_states.get(account.hash) or _key_states.setdefault(account.hash, KeyState())


class RecentlySeen:
    """Remembers ids: the last thousand or two, because what shows them may never end.

    That is ten full pages of the list. New transactions shift it between two reads, so that one may appear again on the
    next page, or a few pages later if more than a page of them arrived meanwhile.
    """

    def __init__(self) -> None:
        self._newer: set[str] = set()
        self._older: set[str] = set()

    def add(self, ids: Iterable[str]) -> set[str]:
        """Remember the ids. Return those that were not seen before."""
        new = set(ids) - self._newer - self._older
        self._newer |= new
        if len(self._newer) > _IDS_REMEMBERED:
            self._newer, self._older = set(), self._newer
        return new

    def __contains__(self, identity: str) -> bool:
        return identity in self._newer or identity in self._older
