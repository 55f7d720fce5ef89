"""What all clients of one API key in this process share: the rate budget and the STK pause."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Final

from momopay._core.config import Account
from momopay._fork import renew_in_child
from momopay._ratelimit.budget import RateBudget
from momopay.errors import StkTempBannedError, ThrottledError

_TEMP_BAN: Final = 3600.0
_HEALTH_BLOCK: Final = 1800.0


class StkPause:
    """The pause that STK_TEMP_BANNED or TRANSACTION_HEALTH_BLOCKED ordered; only prompts respect it.

    Threads share it without a lock: a race can at worst let one more prompt reach the service, which refuses it.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._refusal: ThrottledError | None = None

    def begin(self, now: float, refusal: ThrottledError) -> None:
        """Hold prompts back for the seconds that the refusal states, else for those that the service documents."""
        default = _TEMP_BAN if isinstance(refusal, StkTempBannedError) else _HEALTH_BLOCK
        until = now + (default if refusal.retry_after is None else refusal.retry_after)
        # Of two refused prompts that were under way together, the one that answers last may name the shorter pause.
        if until > self._until:
            self._until, self._refusal = until, refusal

    def refusal(self, now: float) -> ThrottledError | None:
        """Return the error again while the pause lasts, with the time that is left of it."""
        original = self._refusal
        if original is None or now >= self._until:
            return None
        response: dict[str, Any] = {
            "code": original.code,
            "details": original.details,
            "status_code": original.status_code,
            "request_id": original.request_id,
        }
        return type(original)(original.message, retry_after=self._until - now, **response)


class KeyState:
    """The state of one key at one address."""

    def __init__(self) -> None:
        self.budget = RateBudget()
        self.stk_pause = StkPause()


class _KeyStates:
    """Those of this process, filed under hashes so that no key is kept here."""

    def __init__(self) -> None:
        self._states: dict[str, KeyState] = {}
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def of(self, account: Account) -> KeyState:
        with self._lock:
            return self._states.setdefault(hash_of(account), KeyState())


_states = _KeyStates()


def hash_of(account: Account) -> str:
    """Return a name for this key at this address that does not show the key."""
    return hashlib.sha256(f"{account.base_url} {account.api_key}".encode()).hexdigest()


def key_state_for(account: Account) -> KeyState:
    """Return the process's one state of this account."""
    return _states.of(account)
