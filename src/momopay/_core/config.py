"""The options of a client, checked when it is built, and checks of handlers. Times are in seconds."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import re
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncContextDecorator, ContextDecorator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeGuard
from urllib.parse import urlsplit

from typing_extensions import Sentinel

from momopay._ratelimit.budget import BaseBudget
from momopay._redaction import key_mode, key_problem, redact
from momopay.errors import ConfigurationError
from momopay.money import is_number, is_whole
from momopay.urls import check_base_url, is_loopback

logger: logging.Logger = logging.getLogger("momopay")

LOOPBACK: Final = "loopback"
"""The host of a `KeyIdentity` for each loopback address."""

SHARED_BUDGET = Sentinel("SHARED_BUDGET")
"""The default of ``budget=``: one `RateBudget` for each key and address in the process."""

UNCHANGED = Sentinel("UNCHANGED")
"""The default of each option of ``with_options``: the copy keeps the original's value."""

_MAX_SECONDS: Final = 1_000_000  # sockets and locks refuse much longer times, but only in the middle of a call

# Headers that the SDK sends itself, and those that would change where a request ends.
_RESERVED: Final = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Printable ASCII without spaces at the ends. A line break would start another header.
_HEADER_VALUE: Final = re.compile(r"(?:[!-~]+(?:[ \t]+[!-~]+)*)?")


@dataclass(frozen=True)
class Limits:
    """The limits on a call's time and attempts. Raises ConfigurationError if one is out of range."""

    timeout: float
    deadline: float
    max_attempts: int
    max_wait: float | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("deadline", self.deadline)):
            if not is_number(seconds) or not 0 < seconds <= _MAX_SECONDS:
                raise ConfigurationError(f"{name} must be a finite number of seconds above 0, at most {_MAX_SECONDS}")
        longest = self.max_wait
        if longest is not None and (not is_number(longest) or not 0 <= longest <= _MAX_SECONDS):
            raise ConfigurationError(f"max_wait must be None or a number of seconds from 0 to {_MAX_SECONDS}")
        if not is_whole(self.max_attempts) or self.max_attempts < 1:
            raise ConfigurationError("max_attempts must be a whole number, at least 1")


@dataclass(frozen=True)
class KeyIdentity:
    """An API key and the host of the service, as a journal remembers them."""

    mode: Literal["live", "test"]  # whether the key moves real money
    # In lower case and without port. Each loopback host is "loopback", as a sandbox may change its port and its name.
    host: str
    key: str  # a hash of the API key


