"""`Client` and `AsyncClient`: options, wiring and closing. No logic.

A client checks its options when it is built. The code that sends is imported at its first use, so that building a
client takes no time, and a program that only collects does not load payouts. Annotations name types through the
package, which loads them when `typing.get_type_hints` asks for them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, cast

from typing_extensions import TypeVar

import momopay
from momopay._core.config import (
    SHARED_BUDGET,
    UNCHANGED,
    Account,
    Hooks,
    Limits,
    check_budget,
    check_transport,
    checked_headers,
    merged_headers,
)
from momopay._core.wiring import BackendT, ClassResource, ClientJournal, Once, UnloadedResource, load, once
from momopay._hints import missing_attribute
from momopay._redaction import clears_frames
from momopay.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from momopay._core.session import Session
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend
else:
    AsyncBackend = SyncBackend = Any

ModelT = TypeVar("ModelT", bound="BaseModel", default=Any)
TransportT = TypeVar("TransportT")


class BaseClient(Generic[BackendT, TransportT]):
    """The base class of both clients."""

    _is_async: ClassVar[bool]
    _hooks: ClassVar[Hooks] = Hooks()  # those of an integration, if a subclass sets them
    _owns_connections: bool = True
    _owns_journal: bool = True

    @clears_frames
    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        deadline: float = 90.0,
        max_attempts: int = 4,
        budget: momopay.RateBudget
        | momopay.FileRateBudget
        | momopay.RedisRateBudget
        | SHARED_BUDGET
        | None = SHARED_BUDGET,
        max_wait: float | None = None,
        journal: momopay.Journal | str | None = None,
        payout_keys: bool = False,
        transport: TransportT | None = None,
        proxy: str | None = None,
        verify: ssl.SSLContext | None = None,
        default_headers: Mapping[str, str] | None = None,
        app_info: str | None = None,
        on_event: Callable[[momopay.events.Event], object] | None = None,
    ) -> None:
        check_budget(budget)
        check_transport(transport, is_async=self._is_async)
        self._budget = budget
        self._limits = Limits(timeout=timeout, deadline=deadline, max_attempts=max_attempts, max_wait=max_wait)
        self._account = Account(api_key, base_url)
        if not isinstance(payout_keys, bool):  # as the text "false" is
            raise ConfigurationError("payout_keys must be True or False")
        self._payout_keys = payout_keys
        self._headers = checked_headers(default_headers, app_info, momopay.__version__)
        self._observer: Any = None if on_event is None else load("_core.events.Observer")(on_event)
        self._journal = ClientJournal.of(journal)
        arguments: tuple[object, ...] = (transport,)
        if proxy is not None or verify is not None:
            arguments = (None, load("_transport.connections.route_of")(proxy, verify, transport))
        path = "_transport.async_backend.AsyncBackend" if self._is_async else "_transport.sync_backend.SyncBackend"
        self._backend: Once[BackendT] = once(path, *arguments)
        self._poll_loops = once("_polling.wait.PollLoops")  # lets all waits on one key poll together

    @cached_property
    def _session(self) -> Session[BackendT]:
        session: Session[BackendT] = load("_core.session.Session")(
            self._backend.get(),
            self._account,
            self._budget,
            self._limits,
            self._headers,
            self._observer,
            None if self._journal is None else self._journal.get,
            self._hooks,
            payout_keys=self._payout_keys,
        )
        return session

    def _resource(self, path: str, *shared: Once[Any]) -> Any:
        def get() -> Any:  # imported and made at its first use
            loaded = vars(self).setdefault("_loaded", {})
            if path not in loaded:
                loaded[path] = load(f"resources.{path}")(self._session, *(each.get() for each in shared))
            return loaded[path]

        return UnloadedResource.unless_loaded(path, get, self) if self._is_async else get()

    @property
    def stk(self) -> momopay.types.Stk[BackendT]:
        """STK collections."""
        return cast("momopay.types.Stk[BackendT]", self._resource("stk.Stk"))

    @property
    def payouts(self) -> momopay.types.Payouts[BackendT]:
        """B2C payouts."""
        return cast("momopay.types.Payouts[BackendT]", self._resource("payouts.Payouts"))

    @property
    def transactions(self) -> momopay.types.Transactions[BackendT]:
        """Transactions: read, listed, waited for."""
        transactions = self._resource("transactions.Transactions", self._poll_loops)
        return cast("momopay.types.Transactions[BackendT]", transactions)

    @property
    def wallet(self) -> momopay.types.Wallet[BackendT]:
        """The service wallet."""
        return cast("momopay.types.Wallet[BackendT]", self._resource("wallet.Wallet"))

    @property
    def channels(self) -> momopay.types.Channels[BackendT]:
        """Payment channels."""
        return cast("momopay.types.Channels[BackendT]", self._resource("channels.Channels"))

    @property
    def base_url(self) -> str:
        """The service's address, without a trailing slash."""
        return self._account.base_url

    @property
    def timeout(self) -> float:
        """Seconds for one attempt."""
        return self._limits.timeout

    @property
    def deadline(self) -> float:
        """Seconds for one call, including retries and pauses."""
        return self._limits.deadline

    @property
    def max_attempts(self) -> int:
        """The most attempts in one call."""
        return self._limits.max_attempts

    @property
    def max_wait(self) -> float | None:
        """Seconds that a call may wait for a slot in the rate budget; None if until its deadline."""
        return self._limits.max_wait

    @property
    def payout_keys(self) -> bool:
        """Whether the service honours the ``Idempotency-Key`` of a payout, as the program says."""
        return self._payout_keys

    @property
    def journal(self) -> momopay.Journal | None:
        """The journal of the durable calls, which is opened now if it was given as a URL; None if none was given."""
        return None if self._journal is None else self._journal.get()

    @property
    def is_closed(self) -> bool:
        """Whether the connections were closed, by this client or by the one that it is a copy of."""
        backend = self._backend.made
        return backend is not None and backend.is_closed

    @clears_frames
    def with_options(
        self,
        *,
        timeout: float | UNCHANGED = UNCHANGED,
        deadline: float | UNCHANGED = UNCHANGED,
        max_attempts: int | UNCHANGED = UNCHANGED,
        max_wait: float | UNCHANGED | None = UNCHANGED,
        api_key: str | UNCHANGED = UNCHANGED,
        budget: momopay.RateBudget
        | momopay.FileRateBudget
        | momopay.RedisRateBudget
        | SHARED_BUDGET
        | UNCHANGED
        | None = UNCHANGED,
        journal: momopay.Journal | str | UNCHANGED | None = UNCHANGED,
        default_headers: Mapping[str, str] | UNCHANGED = UNCHANGED,
    ) -> Self:
        """Return a light copy with other options; it shares the connections and, for the same key, budget and waits.

        Args:
            timeout: Seconds for one attempt.
            deadline: Seconds for one call.
            max_attempts: The most attempts in one call.
            max_wait: Seconds that a call may wait for a slot in the rate budget; None if until its deadline.
            api_key: The key of another account at the same address. The copy keeps a `FileRateBudget` or a
                `RedisRateBudget`, which have slots for each key, and it keeps None. Otherwise it uses the budget that
                all clients of that key in the process share.
            budget: The rate budget.
            journal: A `Journal`, or its URL. The copy closes one that it opened itself. None: the copy has none.
            default_headers: Headers to add to those of this client; they replace those of the same name.

        Returns:
            The copy, with the same `on_event` and the attributes of a subclass. Closing it keeps the connections open.

        Raises:
            ConfigurationError: An option is out of range or unsafe.
        """
        limits = {"timeout": timeout, "deadline": deadline, "max_attempts": max_attempts, "max_wait": max_wait}
        given: dict[str, Any] = {name: value for name, value in limits.items() if value is not UNCHANGED}
        # Not the constructor: a subclass may have changed its arguments.
        copy = object.__new__(type(self))
        vars(copy).update((name, value) for name, value in vars(self).items() if name not in {"_session", "_loaded"})
        copy._limits = replace(self._limits, **given)
        # Closing a copy must not close what the original still uses.
        copy._owns_connections = False
        copy._owns_journal = journal is not UNCHANGED
        if journal is not UNCHANGED:
            copy._journal = None if journal is None else ClientJournal(journal)
        if api_key is not UNCHANGED and api_key != self._account.api_key:
            copy._account = Account(api_key or "", self._account.base_url)  # None would mean the environment's
            copy._poll_loops = once("_polling.wait.PollLoops")
            if hasattr(self._budget, "reserve"):  # a `RateBudget` is for one key; the others keep keys apart
                copy._budget = SHARED_BUDGET
        if budget is not UNCHANGED:
            check_budget(budget)
            copy._budget = budget
        if default_headers is not UNCHANGED:
            copy._headers = merged_headers(self._headers, default_headers)
        return copy

    async def _close(self) -> None:
        try:
            if self._owns_connections:
                await self._session.close()
        finally:
            if self._owns_journal and self._journal is not None:
                self._journal.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled or copied by the module `copy`."""
        reason = f"a {type(self).__name__} cannot be pickled or copied, because it holds open connections and the key"
        raise TypeError(f"{reason}; make one in each process, or call with_options() for a copy that shares them")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._account.base_url!r})"


for _name in ("stk", "payouts", "transactions", "wallet", "channels"):
    # Not by a decorator, because editors, type checkers and documentation know only `property`.
    setattr(BaseClient, _name, ClassResource(vars(BaseClient)[_name].fget))
setattr(BaseClient, "__getattr__", missing_attribute)  # noqa: B010  as above; only for names that do not exist


class Client(BaseClient[SyncBackend, "momopay.types.SyncTransport"]):
    """The blocking client. Safe to share among threads; make one and keep it.

    Args:
        api_key: ``pk_live_...`` or ``pk_test_...``, or with other letters for ``pk``; else the environment's
            MOMOPAY_API_KEY.
        base_url: The service's address, ending in ``/v1``; else the environment's MOMOPAY_BASE_URL.
        timeout: Seconds for one attempt as a whole.
        deadline: Seconds for one call, including retries and pauses.
        max_attempts: The most attempts in one call.
        budget: The rate budget; by default one shared by all clients of this key in the process. A `FileRateBudget`
            shares it with other processes of the machine, a `RedisRateBudget` with other machines. None: no limit.
        max_wait: Seconds that a call may wait for a slot in the rate budget. If it would wait longer, it raises
            `BudgetExhaustedError` at once. For code that a person waits for; by default a call waits until its
            deadline. It does not bound the polling of waits and sweeps, nor the pauses of ``payouts.pay_all``.
        journal: A `Journal`, or its URL such as ``"sqlite:///payments.db"``, for all durable calls; else, if it is set,
            the environment's MOMOPAY_JOURNAL. A URL is opened at the first use, and closed with the client.
        payout_keys: Whether the service honours the ``Idempotency-Key`` of a payout: True says that a request which
            repeats a key within 15 minutes never pays again. Then an unresolved payout is sent again, after a search
            that does not find it. If it is not true, that may pay twice: ``momopay probe --spend`` finds out.
        transport: A transport of httpx or httpx2 to send through instead of the SDK's own connections. `timeout` then
            bounds each of its network operations, and the body.
        proxy: The URL of an HTTP proxy, ``http://``, with user and password if it needs them; for one under TLS, pass
            a `transport`. The environment's proxies are never used.
        verify: An SSL context with the CA certificates to trust, and any client certificate; by default httpx's.
        default_headers: Headers to add to every request, such as those that a gateway requires. Not Authorization,
            Content-Type, Content-Length, Host, Idempotency-Key, nor those that decide where a request ends.
        app_info: Your program and its version, such as ``"shop/1.2"``, added to the User-Agent.
        on_event: Called with each event of `momopay.events` as it happens, in the thread or task of the call, so it
            must return quickly and must not block an event loop. Its exceptions are logged and change nothing.

    Raises:
        ConfigurationError: No key or address, a key of another form, an address that does not end in ``/v1``, a live
            key on loopback, a journal in another database, an async `on_event`, or an option that is out of range.
    """

    _is_async = False

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        cast_to: type[ModelT] | None = None,
    ) -> ModelT:
        """Send a request to an endpoint that this SDK does not know, and return the ``data`` of its answer.

        It uses the client's key, rate budget, timeouts, errors and events. It is not a way to pay: it writes no
        journal, so nothing keeps a payment from being made twice. Use the calls of ``stk`` and ``payouts``.

        Args:
            method: GET, POST, PUT, PATCH or DELETE. A GET is retried as needed. Anything else is retried only if it was
                not sent, or was refused with 429. What the SDK has a call for, reads aside, is refused.
            path: The path below ``base_url``, such as ``"/wallets/b2c/balance"``. Ids in it must be percent-encoded.
            json: The body: what JSON can hold, Decimals included; none by default.
            params: The query, as a mapping of names to texts, whole numbers or Decimals.
            idempotency_key: The ``Idempotency-Key`` header: 1 to 120 visible ASCII characters.
            cast_to: A pydantic model to parse the data into.

        Returns:
            The data: plain JSON with Decimals, or an instance of ``cast_to``.

        Raises:
            RequestValidationError: An argument is invalid, the path leaves ``base_url``, or the SDK has a call for it,
                which the error names. Nothing was sent.
            OutcomeUnknownError: It is not a GET and may have executed. You may call again with the same
                ``idempotency_key``, if you know that this endpoint honours it.
            APIError: The service refused.
        """
        try:
            result: ModelT = self._resource("client.Client").request(
                method, path, json, params, idempotency_key, cast_to
            )
            return result
        finally:
            del json, params  # a crash reporter shows the locals of a frame that raises

    def close(self) -> None:
        """Close the connections, and the journal if the client opened it. The client cannot be used afterwards."""
        load("_core.operation.run_sync")(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncClient(BaseClient[AsyncBackend, "momopay.types.AsyncTransport"]):
    """The client for asyncio and trio. It belongs to the event loop that uses it first; make one for each loop.

    Takes what `Client` takes. `transport` is an async one, and `on_event` a plain function: it is not awaited.

    Raises:
        ConfigurationError: As for `Client`.
    """

    _is_async = True

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        cast_to: type[ModelT] | None = None,
    ) -> Coroutine[Any, Any, ModelT]:
        """Send a request to an endpoint that this SDK does not know: see `Client.request`. Not a way to pay."""
        result: Coroutine[Any, Any, ModelT] = self._resource("client.Client").request(
            method, path, json, params, idempotency_key, cast_to
        )
        return result

    async def aclose(self) -> None:
        """Close the connections, and the journal if the client opened it. The client cannot be used afterwards."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()
