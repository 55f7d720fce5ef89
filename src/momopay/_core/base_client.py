"""What `Client` and `AsyncClient` have in common: wiring, options that can be read, and copies.

What sends is imported and wired at the first use. Types that would load it are named through the package, which loads
a name when it is asked for, so that `typing.get_type_hints` finds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self

import momopay
from momopay._core.backend import BackendT
from momopay._core.config import SHARED_BUDGET, UNCHANGED, Account, Limits, check_collaborators
from momopay._redaction import clears_frames

if TYPE_CHECKING:
    from momopay._core.session import Session


def load(path: str) -> Any:
    """Return what a module of this package defines: the boundary behind which everything that sends is imported."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"momopay.{module}"), name)


class Connections(Generic[BackendT]):
    """The connections that a client and its copies share. They are made at the first use, by the first thread."""

    def __init__(
        self,
        backend_class: str,
        transport: object,
        proxy: object,
        verify: object,
    ) -> None:
        self._backend_class = backend_class
        self._arguments: tuple[object, ...] = (transport,)
        if proxy is not None or verify is not None:
            self._arguments = (None, load("_transport.route.route_of")(proxy, verify, transport))
        self._lock = threading.Lock()
        self._backend: Any = None

    def backend(self) -> BackendT:
        """Return the connections."""
        with self._lock:  # two threads may make the first call
            if self._backend is None:
                self._backend = load(self._backend_class)(*self._arguments)
            backend: BackendT = self._backend
            return backend

    @property
    def is_closed(self) -> bool:
        return self._backend is not None and self._backend.is_closed


