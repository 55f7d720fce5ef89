"""What a client is told when it is made: checked at once, used at the first call. Times are in seconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from typing_extensions import Sentinel

from momopay._numbers import is_number, is_whole
from momopay.errors import ConfigurationError
from momopay.urls import check_base_url, is_loopback

_ENVIRONMENT: Final = {"api_key": "MOMOPAY_API_KEY", "base_url": "MOMOPAY_BASE_URL"}

SHARED = Sentinel("SHARED")
"""The default budget: one for each key and address in the process."""

_LONGEST: Final = 1_000_000
"""Seconds; sockets and locks refuse what is much longer, and by then it is too late to say that nothing was sent."""


@dataclass(frozen=True)
class Limits:
    """How long and how often.

    Raises:
        ConfigurationError: A senseless option.
    """

    timeout: float
    deadline: float
    max_attempts: int

    def __post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("deadline", self.deadline)):
            if not is_number(seconds) or not 0 < seconds <= _LONGEST:
                raise ConfigurationError(f"{name} must be a finite number of seconds above 0, at most {_LONGEST}")
        if not is_whole(self.max_attempts) or self.max_attempts < 1:
            raise ConfigurationError("max_attempts must be a whole number, at least 1")


class Account:
    """Who calls, and where."""

    def __init__(self, api_key: str | None, base_url: str | None) -> None:
        self.api_key: str = _given("api_key", api_key)
        self.base_url: str = check_base_url(_given("base_url", base_url))
        self.on_loopback: bool = is_loopback(self.base_url)
        if not self.api_key.isascii() or any(
            not "!" <= character <= "~" or character == ":" for character in self.api_key
        ):
            raise ConfigurationError("api_key must be visible ASCII without spaces or colons")
        if self.api_key.startswith("pk_live_") and os.environ.get("MOMOPAY_TEST_RUN"):
            raise ConfigurationError("a live key in a test run moves real money; use a pk_test_ key and the sandbox")
        if self.on_loopback and self.api_key.startswith("pk_live_"):
            raise ConfigurationError("a live key does not go to loopback; use a pk_test_ key with the sandbox")

    def __repr__(self) -> str:
        return f"Account(base_url={self.base_url!r})"


def check_parts(budget: object, transport: object, sends: str) -> None:
    """Check what a client is to work with.

    Raises:
        ConfigurationError: It is something else, or a transport of the other client.
    """
    if not (budget is None or budget is SHARED or _can(budget, "reserve") or _can(budget, "slots")):
        raise ConfigurationError("budget must be a RateBudget, a RedisRateBudget or None")
    if not (transport is None or _can(transport, sends)):
        raise ConfigurationError(f"transport must be an httpx transport with {sends}, which this client calls")


def _can(thing: object, method: str) -> bool:
    return callable(getattr(thing, method, None))


def _given(name: str, value: str | None) -> str:
    found = os.environ.get(_ENVIRONMENT[name]) if value is None else value
    if not isinstance(found, str) or not found:
        raise ConfigurationError(f"no {name}: pass {name}=..., or set {_ENVIRONMENT[name]}")
    return found
