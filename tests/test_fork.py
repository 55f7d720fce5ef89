"""What is renewed in the child of a fork."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from forked import succeeds_in_child
from in_turn import some_by_default
from momopay._fork import _renewed, renew_in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")


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
    renewals, before = list[int](), set(_renewed.keys())

    class Dropped:
        def renew(self) -> None:
            renewals.append(1)

    for _ in range(10):
        renew_in_child(Dropped().renew)
    assert succeeds_in_child(lambda: renewals and os._exit(2))
    assert set(_renewed.keys()) <= before


ENDS = """
import asyncio, sys
import httpx
from momopay import AsyncClient, Client

kind, end, journal = sys.argv[1:]

def answer(request):
    if end == "ctrl-c":
        raise KeyboardInterrupt
    if end == "error":
        return httpx.Response(500)
    wallet = {"walletId": "w", "availableBalance": 5, "ledgerBalance": 5, "updatedAt": "2026-11-20T10:00:00Z"}
    return httpx.Response(200, json={"success": True, "data": wallet})

client_class = Client if kind == "sync" else AsyncClient
options = {"transport": httpx.MockTransport(answer), "max_attempts": 1, "journal": journal}
client = client_class("pk_test_x", base_url="http://127.0.0.1:1/v1", **options)
client.journal.get("r")

async def read():
    await client.wallet.balance()

try:
    client.wallet.balance() if kind == "sync" else asyncio.run(read())
except (Exception, KeyboardInterrupt) as error:
    print(type(error).__name__)
if end == "exit":
    sys.exit(3)
"""


OTHER_ENDS = [("sync", "success"), ("sync", "error"), ("sync", "ctrl-c"), ("async", "exit"), ("async", "ctrl-c")]


@pytest.mark.parametrize(
    ("kind", "end"),
    some_by_default([("sync", "exit"), *OTHER_ENDS]),
)
def test_a_script_that_does_not_close_its_client_ends_without_a_word(kind: str, end: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDS, kind, end, f"sqlite:///{tmp_path}/payments.db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = {"error": "ServerError\n", "ctrl-c": "KeyboardInterrupt\n"}.get(end, "")
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 3 if end == "exit" else 0)
