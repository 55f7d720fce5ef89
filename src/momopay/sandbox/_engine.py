"""Keeps the state and the clock in step: takes what is due, has callbacks POSTed, and saves what changed.

Thread safety: an engine lives on one event loop, and nothing else changes its state. Each request and each step is one
piece without a suspension, so the rules need no locks. Only `advance` and the POSTs of callbacks suspend; while one of
them does, requests are answered as of the instant that the clock shows.

Invariant: `commit` comes before anybody can learn of a change, a client by its answer or a receiver by its callback.
With a state file, a killed sandbox has then forgotten nothing that anybody knows.
"""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import isfinite

from momopay.sandbox import _callbacks, _lifecycle
from momopay.sandbox._callback_sender import CallbackSender
from momopay.sandbox._clock import Clock
from momopay.sandbox._deliveries import CallbackRecord, Delivery
from momopay.sandbox._faults import FaultPlan
from momopay.sandbox._requests import RequestLog
from momopay.sandbox._state import ServiceState
from momopay.sandbox._store import Store

_MAXIMUM_SECONDS = 10 * 365 * 86_400


class ClosedError(RuntimeError):
    """The sandbox was closed before a call on it had finished."""


class Engine:
    """One running service."""

    def __init__(self, state: ServiceState, clock: Clock, store: Store | None = None) -> None:
        """`store` keeps the state; None keeps it in memory."""
        self.state = state
        self.clock = clock
        self.faults = FaultPlan()
        self.requests = RequestLog()
        self.stopping = asyncio.Event()
        self._sender = CallbackSender(clock.speed, state.callback_hosts)
        self._store = store
        self._saved_version = state.version
        # One `advance` at a time: two would each move the clock to a target of their own.
        self._advance_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._posts: set[asyncio.Task[None]] = set()

    def catch_up(self) -> datetime:
        """Take everything that is due by now and return the present instant; callbacks go out in the background."""
        now = self.clock.now()
        # While `advance` holds the clock, everything that is due is its own to take, in order.
        if not self.clock.held:
            while entry := self.state.scheduler.pop(now):
                due, _, subject, subject_id = entry
                if subject == "transaction":
                    _lifecycle.take_step(self.state, subject_id, due)
                elif delivery := _callbacks.take_due(self.state, subject_id, due):
                    _ = self._start_post(delivery, due)
        return now

    def commit(self) -> None:
        """Save what changed, and let `run` compute anew what is due next."""
        if self._saved_version != self.state.version:
            self._saved_version = self.state.version
            self._wake.set()
            if self._store is not None:
                self._store.save(self.state, self.clock.now())
            self.state.unsaved.clear()

    async def advance(self, seconds: float) -> None:
        """Move the clock exactly; every transition and callback due on the way happens, in order."""
        if not (isfinite(seconds) and 0 <= seconds <= _MAXIMUM_SECONDS):
            raise ValueError("seconds must be a number from 0 to ten years")
        async with self._advance_lock:
            self._raise_if_stopping()
            self.catch_up()
            target = self.clock.hold() + timedelta(seconds=seconds)
            try:
                while self._posts:
                    await asyncio.wait(self._posts)
                self._raise_if_stopping()
                while entry := self.state.scheduler.pop(target):
                    due, _, subject, subject_id = entry
                    self.clock.move(due)
                    if subject == "transaction":
                        _lifecycle.take_step(self.state, subject_id, due)
                    elif delivery := _callbacks.take_due(self.state, subject_id, due):
                        self.commit()
                        # One POST after the other, each answered: the next step must not overtake its receiver.
                        post = self._start_post(delivery, self.clock.now())
                        await asyncio.wait({post})
                        self._raise_if_stopping()
                        post.result()
                self.clock.move(target)
            finally:
                self.clock.release()
                # Time alone is a change too: for the page's clock, and for a restart that continues from here.
                self.state.version += 1
                self.commit()

    async def send_again(self, record: CallbackRecord) -> None:
        """POST a callback again, once, and wait for its answer."""
        self._raise_if_stopping()
        self.catch_up()
        delivery = _callbacks.send_again(self.state, record)
        # Saved before it goes out, like every other callback.
        self.state.version += 1
        self.commit()
        await asyncio.wait({self._start_post(delivery, self.clock.now())})
        self._raise_if_stopping()

    def clear_planned(self, plan_id: str | None = None) -> None:
        """Forget the planned faults and outcomes, or the one with this id.

        Raises:
            ValueError: Nothing with this id waits.
        """
        faults, outcomes = self.faults.waiting, self.state.outcomes.waiting
        if plan_id is not None and plan_id not in {*(each.id for each in faults), *(each.id for each in outcomes)}:
            raise ValueError("nothing with this id is planned")
        faults[:] = [each for each in faults if plan_id not in {None, each.id}]
        outcomes[:] = [each for each in outcomes if plan_id not in {None, each.id}]

    def reset(self) -> None:
        """Forget payments, callbacks, requests and what is planned; restore every account; return to the present."""
        self.clock.restart(datetime.now(UTC))
        self.state.reset(self.clock.now())
        self.faults.waiting.clear()
        self.requests.clear()
        if self._store is not None:
            self._store.clear()
        self.commit()

    async def run(self) -> None:
        """Take things as they fall due, until `stop`."""
        while not self.stopping.is_set():
            self.catch_up()
            self.commit()
            due = self.state.scheduler.next_due
            # None without anything due, while the clock is held and at speed 0: then only a commit wakes this up.
            wait = None if due is None else self.clock.wall_seconds_until(due)
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def begin_stop(self) -> None:
        """End the POSTs under way, and with them an `advance` that waits for one."""
        self.stopping.set()
        self._wake.set()
        for task in self._posts:
            task.cancel()

    async def stop(self) -> None:
        """Save, and close what is open."""
        self.begin_stop()
        await asyncio.gather(*self._posts, return_exceptions=True)
        # An `advance` that was ended still commits in its `finally`.
        async with self._advance_lock:
            await self._sender.close()
            if self._store is not None:
                self._store.save(self.state, self.clock.now())
                self._store.close()
                self._store = None

    def _raise_if_stopping(self) -> None:
        if self.stopping.is_set():
            raise ClosedError("the sandbox was closed before the time had passed")

    def _start_post(self, delivery: Delivery, at: datetime) -> asyncio.Task[None]:
        # The set keeps the task alive: the event loop itself holds only a weak reference.
        task = asyncio.get_running_loop().create_task(self._post(delivery, at))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)
        return task

    async def _post(self, delivery: Delivery, at: datetime) -> None:
        result = await self._sender.post(delivery.url, delivery.payload)
        _callbacks.report(self.state, delivery, result, at, self.clock.now())
        self.commit()
