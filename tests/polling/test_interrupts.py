"""An exception out of a signal handler, such as Celery's soft time limit, leaves nothing locked for other threads."""

import threading
import time
from threading import Lock
from typing import Any

import httpx
import pytest

from momopay import Client, MomoPayError, PollSchedule
from momopay._polling.loop import PollLoop
from polling.kit import BASE, TimedService, reported
from strikes import MARKS, Striker

pytestmark = MARKS
STRIKES = 200
SEED = 1
AT_ONCE = PollSchedule(first=0.0, every=0.05, limit=2.0)


def struck_client(count: int) -> tuple[bool, int]:
    """Strike calls of this thread while another one waits, too; return whether all others end, and the strikes."""
    service = TimedService()
    identities = service.add_many(3, (0.0, "SUCCESS"))
    others_end, stop = True, threading.Event()
    with Client("pk_test_struck", base_url=BASE, budget=None, transport=httpx.MockTransport(service.respond)) as client:

        def use() -> None:
            client.transactions.wait(identities[0], schedule=AT_ONCE)
            list(client.transactions.wait_all(identities, schedule=AT_ONCE))
            client.with_options(deadline=2.0).transactions.confirm(reported(identities[1], "SUCCESS"))

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
        other = threading.Thread(target=go_on, daemon=True)
        with Striker(SEED, 1.5 * (time.monotonic() - begun)) as striker:
            other.start()
            try:
                while striker.strikes < count and others_end:
                    striker.strike(use)
            except MomoPayError:  # a wait that found the lock held until its limit
                others_end = False
        stop.set()
        other.join(timeout=10.0)
        return others_end and not other.is_alive(), striker.strikes


def test_no_strike_keeps_other_calls_from_polling() -> None:
    assert struck_client(STRIKES) == (True, STRIKES), SEED


@pytest.mark.whole
def test_a_lock_that_is_released_in_a_finally_clause_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: what is right with a lock that is taken in one step is not with two."""
    locks: dict[Any, Lock] = {}

    async def read_or_wait(self: Any, call: Any) -> None:
        lock = locks.setdefault(self, Lock())
        is_held = lock.acquire(blocking=False)
        time.sleep(0.0)  # noqa: ASYNC251  a blocking client: here the handler is called
        try:
            if is_held:
                await self._read_what_is_due(call)
        finally:
            if is_held:
                lock.release()
                for each in self.calls:
                    each.signal.set()
        if not is_held:
            await call.signal.wait(max(0.0, min(call.answers_by - call.now(), 0.5)))

    monkeypatch.setattr(PollLoop, "read_or_wait", read_or_wait)
    all_end, _ = struck_client(10 * STRIKES)
    assert not all_end, SEED
