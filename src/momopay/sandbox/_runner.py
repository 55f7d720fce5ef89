"""The engine on an event loop of its own, on a thread of its own, and the server that may be added to it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Collection, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from starlette.types import ASGIApp, Scope

from momopay.sandbox._app import build
from momopay.sandbox._callback_urls import host_names, is_loopback
from momopay.sandbox._clock import Clock
from momopay.sandbox._connections import Connections
from momopay.sandbox._control_api import add_control_routes
from momopay.sandbox._engine import Engine
from momopay.sandbox._fault_middleware import FaultMiddleware
from momopay.sandbox._guard import Guard, HostCheck
from momopay.sandbox._in_process import InProcess
from momopay.sandbox._pages import add_pages
from momopay.sandbox._server import Server
from momopay.sandbox._state import ServiceState
from momopay.sandbox._store import Store
from momopay.sandbox._switches import Switches
from momopay.sandbox._wall_clock import monotonic

T = TypeVar("T")


class Runner:
    """A sandbox that runs. All methods may be called from any thread but its own."""

    engine: Engine

    def __init__(
        self,
        *,
        speed: float,
        state: str | Path | None,
        switches: Switches | None = None,
        allow_hosts: Collection[str] = (),
        callback_hosts: Collection[str] = (),
    ) -> None:
        """Start the thread.

        Raises:
            ValueError: `speed` is out of range, a host is none, or the state file is not one.
        """
        self._guard = Guard(allow_hosts)
        posted_to = host_names(callback_hosts)
        now = datetime.now(UTC)
        store = None if state is None else Store(state)
        try:
            loaded, start = (ServiceState(), now) if store is None else store.load(now)
            loaded.callback_hosts = posted_to
            if switches is not None:
                loaded.use_switches(switches)
            clock = Clock(start, speed=speed, wall=monotonic)
        except BaseException:
            # Else the lock on the file would outlive the failed start.
            if store is not None:
                store.close()
            raise
        self.server: Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._connections = Connections()
        self._loop = asyncio.new_event_loop()
        self._loop.time = monotonic  # type: ignore[method-assign]  # see there
        self._ready = threading.Event()
        # A daemon, so that a program which forgets `close` still ends.
        self._thread = threading.Thread(
            target=self._run, args=(loaded, clock, store), name="momopay-sandbox", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        self.app: FastAPI = build(self.engine, self._wrap)
        add_control_routes(self.app, self.engine, self._guard)
        add_pages(self.app, self._guard)

    def serve(self, listener: socket.socket) -> None:
        """Start the server, and return when it accepts connections."""
        ready = threading.Event()
        reachable = not is_loopback(listener.getsockname()[0])
        app = HostCheck(self.app, self._guard) if reachable else self.app
        self.server = server = Server(app, listener, ready.set)

        async def begin() -> None:
            self._serving = asyncio.create_task(server.serve_listener())

        self.wait_for(begin())
        ready.wait()

    def stop(self) -> None:
        """Stop the server and the engine, and wait until the thread has ended."""
        if self._thread.is_alive():
            self.on_loop(self._begin_stop)
            self._thread.join()

    def on_loop(self, act: Callable[[], T]) -> T:
        """Call a function on the engine's event loop and return its result."""

        async def run() -> T:
            return act()

        return self.wait_for(run())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's event loop and return its result.

        Raises:
            RuntimeError: The sandbox was closed.
        """
        if self._loop.is_closed():
            # A coroutine that is never awaited would warn.
            work.close()
        return asyncio.run_coroutine_threadsafe(work, self._loop_of()).result()

    def _run(self, state: ServiceState, clock: Clock, store: Store | None) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live(state, clock, store))
        finally:
            # Also when the start failed: the constructor must not wait for ever.
            self._ready.set()

    async def _live(self, state: ServiceState, clock: Clock, store: Store | None) -> None:
        self.engine = engine = Engine(state, clock, store)
        self._ready.set()
        running = asyncio.create_task(engine.run())
        await engine.stopping.wait()
        if self._serving is not None:
            await self._serving
        await engine.stop()
        await running

    def _begin_stop(self) -> None:
        # Faults and POSTs are ended first: uvicorn waits for the requests that depend on them.
        self.engine.begin_stop()
        self._connections.abort_all()
        if self.server is not None:
            self.server.should_exit = True

    def _wrap(self, app: ASGIApp) -> ASGIApp:
        return InProcess(FaultMiddleware(app, self.engine, self._connections, self._transport_of), self._loop_of)

    def _transport_of(self, scope: Scope) -> asyncio.Transport | None:
        return None if self.server is None else self.server.transport_of(scope)

    def _loop_of(self) -> asyncio.AbstractEventLoop:
        if self._loop.is_closed():
            raise RuntimeError("the sandbox is not running")
        return self._loop
