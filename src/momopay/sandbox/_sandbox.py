"""The sandbox as Python sees it: a server on a thread of its own, and handles on what happens in it."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from starlette.types import Scope

from momopay.sandbox import _lifecycle
from momopay.sandbox._accounts import Account
from momopay.sandbox._app import build
from momopay.sandbox._clock import Clock
from momopay.sandbox._control import add_control_routes
from momopay.sandbox._deliveries import CallbackRecord
from momopay.sandbox._engine import Engine
from momopay.sandbox._fault_middleware import PREFIX, Gate
from momopay.sandbox._faults import Fault
from momopay.sandbox._health import Health
from momopay.sandbox._requests import ReceivedRequest
from momopay.sandbox._server import LOOPBACK, Server, listen
from momopay.sandbox._state import World
from momopay.sandbox._store import Store
from momopay.sandbox._transactions import Movement, Transaction
from momopay.sandbox._wire import Wires

T = TypeVar("T")


@runtime_checkable
class HasTransactionId(Protocol):
    """Any record that names a transaction."""

    @property
    def transaction_id(self) -> str:
        """The transaction's id."""
        ...


class Sandbox:
    """The payments service on loopback, for as long as the `with` block lasts.

    Time is virtual and counted in seconds: it runs `speed` times as fast as the wall clock, and `advance`
    moves it. All methods may be called from any thread, but not from a callback's handler, which would wait
    for itself. On an event loop that also serves callbacks: `await asyncio.to_thread(sandbox.advance, 30)`.
    """

    def __init__(self, *, port: int = 0, speed: float = 1.0, state: str | Path | None = None) -> None:
        """`port` 0 takes a free one; `speed` 0 stops time between calls; `state` is a SQLite file."""
        self._port = port
        self._speed = speed
        self._state = state
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._server: Server | None = None
        self._wires = Wires()

    def start(self) -> Self:
        """Start the server; `with` does it for you.

        Raises:
            OSError: The port is taken.
            ValueError: `speed` is out of range, or the state file is none.
        """
        if self._thread is not None:
            raise RuntimeError("this sandbox was started before; make a new one")
        now = datetime.now(UTC)
        store = None if self._state is None else Store(self._state)
        try:
            world, start = (World(), now) if store is None else store.load(now)
            clock = Clock(start, speed=self._speed, wall=time.monotonic)
            listener = listen(self._port)
        except BaseException:
            if store is not None:
                store.close()
            raise
        self._port = listener.getsockname()[1]
        ready = threading.Event()

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._engine = engine = Engine(world, clock, store)

            def transport_of(scope: Scope) -> asyncio.Transport | None:
                return server.transport_of(scope)

            app = build(engine)
            add_control_routes(app, engine)
            gate = Gate(app, engine, self._wires, transport_of)
            self._server = server = Server(gate, listener, ready.set)
            clockwork = asyncio.create_task(engine.run())
            try:
                await server.run_until_told()
            finally:
                await engine.stop()
                await clockwork

        def run() -> None:
            try:
                asyncio.run(serve())
            finally:
                ready.set()

        self._thread = threading.Thread(target=run, name="momopay-sandbox", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def close(self) -> None:
        """Stop the server and wait until nothing of it is left; what it recorded stays readable."""
        if self._thread is None or not self._thread.is_alive():
            return
        self._on_loop(self._stop)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def base_url(self) -> str:
        """The service's base address; it ends in /v1."""
        return self.url + PREFIX

    @property
    def now(self) -> datetime:
        """The virtual instant."""
        return self._running.clock.now()

    @property
    def callbacks(self) -> list[CallbackRecord]:
        """Every callback delivery, oldest first, with its answer's status or its error."""
        return list(self._running.world.callbacks)

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The newest 100,000 requests under /v1 that reached a socket, oldest first."""
        return self._running.requests.all()

    @property
    def ledger(self) -> list[Movement]:
        """Every committed movement of money, oldest first: the witness of double payments."""
        return list(self._running.world.ledger)

    def account(self, key: str) -> Account:
        """The account of a `pk_test_` key, made at first use; its attributes may be assigned at any time.

        Raises:
            ValueError: The key is not a test key.
        """
        engine = self._running
        if not key.startswith("pk_test_"):
            raise ValueError("the sandbox has accounts for pk_test_ keys only")
        return self._on_loop(lambda: engine.world.book(key, engine.clock.now()).account)

    def block_stk(self, key: str) -> None:
        """Begin the 30-minute pause of TRANSACTION_HEALTH_BLOCKED for this account now."""
        self._pause(key, Health.block)

    def ban_stk(self, key: str) -> None:
        """Begin the 1-hour STK_TEMP_BANNED for this key now."""
        self._pause(key, Health.ban)

    def advance(self, seconds: float) -> None:
        """Move time by exactly `seconds`, without sleeping.

        Every transition due on the way happens in order, and every callback due on the way is POSTed and its
        answer awaited, retries within the span included. `advance(0)` delivers what is due now.

        Raises:
            ValueError: `seconds` is negative or not finite.
            RuntimeError: The sandbox is not running, or was closed meanwhile.
        """
        self._await(self._running.advance(seconds))

    def enter_pin(self, transaction: str | HasTransactionId) -> None:
        """The customer enters the PIN: PENDING to PROCESSING, SUCCESS 30 s later (a top-up: 60 s).

        Raises:
            Refusal: No PIN prompt is open for this transaction.
        """
        self._by_hand(_lifecycle.enter_pin, transaction)

    def cancel(self, transaction: str | HasTransactionId) -> None:
        """The customer cancels the prompt: CANCELLED at once (FAILED under the switch `cancel_ends_as`).

        Raises:
            Refusal: No PIN prompt is open for this transaction.
        """
        self._by_hand(_lifecycle.cancel, transaction)

    def ignore(self, transaction: str | HasTransactionId) -> None:
        """The customer leaves the prompt alone: EXPIRED 60 s later, whatever the number stands for.

        Raises:
            Refusal: No PIN prompt is open for this transaction.
        """
        self._by_hand(_lifecycle.ignore, transaction)

    def fail_next(
        self, method: str, path: str, fault: Fault | str, times: int = 1, *, content_length: bool = True
    ) -> None:
        """Let a fault strike the next `times` requests of that method and path.

        `path` is relative to /v1; `{name}` or `*` in it stands for any one segment. `content_length=False` makes
        `Fault.truncated` send no Content-Length, so that only the broken JSON gives it away.

        Raises:
            ValueError: No such fault, a path that the service does not have, or `times` below 1.
        """
        faults = self._running.faults
        kind = Fault(fault)
        self._on_loop(lambda: faults.add(method, path, kind, times, content_length=content_length))

    def reset(self) -> None:
        """Forget payments, callbacks, requests and planned faults, and return to the present.

        Accounts are restored in place.
        """
        self._on_loop(self._running.reset)

    @property
    def _running(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the sandbox has not been started: use it as a context manager")
        return self._engine

    def _by_hand(
        self,
        hand: Callable[[World, str, datetime], Transaction],
        transaction: str | HasTransactionId,
    ) -> None:
        engine = self._running
        transaction_id = transaction if isinstance(transaction, str) else transaction.transaction_id

        def act() -> None:
            hand(engine.world, transaction_id, engine.settle())
            engine.commit()

        self._on_loop(act)

    def _pause(self, key: str, begin: Callable[[Health, datetime], None]) -> None:
        engine = self._running

        def act() -> None:
            now = engine.settle()
            begin(engine.world.book(key, now).health, now)
            engine.world.version += 1
            engine.commit()

        self._on_loop(act)

    def _stop(self) -> None:
        if self._server is not None:
            self._running.let_go()
            self._wires.let_go()
            self._server.should_exit = True

    def _on_loop(self, act: Callable[[], T]) -> T:
        async def run() -> T:
            return act()

        return self._await(run())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise RuntimeError("the sandbox is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
