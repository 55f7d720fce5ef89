"""How one API key stands with the service, so far as this process knows: rate budget and STK pause."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from momopay._budget import RateBudget
from momopay.errors import StkTempBannedError, ThrottledError

_HOUR = 3600.0
_HALF_HOUR = 1800.0


class StkPause:
    """The pause that STK_TEMP_BANNED or TRANSACTION_HEALTH_BLOCKED ordered; only prompts wait for it."""

    def __init__(self) -> None:
        self._until = 0.0
        self._refusal: ThrottledError | None = None

    def begin(self, now: float, refusal: ThrottledError) -> None:
        """Hold prompts back for as long as the refusal says, else for as long as SPEC.md says."""
        stated = _HOUR if isinstance(refusal, StkTempBannedError) else _HALF_HOUR
        until = now + (stated if refusal.retry_after is None else refusal.retry_after)
        if until > self._until:  # of two prompts that were under way, the second may be told of less
            self._until, self._refusal = until, refusal

    def refusal(self, now: float) -> ThrottledError | None:
        """Give the same error again while the pause lasts, with what is left of it."""
        if self._refusal is None or now >= self._until:
            return None
        said = self._refusal
        answer: dict[str, Any] = {
            "code": said.code,
            "details": said.details,
            "status_code": said.status_code,
            "request_id": said.request_id,
        }
        return type(said)(said.message, retry_after=self._until - now, **answer)


class Standing:
    """What all clients of one key in this process share."""

    def __init__(self) -> None:
        self.budget = RateBudget()
        self.stk_pause = StkPause()


_standings: dict[str, Standing] = {}
_lock = threading.Lock()


def standing_of(base_url: str, api_key: str) -> Standing:
    """Give the one standing of this key at this address; it is kept under a hash, not under the key."""
    name = hashlib.sha256(f"{base_url} {api_key}".encode()).hexdigest()
    with _lock:
        return _standings.setdefault(name, Standing())
