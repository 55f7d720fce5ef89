"""An exception out of a signal handler, such as Celery's soft time limit, leaves nothing locked for other threads."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import httpx
import pytest

from momopay import Client, PollSchedule, parse_callback
from momopay._polling.poll_round import Caller
from patience import untraced
from polling.kit import BASE, Service, callback

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer here"),
    # A strike may come between the call of a coroutine function and the start of its coroutine.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning"),
]

STRIKES = 2000
SEED = 1
AT_ONCE = PollSchedule(first=0.0, every=0.05, limit=2.0)


class StruckError(Exception):
    """What the signal handler raises."""


@contextmanager
def strikes() -> Generator[None]:
    def strike(*_: object) -> None:
        raise StruckError

    before = signal.signal(signal.SIGALRM, strike)
    try:
        with untraced():
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def struck_client(count: int) -> tuple[bool, int]:
    """Strike calls of this thread while another one waits, too; return whether all others end, and the strikes."""
    service, chance = Service(), random.Random(SEED)
    identities = service.add_many(3, (0.0, "SUCCESS"))
    others_end, stop, struck = True, threading.Event(), 0
    with Client("pk_test_struck", base_url=BASE, budget=None, transport=httpx.MockTransport(service.respond)) as client:

        def use() -> None:
            client.transactions.wait(identities[0], schedule=AT_ONCE)
            list(client.transactions.wait_all(identities, schedule=AT_ONCE))
            client.with_options(deadline=2.0).transactions.confirm(parse_callback(callback(identities[1], "SUCCESS")))

        def go_on() -> None:
            nonlocal others_end
            try:
                while not stop.is_set():
                    use()
                    time.sleep(0.001)
            except Exception:  # noqa: BLE001  whatever it is, it was no fault of this thread
                others_end = False

        use()  # what is loaded at the first use is loaded
        begun = time.monotonic()
        use()
        one_use = time.monotonic() - begun
        other = threading.Thread(target=go_on, daemon=True)
        other.start()
        with strikes():
            while struck < count and others_end:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 1.5 * one_use))
                    use()
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
                except StruckError:
                    struck += 1
                except Exception:  # noqa: BLE001  a wait that found the turn taken until its limit
                    others_end = False
        stop.set()
        other.join(timeout=10.0)
        return others_end and not other.is_alive(), struck


def test_no_strike_keeps_other_calls_from_polling() -> None:
    assert struck_client(STRIKES) == (True, STRIKES), SEED


def test_a_turn_that_is_released_in_a_finally_clause_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: what is right with a lock that is taken in one step is not with two."""
    turns: dict[Any, Lock] = {}

    async def poll(self: Any, until: float) -> None:
        turn = turns.setdefault(self._coordinator, Lock())
        taken = turn.acquire(blocking=False)
        time.sleep(0.0)  # noqa: ASYNC251  a blocking client: here the handler is called
        try:
            if taken:
                await self._run_round()
        finally:
            if taken:
                turn.release()
                for caller in self._coordinator.callers():
                    caller.signal.set()
        if not taken:
            await self.signal.wait(max(0.0, min(until - self.now(), 0.5)))

    monkeypatch.setattr(Caller, "poll", poll)
    all_end, _ = struck_client(STRIKES)
    assert not all_end, SEED