class Waits:
    """What lets all waits on one key poll together. A client shares it with its copies for the same key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coordinator: object = None

    def coordinator(self) -> object:
        with self._lock:
            self._coordinator = self._coordinator or load("_polling.coordinator.WaitCoordinator")()
            return self._coordinator


class NoSession:
    """In the place of a session, for operations of a class, which can be looked at and not called."""

    def __init__(self, *, is_async: bool) -> None:
        self.backend = SimpleNamespace(is_async=is_async)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError("make a client first: operations belong to it, and not to its class")


class ClassResource(property):
    """A property that its class has, too: `create_autospec(Client)` looks there for the operations."""

    def __get__(self, client: Any, kind: Any = None, /) -> Any:
        if client is None:  # a client that has operations with their signatures, and can make no call
            client = object.__new__(kind)
            client._session = NoSession(is_async=hasattr(kind, "aclose"))
            client._waits = Waits()
        return super().__get__(client, kind)


class BaseClient(Generic[BackendT]):
    """What both clients have in common."""

    _connections: Connections[BackendT]
    _waits: Waits
    _account: Account
    _budget: momopay.RateBudget | momopay.FileRateBudget | momopay.RedisRateBudget | SHARED_BUDGET | None
    _limits: Limits
    _headers: dict[str, str] | None = None  # that the user adds to every request
    _observer: Any = None  # an Observer, which a client without `on_event` does not load
    _owns_connections: bool = True

    def _configure(
        self,
        account: Account,
        limits: Limits,
        budget: momopay.RateBudget | momopay.FileRateBudget | momopay.RedisRateBudget | SHARED_BUDGET | None,
        connections: Connections[BackendT],
        default_headers: Mapping[str, str] | None,
        app_info: str | None,
        on_event: object,
    ) -> None:
        self._account = account
        self._limits = limits
        self._budget = budget
        self._connections = connections
        self._waits = Waits()
        if default_headers is not None or app_info is not None:
            self._headers = load("_core.headers.checked_headers")(default_headers, app_info)
        if on_event is not None:
            self._observer = load("_core.events.Observer")(on_event)

    @cached_property
    def _session(self) -> Session[BackendT]:
        session: Session[BackendT] = load("_core.session.open_session")(
            self._connections.backend(), self._account, self._budget, self._limits, self._headers, self._observer
        )
        return session

    @cached_property
    def _loaded(self) -> dict[str, Any]:
        return {}

    def _resource(self, path: str, *shared: Callable[[], object]) -> Any:
        """Return a group of operations. It is imported at its first use, and made once for each client."""
        if path not in self._loaded:
            self._loaded[path] = load(f"resources.{path}")(self._session, *(make() for make in shared))
        return self._loaded[path]

    @property
    def stk(self) -> momopay.Stk[BackendT]:
        """STK collections."""
        stk: momopay.Stk[BackendT] = self._resource("stk.Stk")
        return stk

    @property
    def payouts(self) -> momopay.Payouts[BackendT]:
        """B2C payouts."""
        payouts: momopay.Payouts[BackendT] = self._resource("payouts.Payouts")
        return payouts

    @property
    def transactions(self) -> momopay.Transactions[BackendT]:
        """Transactions: read, listed, waited for."""
        # The method and not its result, which takes a lock: every call passes through here.
        transactions: momopay.Transactions[BackendT] = self._resource(
            "transactions.Transactions", self._waits.coordinator
        )
        return transactions

    @property
    def wallet(self) -> momopay.Wallet[BackendT]:
        """The service wallet."""
        wallet: momopay.Wallet[BackendT] = self._resource("wallet.Wallet")
        return wallet

    @property
    def channels(self) -> momopay.Channels[BackendT]:
        """Payment channels."""
        channels: momopay.Channels[BackendT] = self._resource("channels.Channels")
        return channels

    @property
    def base_url(self) -> str:
        """The service's address, without a slash at its end."""
        return self._account.base_url

    @property
    def timeout(self) -> float:
        """Seconds for one attempt."""
        return self._limits.timeout

    @property
    def deadline(self) -> float:
        """Seconds for one call, repeats and pauses included."""
        return self._limits.deadline

    @property
    def max_attempts(self) -> int:
        """Attempts in one call."""
        return self._limits.max_attempts

    @property
    def is_closed(self) -> bool:
        """Whether the connections were closed, by this client or the one that it is a copy of."""
        return self._connections.is_closed

    @clears_frames
    def with_options(
        self,
        *,
        timeout: float | UNCHANGED = UNCHANGED,
        deadline: float | UNCHANGED = UNCHANGED,
        max_attempts: int | UNCHANGED = UNCHANGED,
        api_key: str | UNCHANGED = UNCHANGED,
        budget: momopay.RateBudget
        | momopay.FileRateBudget
        | momopay.RedisRateBudget
        | SHARED_BUDGET
        | UNCHANGED
        | None = UNCHANGED,
        default_headers: Mapping[str, str] | UNCHANGED = UNCHANGED,
    ) -> Self:
        """Return a light copy with other options; it shares the connections and, for the same key, budget and waits.

        Args:
            timeout: Seconds for one attempt.
            deadline: Seconds for one call.
            max_attempts: Attempts in one call.
            api_key: The key of another account at the same address. The copy has that key's own rate budget: a
                `FileRateBudget` or `RedisRateBudget` of this client, which keep keys apart; None if this client has
                none; else the one that all clients of that key in the process share.
            budget: The rate budget.
            default_headers: Headers to add to those of this client; they replace those of the same name.

        Returns:
            The copy, with the same `on_event`, and with everything else that a subclass keeps in its attributes.
            Closing it closes nothing; the original owns the connections.

        Raises:
            ConfigurationError: An option is out of range or unsafe.
        """
        limits = self._limits
        # Not the constructor: a subclass may have changed its arguments.
        copy = object.__new__(type(self))
        vars(copy).update((name, value) for name, value in vars(self).items() if name not in {"_session", "_loaded"})
        copy._limits = Limits(
            timeout=limits.timeout if timeout is UNCHANGED else timeout,
            deadline=limits.deadline if deadline is UNCHANGED else deadline,
            max_attempts=limits.max_attempts if max_attempts is UNCHANGED else max_attempts,
        )
        copy._owns_connections = False  # closing a copy must not close what the original still uses
        if api_key is not UNCHANGED and api_key != self._account.api_key:
            copy._account = self._account.with_key(api_key)
            copy._waits = Waits()
            if hasattr(self._budget, "reserve"):  # this budget is one key's; the others tell keys apart
                copy._budget = SHARED_BUDGET
        if budget is not UNCHANGED:
            check_collaborators(budget, None, "")
            copy._budget = budget
        if default_headers is not UNCHANGED:
            copy._headers = load("_core.headers.merged")(self._headers or {}, default_headers)
        return copy

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled, and to be copied by the module `copy`."""
        name = type(self).__name__
        reason = f"a {name} cannot be pickled or copied, because it holds open connections and the key"
        raise TypeError(f"{reason}; make one in each process, or call with_options() for a copy that shares them")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._account.base_url!r})"


for _name in ("stk", "payouts", "transactions", "wallet", "channels"):
    # Here and not by a decorator: editors, type checkers and documentation know `property`.
    setattr(BaseClient, _name, ClassResource(vars(BaseClient)[_name].fget))
