"""The class `Sandbox`: a server on a thread of its own, and methods to read and change its state.

Thread safety: methods that change something run on the event loop of the server's thread, and wait until they are done.
Properties only copy a list or read an instant, which is safe from any thread.
"""

import threading
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal, Self

from fastapi import FastAPI

from momopay.sandbox import _lifecycle
from momopay.sandbox._accounts import Account, load_profile
from momopay.sandbox._control_api import add_control_routes
from momopay.sandbox._engine import Engine
from momopay.sandbox._fault_middleware import PREFIX
from momopay.sandbox._faults import Fault, PlannedFault
from momopay.sandbox._outcomes import Outcome, PlannedOutcome
from momopay.sandbox._records import CallbackRecord, HasTransactionId, Movement, ReceivedRequest
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._serializers import SPOILABLE
from momopay.sandbox._server import ANY_ADDRESS, LOOPBACK, Runner, listen
from momopay.sandbox._state import ServiceState


class Sandbox:
    """The payments service on loopback, which runs as long as the `with` block.

    Time is virtual: it runs `speed` times as fast as the wall clock, and `advance` moves it. All methods may be called
    from any thread, but not from a callback's handler, which would wait for itself. On an event loop that also serves
    callbacks, use `await asyncio.to_thread(sandbox.advance, 30)`.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        speed: float = 1.0,
        state: str | Path | None = None,
        profile: str | Path | None = None,
        host: str = LOOPBACK,
        allow_hosts: Collection[str] = (),
        callback_hosts: Collection[str] = (),
    ) -> None:
        """`port` 0 takes a free one; `speed` 0 stops time between calls; `state` is an SQLite file.

        Every account gets the switches in `profile`: a file of `momopay probe`; or "contract", the service as its
        operator's contract describes it; or "met", the service as merchants' programs meet it. The other parameters are
        for use from other machines. `host` is the IPv4 address to listen on. Under a name that is not loopback's, the
        sandbox answers only if it is `host` or one of `allow_hosts`. Callbacks go to loopback and to `callback_hosts`,
        over http or https.

        Raises:
            ValueError: The profile cannot be read, or it does not fit this version.
        """
        self._host, self._port = host, port
        # Called on first use, so that a sandbox that is never used starts no thread.
        self._make_runner = partial(
            Runner,
            speed=speed,
            state=state,
            switches=None if profile is None else load_profile(profile),
            host=host,
            allow_hosts=(*allow_hosts, *(() if host in {LOOPBACK, ANY_ADDRESS} else (host,))),
            callback_hosts=callback_hosts,
        )
        self._is_serving = False
        self._runner: Runner | None = None
        self._lock = threading.Lock()

    def start(self) -> Self:
        """Start the server; `with` does it for you.

        Raises:
            OSError: The port is taken, or `host` is not an IPv4 address of this machine.
            ValueError: `port` or `speed` is out of range, a host is not a name, or `state` is not a state file.
        """
        if self._is_serving:
            raise RuntimeError("this sandbox was started before; make a new one")
        listener = listen(self._port, self._host)
        try:
            self._start_runner().serve(listener)
        except BaseException:
            listener.close()
            raise
        self._is_serving = True
        self._port = listener.getsockname()[1]
        return self

    @property
    def app(self) -> FastAPI:
        """The service as an ASGI application, for use without a server: `httpx.ASGITransport(sandbox.app)`.

        It may be called on any event loop of asyncio or trio. It shares the state, the clock and the faults of this
        sandbox, and callbacks are real POSTs. Middleware that is added before its first request also acts on the server
        of `start`. Its first use starts a thread, which `close` ends. A fault that breaks the connection raises
        ConnectionResetError.
        """
        return self._start_runner().app

    def _start_runner(self) -> Runner:
        with self._lock:
            if self._runner is None:
                self._runner = self._make_runner()
                add_control_routes(self._runner.app, self, self._runner.engine)
            return self._runner

    def close(self) -> None:
        """Stop the server and wait until its thread has ended. What it recorded stays readable."""
        if self._runner is not None:
            self._runner.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{LOOPBACK if self._host == ANY_ADDRESS else self._host}:{self._port}"

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
        """Every callback delivery, oldest first, with the response's status or the error."""
        return list(self._running.state.callbacks)

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The newest 100,000 requests under /v1, oldest first."""
        return list(self._running.requests.entries)

    @property
    def ledger(self) -> list[Movement]:
        """Every movement of money, oldest first, which shows a double payment."""
        return list(self._running.state.ledger)

    def account(self, key: str) -> Account:
        """Return the account of a test key, opened on first use. Its attributes may be assigned at any time.

        Raises:
            ValueError: The key does not begin with `pk_test_`, or as the switch `key_prefixes` says.
        """
        engine = self._running
        try:
            return self._started.on_loop(lambda: engine.state.account_of(key, engine.clock.now()).account)
        except Refusal:
            raise ValueError("this sandbox has no accounts for such a key, but for pk_test_ keys") from None

    def block_stk(self, key: str) -> None:
        """Begin the 30-minute pause of TRANSACTION_HEALTH_BLOCKED for this account now."""
        self._change(lambda state, now: state.account_of(key, now).health.block(now))

    def ban_stk(self, key: str) -> None:
        """Begin the 1-hour STK_TEMP_BANNED for this key now."""
        self._change(lambda state, now: state.account_of(key, now).health.ban(now))

    def advance(self, seconds: float) -> None:
        """Move time by exactly `seconds`, without sleeping.

        Every transition that is due by then happens in order. Every callback that is due by then, and every retry, is
        POSTed and its response awaited. `advance(0)` delivers what is due now.

        Raises:
            RuntimeError: The sandbox is not running, or was closed in the meantime.
        """
        self._started.wait_for(self._running.advance(seconds))

    def enter_pin(self, transaction: str | HasTransactionId) -> None:
        """Enter the PIN for the customer: PENDING to PROCESSING, SUCCESS 30 s later (a top-up: 60 s)."""
        self._change(lambda state, now: _lifecycle.enter_pin(state, _id_of(transaction), now))

    def cancel(self, transaction: str | HasTransactionId) -> None:
        """Cancel the prompt for the customer: CANCELLED at once (FAILED under the switch `cancel_ends_as`)."""
        self._change(lambda state, now: _lifecycle.cancel(state, _id_of(transaction), now))

    def ignore(self, transaction: str | HasTransactionId) -> None:
        """Ignore the prompt for the customer: EXPIRED 60 s later, even if its number would pay."""
        self._change(lambda state, now: _lifecycle.ignore(state, _id_of(transaction), now))

    def fail_next(
        self,
        method: str,
        path: str,
        fault: Fault | str = Fault.refused_before_commit,
        times: int = 1,
        *,
        content_length: bool = True,
        status: int | None = None,
        code: str = "",
    ) -> None:
        """Plan a fault for the next `times` requests of that method and path.

        `path` is relative to /v1; `{name}` or `*` in it matches one segment. With `content_length=False`,
        `Fault.truncated` sends no Content-Length, so that only the broken JSON shows it. `code` is the error code of
        `Fault.refused_before_commit` and `Fault.refused_after_commit`, any of the service's or another, and `status`
        its HTTP status, by default the one that the service gives it, or 409.

        Raises:
            ValueError: The fault or the path does not exist, `times` is below 1, or the status has no body.
        """
        planned = PlannedFault(method, path, Fault(fault), times, content_length, status, code)
        self._started.on_loop(lambda: self._running.faults.waiting.append(planned))

    def spoil(
        self, transaction: str | HasTransactionId, field: str, value: object = None, *, missing: bool = False
    ) -> None:
        """Make lists show a field of one transaction with another value, by default null, or without it.

        `field` is type, status, amount, currency, phone, created_at or updated_at. Reads by id and callbacks stay as
        they are.

        Raises:
            ValueError: Lists have no such field.
        """
        if field not in SPOILABLE:
            raise ValueError(f"field must be one of: {', '.join(SPOILABLE)}")
        self._change(lambda state, _now: state.find(_id_of(transaction)).spoiled.update({field: [value][missing:]}))

    def end_next(
        self,
        outcome: Outcome | str,
        *,
        phone: str | None = None,
        kind: Literal["prompt", "payout"] = "prompt",
        times: int = 1,
    ) -> None:
        """Plan how the next `times` prompts (STK or top-up) or payouts end, of any phone number or only of `phone`."""
        planned = PlannedOutcome(Outcome(outcome), phone, kind, times)
        self._started.on_loop(lambda: self._running.state.outcomes.waiting.append(planned))

    def clear_planned(self, plan_id: str | None = None) -> None:
        """Forget all planned faults and outcomes that have not happened yet, or the one with this id."""
        self._started.on_loop(lambda: self._running.clear_planned(plan_id))

    def resend(self, callback: str | CallbackRecord) -> None:
        """POST a callback again, once, and wait for the response, which becomes the last record of `callbacks`."""
        self._started.wait_for(self._running.send_again(callback if isinstance(callback, str) else callback.id))

    def reset(self) -> None:
        """Forget payments, callbacks, requests and plans, restore all accounts in place, and return to the present."""
        self._started.on_loop(self._running.reset)

    @property
    def _running(self) -> Engine:
        return self._started.engine

    @property
    def _started(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the sandbox has not been started: use it as a context manager")
        return self._runner

    def _change(self, act: Callable[[ServiceState, datetime], object]) -> None:
        engine = self._running

        def run() -> None:
            act(engine.state, engine.catch_up())
            engine.state.version += 1
            engine.commit()

        self._started.on_loop(run)


def _id_of(transaction: str | HasTransactionId) -> str:
    return transaction if isinstance(transaction, str) else transaction.transaction_id
