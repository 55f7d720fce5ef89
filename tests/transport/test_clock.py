"""The clock by which payments are stopped."""

from __future__ import annotations

import time

import pytest

from momopay._transport import clock
from momopay._transport.sync_backend import SyncBackend


def test_it_also_runs_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no such clock")
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 500.0, time.CLOCK_MONOTONIC: 100.0}.__getitem__)
    assert clock.now() == SyncBackend().now() == 500.0
