"""Keeps the rules and the clock in step: takes what is due, has callbacks POSTed, and saves what changed."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import isfinite

from momopay.sandbox import _callbacks, _lifecycle
from momopay.sandbox._clock import Clock
from momopay.sandbox._deliveries import Delivery
from momopay.sandbox._faults import FaultPlan
from momopay.sandbox._poster import Poster
from momopay.sandbox._requests import RequestLog
from momopay.sandbox._state import World
from momopay.sandbox._store import Store

_MAXIMUM_SECONDS = 10 * 365 * 86_400


class ClosedError(RuntimeError):
    """The sandbox was closed while something was still going on."""


class Engine:
    """One service at work. Lives on one event loop; only `advance` and the POSTs of callbacks suspend."""

    def __init__(self, world: World, clock: Clock, store: Store | None = None) -> None:
        """`store` keeps the state; None keeps it in memory."""
        self.world = world
        self.clock = clock
        self.faults = FaultPlan()
        self.requests = RequestLog()
        self.stopping = asyncio.Event()
        self._poster = Poster(clock.speed)
        self._store = store
        self._saved = world.version
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._posting: set[asyncio.Task[None]] = set()

    def settle(self) -> datetime:
        """Take everything that is due by now; callbacks go out by themselves. Returns the present instant."""
        now = self.clock.now()
        if not self.clock.held:
            while entry := self.world.agenda.pop(now):
                due, _, what, subject = entry
                if what == "transaction":
                    _lifecycle.step(self.world, subject, due)
                elif delivery := _callbacks.take(self.world, subject, due):
                    _ = self._start_post(delivery, due)
        return now

    def commit(self) -> None:
        """Save what changed, before anybody is told of it, and let the clockwork look at the agenda again."""
        if self._saved != self.world.version:
            self._saved = self.world.version
            self._wake.set()
            if self._store is not None:
                self._store.save(self.world, self.clock.now())
            self.world.touched.clear()

    async def advance(self, seconds: float) -> None:
        """Move the clock exactly; every transition and callback due on the way happens, in order."""
        if not (isfinite(seconds) and 0 <= seconds <= _MAXIMUM_SECONDS):
            raise ValueError("seconds must be a number from 0 to ten years")
        async with self._turn:
            self._still_open()
            self.settle()
            target = self.clock.hold() + timedelta(seconds=seconds)
            try:
                while self._posting:
                    await asyncio.wait(self._posting)
                self._still_open()
                while entry := self.world.agenda.pop(target):
                    due, _, what, subject = entry
                    self.clock.move(due)
                    if what == "transaction":
                        _lifecycle.step(self.world, subject, due)
                    elif delivery := _callbacks.take(self.world, subject, due):
                        # Saved before the receiver is told: what it heard must survive a kill.
                        self.commit()
                        post = self._start_post(delivery, self.clock.now())
                        await asyncio.wait({post})
                        self._still_open()
                        post.result()
                self.clock.move(target)
            finally:
                self.clock.release()
                # Time alone is news too: for the page's clock, and for a restart that goes on from here.
                self.world.version += 1
                self.commit()

    def reset(self) -> None:
        """Forget payments, callbacks, requests and planned faults; restore every account; return to the present."""
        self.clock.restart(datetime.now(UTC))
        self.world.reset(self.clock.now())
        self.faults.waiting.clear()
        self.requests.clear()
        if self._store is not None:
            self._store.clear()
        self.commit()

    async def run(self) -> None:
        """Take things as they fall due, until `stop`."""
        while not self.stopping.is_set():
            self.settle()
            self.commit()
            due = self.world.agenda.next_due
            wait = None if due is None else self.clock.wall_seconds_until(due)
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def let_go(self) -> None:
        """End the POSTs under way, and with them an `advance` that waits for one."""
        self.stopping.set()
        self._wake.set()
        for task in self._posting:
            task.cancel()

    async def stop(self) -> None:
        """Save, and close what is open."""
        self.let_go()
        await asyncio.gather(*self._posting, return_exceptions=True)
        async with self._turn:  # an `advance` that was let go has still to say what it did
            await self._poster.close()
            if self._store is not None:
                self._store.save(self.world, self.clock.now())
                self._store.close()
                self._store = None

    def _still_open(self) -> None:
        if self.stopping.is_set():
            raise ClosedError("the sandbox was closed before the time had passed")

    def _start_post(self, delivery: Delivery, at: datetime) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._post(delivery, at))
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)
        return task

    async def _post(self, delivery: Delivery, at: datetime) -> None:
        posted = await self._poster.post(delivery.url, delivery.payload)
        _callbacks.report(self.world, delivery, posted, at, self.clock.now())
        self.commit()
