"""A process appears under one name, however many of its threads begin at once: else the first would seem dead."""

from __future__ import annotations

import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest

from momopay import Callback, CallbackError, Journal, parse_callback

THREADS = 8
TOLD = {
    "type": "B2C",
    "status": "SUCCESS",
    "amount": 100,
    "phone_number": "254712345678",
    "created_at": "2026-01-05T09:00:00Z",
    "updated_at": "2026-01-05T09:01:00Z",
}
CALLBACKS = [
    parse_callback({"event_type": "transaction.success", "transaction": {**TOLD, "id": f"tx-{number}"}})
    for number in range(THREADS)
]


@pytest.fixture
def restless() -> Generator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_what_threads_hold_that_began_at_once_is_held(tmp_path: Path) -> None:
    for number in range(10):
        with Journal(f"sqlite:///{tmp_path / str(number)}.db") as journal, ExitStack() as held:
            assert journal.get("-") is None  # set up; what remains is to appear
            together = Barrier(THREADS)

            def hold(callback: Callback, journal: Journal = journal, held: ExitStack = held) -> bool:
                together.wait()  # noqa: B023  called before the next round
                return held.enter_context(journal.handling(callback))

            with ThreadPoolExecutor(THREADS) as pool:
                assert all(pool.map(hold, CALLBACKS))
            for callback in CALLBACKS:
                with pytest.raises(CallbackError), journal.handling(callback):
                    pytest.fail("somebody holds it")
