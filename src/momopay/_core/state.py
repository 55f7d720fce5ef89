"""What a client knows of the service's clock, and what all clients of a key know of its payments."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Final

from momopay._core.config import Account
from momopay._core.response import http_date
from momopay._ratelimit.budget import RateBudget
from momopay._transport.attempt import now
from momopay.errors import StkTempBannedError, ThrottledError

logger: logging.Logger = logging.getLogger("momopay")

_WORTH_A_WARNING: Final = 60.0  # seconds; a smaller offset may be latency, and the header's resolution of one second
_LARGEST: Final = 10 * 365 * 86_400.0  # seconds; a larger offset is a broken header, which must not mislead a search
_TEMP_BAN: Final = 3600.0  # seconds, as the service documents it
_HEALTH_BLOCK: Final = 1800.0  # seconds, as the service documents it
_IDS_REMEMBERED: Final = 1000  # ids, and as many of the time before


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
        self.has_warned_of_skipped = False  # of ends that are too old for a handler


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
