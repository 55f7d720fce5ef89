"""A payer that is frozen while another process pays sends nothing when it thaws."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from safety.kit import HOUR, TESTS, Shop


@contextmanager
def frozen_payer(shop: Shop, url: str, client_kind: str, deadline: float) -> Generator[subprocess.Popen[str]]:
    """Run a payer of PAY-1 that is frozen between its row and its request; FIRST was paid before."""
    arguments = [sys.executable, "-m", "safety.frozen", client_kind, url, shop.sandbox.base_url, shop.key]
    payer = subprocess.Popen([*arguments, str(deadline)], cwd=TESTS, stdout=subprocess.PIPE, text=True)
    assert payer.stdout is not None
    try:
        _, status = os.waitpid(payer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "the payer ended before it was frozen"
        yield payer
    finally:
        payer.kill()
        payer.wait()
        payer.stdout.close()


@pytest.mark.parametrize(
    ("client_kind", "deadline"), [pytest.param("blocking", 30.0, marks=pytest.mark.whole), ("async", 0.8)]
)
def test_a_payer_that_thawed_and_was_superseded_may_have_paid(
    shop: Shop, url: str, client_kind: str, deadline: float
) -> None:
    """A person released it, another process paid; it sends nothing, and must not say that nothing moved.

    It thaws within its deadline, or after it.
    """
    with frozen_payer(shop, url, client_kind, deadline) as payer:
        shop.clock.ahead += HOUR
        shop.release()
        shop.pay()
        time.sleep(1.1)  # past the shorter deadline, and its row is not one that was committed just now
        payer.send_signal(signal.SIGCONT)
        said, _ = payer.communicate(timeout=60)
    assert said.split()[1:] == ["True"], said
    assert shop.paid_out == {"FIRST": 100, "PAY-1": 100}
