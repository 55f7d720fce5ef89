"""What is renewed in the child of a fork."""

import os
import threading

import pytest

from forked import succeeds_in_child
from momopay._fork import _renewals, renew_in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


class Held:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.lock = threading.Lock()

    def use(self) -> None:
        with self.lock:
            pass


def test_a_lock_that_was_held_at_the_fork_is_free_in_the_child() -> None:
    renewed, control = Held(), Held()
    renew_in_child(renewed.renew)
    with renewed.lock, control.lock:
        assert succeeds_in_child(renewed.use)
        assert not control.lock.acquire(timeout=0)
        assert renewed.lock.locked()  # the parent's own is untouched


def test_what_was_dropped_is_not_renewed_and_not_kept() -> None:
    renewals, before = list[int](), set(_renewals)

    class Dropped:
        def renew(self) -> None:
            renewals.append(1)

    for _ in range(10):
        renew_in_child(Dropped().renew)
    assert succeeds_in_child(lambda: renewals and os._exit(2))
    assert _renewals.keys() <= before
