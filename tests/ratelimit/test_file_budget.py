"""`FileRateBudget`: one budget for the processes of a machine, in both clients."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from drivers import Driver, unique_key
from momopay import AsyncClient, BudgetExhaustedError, Client, ConfigurationError, FileRateBudget, Lane
from momopay._ratelimit.lane import ALONE
from momopay._transport.sync_backend import SyncBackend
from momopay.sandbox import Sandbox

BASE = "https://api.example/v1"
MakeDriver = Callable[..., Driver]


def balance(_request: httpx.Request) -> httpx.Response:
    data = {"walletId": "w", "tenantId": "t", "currency": "KES", "availableBalance": 1, "ledgerBalance": 1}
    data["updatedAt"] = "2026-01-05T09:00:00Z"
    return httpx.Response(200, json={"success": True, "data": data, "requestId": "r"})


def refusal(_request: httpx.Request) -> httpx.Response:
    details = {"limit": 60, "remaining": 0, "resetInSeconds": 30}
    error = {"code": "RATE_LIMIT_EXCEEDED", "message": "no", "details": details}
    return httpx.Response(429, json={"success": False, "error": error, "requestId": "r"})


def test_clients_of_either_kind_share_the_file(drive: MakeDriver, tmp_path: Path) -> None:
    key, transport = unique_key(), httpx.MockTransport(balance)
    options: dict[str, Any] = {"api_key": key, "deadline": 5.0, "transport": transport}
    one, other = (drive(budget=FileRateBudget(tmp_path / "budget", requests=3, window=30.0), **options) for _ in "12")
    for each in (one, other, one):
        each(lambda client: client.wallet.balance())
    for each in (one, other):
        with pytest.raises(BudgetExhaustedError) as caught:
            each(lambda client: client.wallet.balance())
        assert caught.value.retry_after == pytest.approx(30.0, abs=2.0)


def test_a_call_waits_for_its_slot(drive: MakeDriver, tmp_path: Path) -> None:
    budget = FileRateBudget(tmp_path / "budget", requests=1, window=0.3)
    sdk = drive(api_key=unique_key(), budget=budget, transport=httpx.MockTransport(balance))
    begun = time.monotonic()
    for _ in range(3):
        sdk(lambda client: client.wallet.balance())
    assert time.monotonic() - begun >= 0.6


def test_a_429_stops_every_process(drive: MakeDriver, tmp_path: Path) -> None:
    options: dict[str, Any] = {"api_key": unique_key(), "deadline": 5.0, "max_attempts": 1}

    def sdk(answer: Callable[[httpx.Request], httpx.Response]) -> Driver:
        return drive(budget=FileRateBudget(tmp_path / "budget"), transport=httpx.MockTransport(answer), **options)

    limited, other = sdk(refusal), sdk(balance)
    other(lambda client: client.wallet.balance())
    with pytest.raises(Exception, match="no"):
        limited(lambda client: client.wallet.balance())
    with pytest.raises(BudgetExhaustedError) as caught:
        other(lambda client: client.wallet.balance())
    assert caught.value.retry_after == pytest.approx(30.0, abs=2.0)


def test_a_hundred_tasks_hold_the_event_loop_up_for_no_time_worth_naming(tmp_path: Path) -> None:
    async def work() -> float:
        budget = FileRateBudget(tmp_path / "budget", requests=50, window=0.2)
        transport = httpx.MockTransport(balance)
        async with AsyncClient(unique_key(), base_url=BASE, budget=budget, transport=transport) as client:
            await client.wallet.balance()  # what the first call loads
            calls = [asyncio.create_task(client.wallet.balance()) for _ in range(100)]
            longest = 0.0
            while not all(call.done() for call in calls):
                begun = time.monotonic()
                await asyncio.sleep(0)
                longest = max(longest, time.monotonic() - begun)
            await asyncio.gather(*calls)
            return longest

    assert asyncio.run(work()) < 2.0  # a defect, which would wait for the lock, never ends


# Where the file is.


def used(budget: FileRateBudget, account_hash: str = "ab" * 32) -> float:
    slots = budget.slots(SyncBackend(), account_hash)
    delay: float = slots.reserve_now(0.0, Lane.READ, ALONE)
    budget.close()
    return delay


def test_by_default_it_is_in_the_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert used(FileRateBudget()) == 0.0
    (file,) = tmp_path.iterdir()
    assert file.name == f"momopay-{'ab' * 16}.budget"


@pytest.mark.parametrize("runtime", [None, "", "relative", "/nowhere/at/all"])
def test_without_a_runtime_folder_it_is_in_the_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str | None
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert used(FileRateBudget()) == 0.0
    assert [file.name for file in tmp_path.iterdir()] == [f"momopay-{'ab' * 16}.budget"]


def test_a_path_names_the_file_or_a_folder_for_all_accounts(tmp_path: Path) -> None:
    used(FileRateBudget(tmp_path / "budget"))
    used(FileRateBudget(str(tmp_path)))
    used(FileRateBudget(tmp_path), "cd" * 32)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["budget", f"momopay-{'ab' * 16}.budget", f"momopay-{'cd' * 16}.budget"]


def test_accounts_have_budgets_of_their_own_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    budget = FileRateBudget(requests=1)
    assert [used(budget, name * 32) for name in ("ab", "cd")] == [0.0, 0.0]
    assert used(budget, "ab" * 32) > 0


def test_the_file_holds_neither_key_nor_address(tmp_path: Path) -> None:
    key, transport = unique_key(), httpx.MockTransport(balance)
    with Client(key, base_url=BASE, budget=FileRateBudget(tmp_path), transport=transport) as client:
        client.wallet.balance()
    (file,) = tmp_path.iterdir()
    stored = file.name + file.read_text()
    assert key not in stored
    assert "example" not in stored


@pytest.mark.parametrize(
    "options",
    [
        *({"requests": wrong} for wrong in (0, 58.5, True)),
        *({"window": wrong} for wrong in (0.0, math.inf, "61")),
        {"path": 7},
        {"path": b"x"},
    ],
)
def test_an_argument_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        FileRateBudget(**options)


def test_it_shows_where_it_is(tmp_path: Path) -> None:
    assert repr(FileRateBudget()) == "FileRateBudget(requests=58, window=61.0)"
    assert repr(FileRateBudget(tmp_path / "b")) == f"FileRateBudget({str(tmp_path / 'b')!r}, requests=58, window=61.0)"


# Processes.


def test_the_child_of_a_fork_shares_the_file_and_not_the_lock(tmp_path: Path) -> None:
    code = """if True:
        import fcntl, os, sys, time
        from momopay import FileRateBudget, Lane
        from momopay._ratelimit.lane import ALONE
        from momopay._transport.sync_backend import SyncBackend
        slots = FileRateBudget(sys.argv[1], requests=40, window=60.0).slots(SyncBackend(), "ab" * 32)
        def take():
            taken = 0
            for _ in range(10):
                while (delay := slots.reserve_now(0.0, Lane.PAYMENT, ALONE)) and delay < 1:
                    time.sleep(delay)
                taken += delay == 0
            return taken
        assert take() == 10
        descriptor = slots.log()._descriptor
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # as another thread may
        child = os.fork()
        if child == 0:
            assert 0 < slots.reserve_now(0.0, Lane.PAYMENT, ALONE) < 1
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        child = os.fork()
        assert take() == 10
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert take() + take() == 10
    """
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path / "budget")], check=True, timeout=60)


def test_processes_overrun_the_service_unless_they_share_a_budget(tmp_path: Path) -> None:
    code = """if True:
        import contextlib, sys
        from momopay import BudgetExhaustedError, Client, FileRateBudget, RateLimitExceededError
        key, base_url, *path = sys.argv[1:]
        options = {"budget": FileRateBudget(*path)} if path else {}
        client = Client(key, base_url=base_url, deadline=20.0, **options)
        for _ in range(35):
            with contextlib.suppress(BudgetExhaustedError, RateLimitExceededError):
                client.wallet.balance()
    """
    with Sandbox() as sandbox:
        for path in [str(tmp_path)], []:
            key = unique_key()
            sandbox.account(key).switches.rate_window = "sliding"
            before = len(sandbox.requests)
            command = [sys.executable, "-c", code, key, sandbox.base_url, *path]
            children = [subprocess.Popen(command) for _ in range(2)]
            assert [child.wait(timeout=60) for child in children] == [0, 0]
            answers = Counter(request.status for request in sandbox.requests[before:])
            assert answers[200] == (58 if path else 60)
            assert (answers[429] == 0) == bool(path)


def test_a_worker_in_a_crash_loop_stays_within_the_budget(tmp_path: Path) -> None:
    code = """if True:
        import os, signal, sys, time
        from momopay import FileRateBudget, Lane
        from momopay._ratelimit.lane import ALONE
        from momopay._transport.sync_backend import SyncBackend
        slots = FileRateBudget(sys.argv[1], requests=2, window=60.0).slots(SyncBackend(), "ab" * 32)
        print(slots.reserve_now(0.0, Lane.PAYMENT, ALONE) == 0, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", code, str(tmp_path / "budget")]
    taken = [subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout == b"True\n" for _ in range(3)]
    assert taken == [True, True, False]


def test_with_a_link_in_its_place_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return balance(request)

    transport = httpx.MockTransport(answer)
    with Client(unique_key(), base_url=BASE, budget=FileRateBudget(), transport=transport) as client:
        client.wallet.balance()
        (file,) = tmp_path.iterdir()
        file.unlink()
        file.symlink_to(os.devnull)
        with pytest.raises(ConfigurationError, match="Nothing was sent"):
            client.wallet.balance()
    assert len(sent) == 1