class Account:
    """An API key and the service's address. Raises ConfigurationError if one of them is missing or unsafe."""

    def __init__(self, api_key: str | None, base_url: str | None) -> None:
        self.api_key: str = _given_or_set("api_key", api_key, "a pk_live_ or pk_test_ key")
        try:
            url = _given_or_set("base_url", base_url, "such as https://api.example/v1")
            self.base_url: str = check_base_url(url)
        except ValueError as error:
            raise ConfigurationError(f"base_url {error}") from error
        self.on_loopback: bool = is_loopback(self.base_url)
        mode = key_mode(self.api_key)
        if mode is None:
            raise ConfigurationError(f"api_key {key_problem(self.api_key)}")
        # The pytest plugin sets this variable for the whole test run.
        if mode == "live" and os.environ.get("MOMOPAY_TEST_RUN"):
            raise ConfigurationError("a live key in a test run moves real money; use a pk_test_ key and the sandbox")
        if mode == "live" and self.on_loopback:
            raise ConfigurationError("a live key must not be sent to loopback; use a pk_test_ key with the sandbox")
        # Identifies the account without revealing the key.
        host = LOOPBACK if self.on_loopback else (urlsplit(self.base_url).hostname or "").rstrip(".")
        self.identity: KeyIdentity = KeyIdentity(mode, host, hashlib.sha256(self.api_key.encode()).hexdigest())
        self.hash: str = hashlib.sha256(f"{self.base_url} {self.api_key}".encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Account(base_url={self.base_url!r})"


@dataclass(frozen=True)
class Hooks:
    """What an integration adds to the payments of its clients."""

    make_callback_url: Callable[[str], str | None] | None = None  # for a payment's reference
    before_payment: Callable[[str], None] | None = None
    """Raises if the journal cannot be written, before the payment with a reference is sent."""
    before_release: Callable[[str], None] | None = None
    """The same, before the payment with a reference is released."""


class SyncTransport(Protocol):
    """A blocking transport: of httpx, of httpx2, or any object that does what theirs do."""

    def handle_request(self, request: Any, /) -> Any:
        """Send a request of httpx, or of httpx2 if the class is derived from one there; return the response."""

    def close(self) -> None:
        """Close the connections."""


class AsyncTransport(Protocol):
    """An async transport: of httpx, of httpx2, or any object that does what theirs do."""

    async def handle_async_request(self, request: Any, /) -> Any:
        """Send a request of httpx, or of httpx2 if the class is derived from one there; return the response."""

    async def aclose(self) -> None:
        """Close the connections."""


def check_budget(budget: object) -> None:
    if not (budget is None or budget is SHARED_BUDGET or isinstance(budget, BaseBudget)):
        raise ConfigurationError("budget must be a RateBudget, a FileRateBudget, a RedisRateBudget or None")


def check_transport(transport: object, *, is_async: bool) -> None:
    """Raise ConfigurationError if this is no transport, or a sync one for an async client or vice versa."""
    method, example = "handle_request", "httpx.HTTPTransport()"
    if is_async:
        method, example = "handle_async_request", "httpx.AsyncHTTPTransport()"
    if not (transport is None or callable(getattr(transport, method, None))):
        raise ConfigurationError(f"transport must be one of httpx or httpx2 with {method}, such as {example}")


def checked_headers(default_headers: object, app_info: object, version: str) -> dict[str, str]:
    """Return the headers that these options add to every request. Raise ConfigurationError if invalid."""
    headers = {"User-Agent": f"momopay/{version}"}
    if app_info is not None:
        if not isinstance(app_info, str) or not app_info or not _HEADER_VALUE.fullmatch(app_info):
            raise ConfigurationError('app_info must be printable ASCII without spaces at its ends, such as "shop/1.2"')
        headers["User-Agent"] += f" {app_info}"
    return headers if default_headers is None else merged_headers(headers, default_headers)


def merged_headers(headers: Mapping[str, str], more: object) -> dict[str, str]:
    """Return `headers` updated with `more`, ignoring case. Raise ConfigurationError if `more` is invalid."""
    if not isinstance(more, Mapping):
        raise ConfigurationError('default_headers must be a mapping of names to values, such as {"X-Shop": "3"}')
    new = dict[str, str]()
    given: Mapping[object, object] = more  # pyright: ignore[reportUnknownVariableType]
    for name, value in given.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError('default_headers has a name that is not a header\'s; "X-Shop" is one')
        if name.lower() in _RESERVED:
            raise ConfigurationError(f"default_headers must not name {name}, which the SDK or HTTP itself decides")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):  # without the value: it may be a secret
            raise ConfigurationError(f"default_headers: {name} must be printable ASCII without spaces at its ends")
        new[name] = value
    names = {name.lower() for name in new}
    if len(names) < len(new):
        raise ConfigurationError("default_headers has the same name twice")
    return {name: value for name, value in headers.items() if name.lower() not in names} | new


def _given_or_set(name: str, value: str | None, shape: str) -> str:
    variable = f"MOMOPAY_{name.upper()}"
    found = os.environ.get(variable) if value is None else value
    if not isinstance(found, str) or not found:
        raise ConfigurationError(f"no {name}: pass {name}=..., {shape}, or set {variable}")
    return found


def is_async(handler: object) -> TypeGuard[Callable[..., Coroutine[Any, Any, object]]]:
    """Return whether a handler must be awaited."""
    return any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__)))


def check_handler(handler: object) -> None:
    """Raise ConfigurationError if a handler is no function, or a generator: a call of one does not run its body."""
    if not callable(handler):
        raise ConfigurationError("handler must be a function that takes a payment")
    parts = (handler, type(handler).__call__)
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in parts):
        raise ConfigurationError("handler must not be a generator: its body would never run. Remove the yield")


def raise_if_not_run(result: object) -> None:
    """Raise TypeError if a handler returned a generator or something to await, whose body has not run."""
    # An iterator such as `map`, or what `contextlib.contextmanager` makes, has not run either.
    is_context = isinstance(result, ContextDecorator | AsyncContextDecorator)
    if isinstance(result, Iterator | AsyncIterator) or is_context:
        raise TypeError("the handler returned a generator, so its body did not run; remove the yield")
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that it was never awaited
        raise TypeError("the handler returned something to await; make it an async def")


def trace_of(error: BaseException) -> str:
    """Return the traceback of a handler's exception, redacted."""
    # As text, because a log handler that gets the exception itself may show the locals of its frames.
    return redact("".join(traceback.format_exception(error)))


def configure_logging(level: str) -> None:
    """Log to stderr at the level that MOMOPAY_LOG names, ``debug`` or ``info``."""
    levels = {"debug": logging.DEBUG, "info": logging.INFO}
    if level.lower() not in levels:
        logger.warning("MOMOPAY_LOG must be debug or info; it is ignored")
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    # Prints nothing once the program has configured handlers of its own, or each line would appear twice.
    handler.addFilter(lambda _record: {*logger.handlers, *logging.getLogger().handlers} == {handler})
    logger.addHandler(handler)
    logger.setLevel(levels[level.lower()])
