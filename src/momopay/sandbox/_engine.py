"""Keeps the state and the clock in step: takes the steps that are due, POSTs callbacks, and saves what changed.

Thread safety: an engine lives on one event loop, and nothing else changes its state. Each request and each step runs
without a suspension, so the rules need no locks. Only `advance` and the POSTs of callbacks suspend; meanwhile, requests
are answered as of the instant that the clock shows.

Invariant: `commit` comes before a client or the receiver of a callback can learn of a change. With a state file, a
killed sandbox has then forgotten nothing that anybody knows.

The state file is SQLite with the JSON of a dataclass, so the names of the fields are its format. Renaming one requires
a new version of the format. Files of other versions are refused. No key is written.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path

import httpx
from pydantic import TypeAdapter

from momopay.sandbox import _lifecycle
from momopay.sandbox._accounts import Account
from momopay.sandbox._bodies import may_be_sent
from momopay.sandbox._faults import FaultPlan
from momopay.sandbox._records import (
    ANSWER_LIMIT,
    CallbackRecord,
    Delivery,
    Movement,
    PostResult,
    RequestLog,
    Transaction,
)
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import AccountState, RateWindow, ServiceState, StkHealth

_MAXIMUM_SECONDS = 10 * 365 * 86_400
_MAXIMUM_SPEED = 1_000_000
_KEPT_BYTES = 500  # of the response to a callback


class Clock:
    """Virtual time in whole milliseconds, so that an instant survives its ISO 8601 text unchanged."""

    def __init__(self, start: datetime, *, speed: float, wall: Callable[[], float]) -> None:
        """Start at `start`; `speed` is virtual seconds per second of `wall`, 0 for a clock that is moved by hand."""
        if not 0 <= speed <= _MAXIMUM_SPEED:
            raise ValueError(f"speed must lie between 0 and {_MAXIMUM_SPEED:,} virtual seconds per second")
        self.speed = speed
        self._wall = wall
        # A virtual instant, and the reading of `wall` at that instant; None while the clock is held.
        self._origin: tuple[datetime, float | None] = start.astimezone(UTC), wall()

    @property
    def held(self) -> bool:
        """Whether the clock is stopped until `release`."""
        return self._origin[1] is None

    def now(self) -> datetime:
        """Return the virtual instant, rounded down to the millisecond."""
        instant, since = self._origin
        if since is not None and self.speed:
            instant += timedelta(seconds=(self._wall() - since) * self.speed)
        return instant.replace(microsecond=instant.microsecond // 1000 * 1000)

    def hold(self) -> datetime:
        """Stop at the present instant and return it."""
        now = self.now()
        self._origin = now, None
        return now

    def move(self, instant: datetime) -> None:
        """Move a held clock to a later instant; an earlier one leaves it where it is."""
        self._origin = max(self._origin[0], instant), None

    def release(self) -> None:
        """Run again from the instant at which the clock is held."""
        self._origin = self._origin[0], self._wall()

    def restart(self, start: datetime) -> None:
        """Run from another instant, earlier or later, unless an `advance` is holding the clock."""
        if not self.held:
            self._origin = start.astimezone(UTC), self._wall()

    def wall_seconds_until(self, instant: datetime) -> float | None:
        """Return the wall-clock seconds until `instant`, or None if time does not run by itself."""
        if self.held or not self.speed:
            return None
        return max(0.0, (instant - self.now()).total_seconds() / self.speed)


def monotonic() -> float:
    """Return seconds on a monotonic clock that freezegun does not stop, because that would stop the server."""
    return time.monotonic() if sys.platform == "win32" else time.clock_gettime(time.CLOCK_MONOTONIC)


class CallbackSender:
    """POSTs callbacks, each on a connection of its own."""

    def __init__(self, speed: float, hosts: Collection[str] = ()) -> None:
        """Callbacks go to loopback and `hosts`. The answer limit of 30 virtual seconds shrinks with the speed."""
        self._hosts = hosts
        # At least a real second, or else a receiver would fail merely because the machine is busy.
        self.limit = max(1.0, ANSWER_LIMIT / max(speed, 1.0))
        self._client = httpx.AsyncClient(
            verify=False,  # noqa: S501 - loopback and a test's own hosts, where nobody has a certificate to verify
            trust_env=False,
            timeout=httpx.Timeout(None),  # `post` limits the whole call instead
            # The receiver could close a kept connection just when the next callback is written to it.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def post(self, url: str, payload: Mapping[str, object]) -> PostResult:
        """POST a payload and return the result. Errors are part of the result."""
        if not may_be_sent(url, self._hosts):
            others = ", and no callback host" if self._hosts else ""
            return PostResult(error=f"not sent: not loopback{others}")
        body = json.dumps(payload).encode()
        headers = {"content-type": "application/json", "user-agent": "momopay-sandbox"}
        try:
            async with asyncio.timeout(self.limit):
                response = await self._client.post(url, content=body, headers=headers)
            return PostResult(response.status_code, response.content[:_KEPT_BYTES].decode("utf-8", "replace"))
        except TimeoutError:
            return PostResult(error=f"no answer within {ANSWER_LIMIT:.0f} seconds", timed_out=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return PostResult(error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        await self._client.aclose()


# "mom" and the version of the format. It is checked so that nothing is written to another program's database.
_APPLICATION_ID = 0x6D6F6D06


@dataclass(slots=True)
class _Saved:
    now: datetime
    accounts: list[tuple[Account, RateWindow, StkHealth]]
    transactions: list[Transaction]
    deliveries: list[Delivery]
    callbacks: list[CallbackRecord]
    ledger: list[Movement]


_JSON = TypeAdapter(_Saved)


class Store:
    """One state file. One thread opens it and the event loop's thread uses it, never both at once."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=0.5)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{path} cannot be opened: {error}") from error
        try:
            self._claim()
            self._connection.execute("create table if not exists state (id integer primary key, body text not null)")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise ValueError(f"{path} is in use by another sandbox") from error
            raise ValueError(f"{path} is no sandbox state: {error}") from error

    def _claim(self) -> None:
        """Lock the file while it is open, and raise unless it is new or one of this version's sandbox."""
        # Two sandboxes on one file would overwrite each other. The lock ends with the process at the latest.
        self._connection.executescript("pragma locking_mode = exclusive; begin exclusive; commit;")
        (application,) = self._connection.execute("pragma application_id").fetchone()
        (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
        if tables and application != _APPLICATION_ID:
            raise sqlite3.DatabaseError("it belongs to another program, or to another version of the sandbox")
        self._connection.execute(f"pragma application_id = {_APPLICATION_ID}")

    def load(self, now: datetime) -> tuple[ServiceState, datetime]:
        """Return the saved state, and the instant that its clock had reached or `now`, whichever is later."""
        row = self._connection.execute("select body from state").fetchone()
        saved = _Saved(now, [], [], [], [], []) if row is None else _JSON.validate_json(row[0])
        state = ServiceState(callbacks=saved.callbacks, ledger=saved.ledger)
        for account, rate, health in saved.accounts:
            state.accounts[account.tenant_id] = AccountState(account, rate=rate, health=health)
        for transaction in saved.transactions:
            state.insert(transaction)
            state.put_on_agenda(transaction)
        for delivery in saved.deliveries:
            # A POST that was under way when the run ended is made again, since callbacks may arrive twice.
            delivery.due = delivery.due or now
            state.deliveries[delivery.id] = delivery
            state.put_on_agenda(delivery)
        return state, max(now, saved.now)

    def save(self, state: ServiceState, now: datetime) -> None:
        """Write everything, in one transaction."""
        accounts = [(each.account, each.rate, each.health) for each in state.accounts.values()]
        transactions, deliveries = list(state.transactions.values()), list(state.deliveries.values())
        saved = _Saved(now, accounts, transactions, deliveries, state.callbacks, state.ledger)
        with self._connection as connection:
            connection.execute("replace into state values (1, ?)", (_JSON.dump_json(saved).decode(),))

    def close(self) -> None:
        self._connection.close()


class ClosedError(RuntimeError):
    """The sandbox was closed before a call on it had finished."""


class Engine:
    """One running service. Without a store, its state is in memory only."""

    def __init__(self, state: ServiceState, clock: Clock, store: Store | None = None) -> None:
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
        """Take everything that is due and return the present instant. Callbacks are POSTed in the background."""
        now = self.clock.now()
        # While `advance` holds the clock, it takes everything that is due itself, in order.
        if not self.clock.held:
            while entry := self.state.pop_due(now):
                due, subject = entry
                if isinstance(subject, Transaction):
                    _lifecycle.take_step(self.state, subject, due)
                else:
                    _ = self._start_post(subject, due)
        return now

    def commit(self) -> None:
        """Save what changed, and wake `run`, since something else may be due next."""
        if self._saved_version != self.state.version:
            self._saved_version = self.state.version
            self._wake.set()
            if self._store is not None:
                self._store.save(self.state, self.clock.now())

    async def advance(self, seconds: float) -> None:
        """Move the clock by exactly `seconds`. All transitions and callbacks due by then happen, in order."""
        if not (isfinite(seconds) and 0 <= seconds <= _MAXIMUM_SECONDS):
            raise ValueError("seconds must be a number from 0 to ten years")
        async with self._advance_lock:
            self._raise_if_stopping()
            self.catch_up()
            self.commit()
            target = self.clock.hold() + timedelta(seconds=seconds)
            try:
                while self._posts:
                    await asyncio.wait(self._posts)
                self._raise_if_stopping()
                while entry := self.state.pop_due(target):
                    due, subject = entry
                    self.clock.move(due)
                    if isinstance(subject, Transaction):
                        _lifecycle.take_step(self.state, subject, due)
                    else:
                        # Wait for the answer to each POST: the next step must not overtake the receiver.
                        post = self._start_post(subject, self.clock.now())
                        self.commit()
                        await asyncio.wait({post})
                        self._raise_if_stopping()
                        post.result()
                self.clock.move(target)
            finally:
                self.clock.release()
                # Time alone is a change too, for the page's clock and for a restart that continues from here.
                self.state.version += 1
                self.commit()

    async def send_again(self, callback_id: str) -> None:
        """POST a callback again, once, and wait for its answer."""
        record = next((each for each in reversed(self.state.callbacks) if each.id == callback_id), None)
        if record is None:
            raise Refusal("NOT_FOUND", "No callback has this id")
        payload = dict(record.payload)
        now = self.clock.now()
        delivery = Delivery(record.tenant_id, record.transaction_id, record.url, payload, posts_left=1, due=now)
        self.state.deliveries[delivery.id] = delivery
        self.state.put_on_agenda(delivery)
        self.state.version += 1
        await self.advance(0)

    def clear_planned(self, plan_id: str | None = None) -> None:
        """Forget all planned faults and outcomes, or the one with this id."""
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
        self.requests = RequestLog()
        self.commit()

    async def run(self) -> None:
        """Take everything as it becomes due, until `stop`."""
        while not self.stopping.is_set():
            self.catch_up()
            self.commit()
            due = self.state.agenda[0][0] if self.state.agenda else None
            # None if nothing is due, while the clock is held, and at speed 0. Then only a commit wakes this up.
            wait = None if due is None else self.clock.wall_seconds_until(due)
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def begin_stop(self) -> None:
        """Cancel the POSTs under way, which also ends an `advance` that waits for one."""
        self.stopping.set()
        self._wake.set()
        for task in self._posts:
            task.cancel()

    async def stop(self) -> None:
        """Save, and close what is open."""
        self.begin_stop()
        await asyncio.gather(*self._posts, return_exceptions=True)
        # An `advance` that was ended this way still commits in its `finally`.
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
        delivery.due = None
        # The set keeps the task alive, because the event loop holds only a weak reference.
        task = asyncio.get_running_loop().create_task(self._post(delivery, at))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)
        return task

    async def _post(self, delivery: Delivery, at: datetime) -> None:
        result = await self._sender.post(delivery.url, delivery.payload)
        _lifecycle.report(self.state, delivery, result, at, self.clock.now())
        self.commit()
