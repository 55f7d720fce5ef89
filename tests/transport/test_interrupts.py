"""Exceptions out of signal handlers, such as Ctrl-C or Celery's soft time limit, leave nothing locked or lost.

Python runs a handler between any two calls, so what is written in Python may be left half done.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

import wire
from drivers import KEY
from momopay import Client
from momopay._transport.attempt import run_blocking
from momopay._transport.sync_backend import SyncBackend
from strikes import MARKS, Striker

SEEDS = count(7)
pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def strike(use: Callable[[], object], times: int, *, most: float) -> None:
    with Striker(next(SEEDS), most) as striker:
        for _ in range(times):
            striker.strike(use)


def ends_in_time(work: Callable[[], object], seconds: float = 5.0) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def test_a_signal_that_was_interrupted_can_be_set_and_waited_for() -> None:
    waking = SyncBackend().signal()

    def use() -> None:
        waking.set()
        run_blocking(waking.wait(0.001))

    strike(use, 300, most=1e-4)
    assert ends_in_time(waking.set)
    assert ends_in_time(lambda: run_blocking(waking.wait(wire.PATIENCE)))


@pytest.mark.whole
def test_an_event_of_pythons_own_does_not_survive_that() -> None:
    """The negative control: its condition's lock stays held, and whoever sets it next waits for ever."""
    event = threading.Event()

    def use() -> None:
        event.set()
        event.wait(0.001)
        event.clear()

    for _ in range(10_000):
        with suppress(RuntimeError):  # it notices by itself that a lock is not held
            strike(use, 1, most=1e-4)
        if not ends_in_time(event.set, 0.3):
            return
    pytest.fail("the strikes are too weak to find a lock that stays held")


def test_interrupted_requests_leave_a_client_that_works() -> None:
    with (
        wire.serve(wire.succeeds()) as server,
        Client(KEY, base_url=server.base_url, budget=None, max_attempts=1, timeout=5.0) as client,
    ):
        client.wallet.balance()
        began = time.monotonic()
        client.wallet.balance()
        strike(client.wallet.balance, 100, most=3 * (time.monotonic() - began))
        assert client.wallet.balance().currency == "KES"
        assert client.stk.initiate(amount=1, phone="0712345678").transaction_id == wire.TRANSACTION_ID
