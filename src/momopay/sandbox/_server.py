"""Runs the engine and the server on an event loop and a thread of their own."""

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from momopay.sandbox._accounts import Switches
from momopay.sandbox._app import Guard, build
from momopay.sandbox._bodies import host_names, is_loopback
from momopay.sandbox._engine import Clock, Engine, Store, monotonic
from momopay.sandbox._fault_middleware import CONNECTION, FaultMiddleware, InProcess
from momopay.sandbox._state import ServiceState

HEAD_LIMIT = 30.0  # real seconds within which the head of a request must arrive
_GRACE = 0.5  # real seconds at the end for requests that are being answered
BACKLOG = 512  # connections that wait to be accepted
LOOPBACK = "127.0.0.1"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - for containers, on request only


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    if not 0 <= port < 1 << 16:
        raise ValueError("port must lie between 0 and 65,535")
    listener = socket.create_server((host, port), backlog=BACKLOG)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which the connections inherit
    return listener


class _Http(H11Protocol):
    """HTTP on one connection. It puts the connection into each request's scope, and limits the wait for a head."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._app, self.app = self.app, self._with_connection
        self._time_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._head_timer is not None:
            self._head_timer.cancel()

    def _time_head(self) -> None:
        # Idle until the head of a request is complete. Between requests, uvicorn's own limit of 5 s comes first.
        waiting = self.conn.their_state is h11.IDLE
        if waiting and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_LIMIT, self.transport.close)
        elif not waiting and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def abort(self) -> None:
        self.transport.abort()

    async def _with_connection(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, CONNECTION: self.transport}, receive, send)


class Server:
    """HTTP by uvicorn on one socket. uvicorn's own server polls ten times a second, and waits at its end."""

    def __init__(self, app: ASGIApp) -> None:
        self._state = ServerState()
        self._config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            # `FaultMiddleware` dates responses by the virtual clock.
            date_header=False,
            server_header=False,
        )
        self._config.load()

    async def start(self, listener: socket.socket) -> None:
        self._listening = await asyncio.get_running_loop().create_server(self._protocol, sock=listener, backlog=BACKLOG)

    def _protocol(self) -> _Http:
        return _Http(self._config, self._state, {})

    async def stop(self) -> None:
        """Close idle connections, give requests under way a moment to end, and abort the others, which faults hold."""
        self._listening.close()
        for how in ("shutdown", "abort"):
            for protocol in list(self._state.connections):
                getattr(protocol, how)()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    while self._state.connections or self._state.tasks:  # noqa: ASYNC110 - sets of uvicorn's
                        await asyncio.sleep(0.005)


T = TypeVar("T")


class Runner:
    """A running sandbox. Its methods may be called from any thread but its own."""

    def __init__(
        self,
        *,
        speed: float,
        state: str | Path | None,
        switches: Switches | None,
        host: str,
        allow_hosts: Collection[str],
        callback_hosts: Collection[str],
    ) -> None:
        answers_to, posted_to = host_names(allow_hosts), host_names(callback_hosts)
        now = datetime.now(UTC)
        store = None if state is None else Store(state)
        try:
            loaded, start = (ServiceState(), now) if store is None else store.load(now)
            loaded.callback_hosts = posted_to
            if switches is not None:
                loaded.use_switches(switches)
            self.engine = Engine(loaded, Clock(start, speed=speed, wall=monotonic), store)
        except BaseException:
            # Otherwise the lock on the file would outlive the failed start.
            if store is not None:
                store.close()
            raise
        self._server: Server | None = None
        # Windows' usual loop closes its listener once a client has hung up before it was accepted
        # (python/cpython#93821). This one serves at most 512 connections at a time there.
        self._loop = asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()
        self._loop.time = monotonic  # type: ignore[method-assign]  # for the reason given there
        # A daemon, so that a program that forgets `close` still ends.
        self._thread = threading.Thread(target=self._run, name="momopay-sandbox", daemon=True)
        self._thread.start()
        self.app = build(self.engine)
        faulty = FaultMiddleware(self.app.serve, self.engine)
        self.app.outermost = InProcess(Guard(faulty, answers_to, reachable=not is_loopback(host)), self._loop_of)

    def serve(self, listener: socket.socket) -> None:
        """Start the server and wait until it accepts connections."""
        server = Server(self.app)
        self.wait_for(server.start(listener))
        self._server = server

    def stop(self) -> None:
        """Stop the server and the engine, and wait until the thread has ended."""
        if self._thread.is_alive():
            self.on_loop(self.engine.begin_stop)
            self._thread.join()

    def on_loop(self, act: Callable[[], T]) -> T:
        """Call a function on the engine's event loop and return its result."""

        async def run() -> T:
            return act()

        return self.wait_for(run())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's event loop and return its result."""
        if self._loop.is_closed():
            work.close()  # a coroutine that is never awaited causes a warning
        return asyncio.run_coroutine_threadsafe(work, self._loop_of()).result()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        running = asyncio.create_task(self.engine.run())
        await self.engine.stopping.wait()
        # After `begin_stop` has ended the POSTs, because requests may depend on them.
        if self._server is not None:
            await self._server.stop()
        await self.engine.stop()
        await running

    def _loop_of(self) -> asyncio.AbstractEventLoop:
        if self._loop.is_closed():
            raise RuntimeError("the sandbox is not running")
        return self._loop
