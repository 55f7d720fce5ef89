"""The options of a client, checked when the client is built. Times are in seconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from typing_extensions import Sentinel

from momopay._numbers import is_number, is_whole
from momopay._ratelimit.limiter import BaseBudget
from momopay.errors import ConfigurationError
from momopay.urls import check_base_url, is_loopback

__all__ = ["SHARED_BUDGET", "UNCHANGED"]

_ENVIRONMENT: Final = {"api_key": "MOMOPAY_API_KEY", "base_url": "MOMOPAY_BASE_URL"}

SHARED_BUDGET = Sentinel("SHARED_BUDGET")
"""The default of ``budget=``: one `RateBudget` for each key and address in the process."""

UNCHANGED = Sentinel("UNCHANGED")
"""The default of each option of ``with_options``: the copy has the original's."""

# Sockets and locks refuse much longer times, and they do so too late to tell that nothing was sent.
_MAX_SECONDS: Final = 1_000_000


@dataclass(frozen=True)
class Limits:
    """How long a call may take, and how many attempts it may make.

    Raises:
        ConfigurationError: An option is out of range.
    """

    timeout: float
    deadline: float
    max_attempts: int

    def __post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("deadline", self.deadline)):
            if not is_number(seconds) or not 0 < seconds <= _MAX_SECONDS:
                raise ConfigurationError(f"{name} must be a finite number of seconds above 0, at most {_MAX_SECONDS}")
        if not is_whole(self.max_attempts) or self.max_attempts < 1:
            raise ConfigurationError("max_attempts must be a whole number, at least 1")


class Account:
    """An API key and the address of the service that it belongs to.

    Raises:
        ConfigurationError: One of them is missing or unsafe.
    """

    def __init__(self, api_key: str | None, base_url: str | None) -> None:
        self.api_key: str = _from_environment("api_key", api_key)
        try:
            self.base_url: str = check_base_url(_from_environment("base_url", base_url))
        except ValueError as error:
            raise ConfigurationError(f"base_url {error}") from error
        self.on_loopback: bool = is_loopback(self.base_url)
        # The key becomes the user name of Basic authentication: a colon would end it, and a line break would let the
        # key add headers of its own.
        if not self.api_key.isascii() or any(
            not "!" <= character <= "~" or character == ":" for character in self.api_key
        ):
            raise ConfigurationError("api_key must be visible ASCII without spaces or colons")
        # The pytest plugin sets this variable for the whole run.
        if self.api_key.startswith("pk_live_") and os.environ.get("MOMOPAY_TEST_RUN"):
            raise ConfigurationError("a live key in a test run moves real money; use a pk_test_ key and the sandbox")
        if self.on_loopback and self.api_key.startswith("pk_live_"):
            raise ConfigurationError("a live key must not be sent to loopback; use a pk_test_ key with the sandbox")

    def with_key(self, api_key: str) -> Account:
        """Return another account at the same address."""
        if not isinstance(api_key, str):  # None would mean the environment's
            raise ConfigurationError("api_key must be text")
        return Account(api_key, self.base_url)

    def __repr__(self) -> str:
        return f"Account(base_url={self.base_url!r})"


def check_collaborators(budget: object, transport: object, send_method: str) -> None:
    """Raise ConfigurationError if one of these is of another kind, or the transport is the other client's."""
    if not (budget is None or budget is SHARED_BUDGET or isinstance(budget, BaseBudget)):
        raise ConfigurationError("budget must be a RateBudget, a FileRateBudget, a RedisRateBudget or None")
    # By its method and not its class: importing that would import httpx, which building a client avoids.
    if not (transport is None or _has_method(transport, send_method)):
        raise ConfigurationError(f"transport must be an httpx transport with {send_method}, which this client calls")


def _has_method(thing: object, name: str) -> bool:
    return callable(getattr(thing, name, None))


def _from_environment(name: str, value: str | None) -> str:
    found = os.environ.get(_ENVIRONMENT[name]) if value is None else value
    if not isinstance(found, str) or not found:
        raise ConfigurationError(f"no {name}: pass {name}=..., or set {_ENVIRONMENT[name]}")
    return found
