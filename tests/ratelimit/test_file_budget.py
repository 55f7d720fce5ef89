"""`FileRateBudget`: one budget for the processes of a machine, whatever happens to its file."""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import os
import random
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from drivers import Driver, unique_key
from momopay import AsyncClient, BudgetExhaustedError, Client, ConfigurationError, FileRateBudget
from momopay.sandbox import Sandbox
from ratelimit.kit import ACCOUNT, Caller, Slot, most_in_a_window, take_at_random

BASE = "https://api.example/v1"
PATH = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
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


def used(budget: FileRateBudget, account_hash: str = ACCOUNT) -> float:
    caller = Caller(budget, account_hash)
    try:
        return caller.reserve()
    finally:
        caller.close()


def logs(folder: Path) -> list[Path]:
    """The logs in a folder; a marker is hidden beside each of them."""
    found = sorted(folder.glob("[!.]*"))
    assert sorted(folder.glob(".*")) == [folder / f".{each.name}.used" for each in found]
    return found


def test_by_default_it_is_in_the_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert used(FileRateBudget()) == 0.0
    (file,) = logs(tmp_path)
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
    assert [file.name for file in logs(tmp_path)] == [f"momopay-{'ab' * 16}.budget"]


def test_a_path_names_the_file_or_a_folder_for_all_accounts(tmp_path: Path) -> None:
    used(FileRateBudget(tmp_path / "budget"))
    used(FileRateBudget(str(tmp_path)))
    used(FileRateBudget(tmp_path), "cd" * 32)
    names = [file.name for file in logs(tmp_path)]
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
    (file,) = logs(tmp_path)
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
        import os, sys, threading, time
        from momopay import FileRateBudget
        from ratelimit.kit import Caller
        caller = Caller(FileRateBudget(sys.argv[1], requests=50, window=60.0))
        def take():
            taken = 0
            for _ in range(10):
                while (delay := caller.reserve()) and delay < 1:  # another process has the lock
                    time.sleep(delay)
                taken += delay == 0
            return taken
        assert take() == 10
        write, locked = os.pwrite, threading.Event()
        def pause(*arguments):  # a thread of the parent holds both locks at the fork
            os.pwrite = write
            locked.set()
            time.sleep(0.3)
            return write(*arguments)
        os.pwrite = pause
        thread = threading.Thread(target=caller.reserve)
        thread.start()
        locked.wait()
        child = os.fork()
        if child == 0:
            os._exit(take() != 10)
        assert take() == 10
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        assert [take(), take()] == [10, 9]
    """
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "budget")]
    subprocess.run(command, check=True, timeout=60, env=PATH)


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
        import os, signal, sys
        from momopay import FileRateBudget
        from ratelimit.kit import Caller
        print(Caller(FileRateBudget(sys.argv[1], requests=2, window=60.0)).reserve() == 0, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", code, str(tmp_path / "budget")]
    taken = [subprocess.run(command, stdout=subprocess.PIPE, check=False, env=PATH).stdout for _ in range(3)]
    assert taken == [b"True\n", b"True\n", b"False\n"]


def test_with_a_link_in_its_place_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return balance(request)

    transport = httpx.MockTransport(answer)
    with Client(unique_key(), base_url=BASE, budget=FileRateBudget(), transport=transport) as client:
        client.wallet.balance()
        (file,) = logs(tmp_path)
        file.unlink()
        file.symlink_to(os.devnull)
        with pytest.raises(ConfigurationError, match="Nothing was sent"):
            client.wallet.balance()
    assert len(sent) == 1


# The log, by a clock of the test's own.


def process(path: Path, requests: int = 3, window: float = 60.0) -> Caller:
    return Caller(FileRateBudget(path, requests=requests, window=window), time=1000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


def test_all_who_use_the_file_share_its_slots(path: Path) -> None:
    one, other = process(path), process(path)
    assert [each.reserve() for each in (one, other, one)] == [0.0] * 3
    other.time = 1020.0
    assert other.reserve() == 40.0


def test_the_file_and_its_marker_are_their_owners_alone(path: Path) -> None:
    umask = os.umask(0)
    try:
        process(path).reserve()
    finally:
        os.umask(umask)
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}


def test_it_survives_those_who_use_it(path: Path) -> None:
    for _ in range(3):
        caller = process(path)
        assert caller.reserve() == 0.0
        caller.close()
    assert process(path).reserve() == 60.0


def test_a_file_that_was_closed_opens_again(path: Path) -> None:
    caller = process(path)
    assert caller.reserve() == 0.0
    caller.leave()
    caller.close()
    assert caller.at_once(5) == 2


def test_after_a_restart_of_the_machine_the_log_counts_as_written_just_now(path: Path) -> None:
    assert process(path).at_once(3) == 3
    caller = process(path)
    caller.time = 5.0
    assert caller.reserve() == 60.0


# What happened to it.


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def cut(path: Path) -> None:
    os.truncate(path, 40)


def overwrite(path: Path) -> None:
    path.write_text("garbage")


def zero(path: Path) -> None:
    path.write_bytes(b"\0" * 4096)


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_text("garbage")
    other.chmod(0o600)
    other.rename(path)


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("damage", [truncate, cut, overwrite, zero, delete, replace])
def test_a_damaged_file_counts_as_full_whoever_comes_first(
    path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture, *, is_new: bool
) -> None:
    one, other = process(path), process(path)
    assert one.at_once(2) == 2
    other.reserve()
    damage(path)
    if is_new:
        one, other = process(path), process(path)
    for now in (1000.0, 1000.5, 1059.9):
        one.time = other.time = now
        assert [each.reserve() > 0 for each in (one, other)] == [True, True]
    one.time = other.time = 1061.1
    assert one.at_once(3) + other.at_once(3) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "was damaged or deleted: no request for 60 s" in caplog.text


def test_the_first_use_ever_begins_with_a_free_window_even_in_a_file_that_was_prepared(path: Path) -> None:
    path.touch(mode=0o660)  # for processes of several users
    assert process(path).at_once(3) == 3


def test_where_nobody_can_leave_a_marker_an_empty_file_counts_as_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(*_arguments: Any, **_options: Any) -> None:
        raise PermissionError  # in a folder of another user, which root may write in even so

    path.touch(mode=0o660)
    monkeypatch.setattr(Path, "touch", touch)
    caller = process(path)
    assert caller.reserve() == 60.0
    caller.time = 1060.0
    assert caller.at_once(4) == 3


def test_a_marker_that_was_cleaned_away_comes_back(path: Path) -> None:
    marker = path.with_name(".budget.used")
    process(path).reserve()
    marker.unlink()
    assert process(path).at_once(3) == 2  # and the log counts
    assert marker.exists()


def test_a_process_that_has_used_the_budget_needs_no_marker(path: Path) -> None:
    caller = process(path)
    caller.reserve()
    for each in path.parent.iterdir():
        each.unlink()
    assert caller.reserve() == 60.0


def attack(path: Path, seed: int, *, with_marker: bool = False) -> int:
    """Delete the file at random moments; return the most slots that were taken in one window."""
    chance, slots, now, gone = random.Random(seed), list[Slot](), 1000.0, path.with_name(".budget.used")

    def join() -> Caller:
        caller = process(path, requests=6)
        caller.time = now
        return caller

    callers = [join() for _ in range(4)]
    for _ in range(150):
        now += chance.choice([0.0, 0.1, 1.0, 10.0, chance.uniform(0.0, 60.0)])
        for caller in callers:
            caller.time = now
        if chance.random() < 0.1:
            path.unlink(missing_ok=True)
            if with_marker:
                gone.unlink()
                callers = [join()]
        take_at_random(chance, callers, join, slots, calls=3)
    for caller in callers:
        caller.close()
    return most_in_a_window([Slot(slot.after, slot.before - 1e-9) for slot in slots], 60.0)


@pytest.mark.parametrize("seed", range(8))
def test_no_window_is_overrun_when_the_file_is_deleted(path: Path, seed: int) -> None:
    assert attack(path, seed) == 6, f"{seed=}"


def test_with_its_marker_deleted_too_a_budget_forgets(path: Path) -> None:
    """So the attack can find what it looks for."""
    assert attack(path, 1, with_marker=True) > 6


# Whose it is.


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(ConfigurationError, match=r"cannot be used .* remove it, or give .* Nothing was sent"):
        process(path).reserve()
    assert victim.read_text() == "precious"


def test_a_marker_that_is_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.with_name(".budget.used").symlink_to(tmp_path / "victim")
    assert process(path).reserve() == 60.0
    assert not (tmp_path / "victim").exists()


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a budget without a path, which is in a folder where others may write."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / f"momopay-{ACCOUNT[:32]}.budget"


def test_a_second_name_of_a_file_is_refused(private: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    os.link(victim, private)
    with pytest.raises(ConfigurationError, match="another name"):
        used(FileRateBudget())
    assert victim.read_text() == "precious"


def test_a_file_of_another_user_is_refused_unless_it_was_named(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used(FileRateBudget())
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        used(FileRateBudget())
    assert used(FileRateBudget(private)) == 0.0


def test_a_file_that_everybody_may_write_is_refused(private: Path) -> None:
    private.touch()
    private.chmod(0o666)
    for budget in (FileRateBudget(), FileRateBudget(private)):
        with pytest.raises(ConfigurationError, match="written by everybody"):
            used(budget)


def test_what_is_no_file_is_refused(path: Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigurationError, match="is not a file"):
        process(path).reserve()
    path.unlink()
    caller = process(path)
    caller.reserve()
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        caller.reserve()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        process(tmp_path / "nowhere" / "budget").reserve()


def test_an_exception_of_a_signal_handler_is_not_taken_for_a_broken_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> int:
        raise TimeoutError  # as many a handler of SIGALRM does; it is an OSError

    caller = process(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", end)
        with pytest.raises(TimeoutError):
            caller.reserve()
    assert process(path).reserve() > 0.25  # the lock is free; the file is new and has a marker, so it counts as full


# Who has the lock.


def test_nobody_waits_for_the_lock_and_nothing_is_sent_without_it(path: Path) -> None:
    caller = process(path)
    caller.reserve()
    with path.open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        begun = time.monotonic()
        delays = [caller.reserve() for _ in range(12)]
        assert time.monotonic() - begun < 5.0
        assert delays == [0.001 * 2**number for number in range(8)] + [0.25] * 4
        caller.stop(30.0)
    assert caller.reserve() == 30.0  # the stop was kept until the file could be written
    assert caller.at_once(3) == 0


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_a_process_that_dies_or_stops_with_the_lock_holds_up_nobody_who_comes_after_it(path: Path, signal: str) -> None:
    code = f"""if True:
        import os, signal, sys
        from momopay import FileRateBudget
        from ratelimit.kit import Caller
        def die(*_): os.kill(os.getpid(), signal.{signal})
        os.pwrite = die
        Caller(FileRateBudget(sys.argv[1], requests=3, window=60.0), time=1000.0).reserve()
    """
    caller = process(path)
    assert caller.reserve() == 0.0
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], env=PATH)
    try:
        if signal == "SIGSTOP":
            os.waitpid(child.pid, os.WUNTRACED)
            assert 0 < caller.reserve() <= 0.25
        child.kill()
    finally:
        child.wait(20)
    assert caller.at_once(3) == 2


def test_no_slot_that_a_thread_takes_is_lost(path: Path) -> None:
    caller, interval = process(path, requests=200), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            taken = list(threads.map(caller.at_once, [25] * 8))
    finally:
        sys.setswitchinterval(interval)
    assert sum(taken) == 200
    assert len(json.loads(path.read_text().partition("\n")[0])["slots"]) == 200


def test_threads_of_processes_take_no_slot_twice(path: Path) -> None:
    code = """if True:
        import sys, time
        from concurrent.futures import ThreadPoolExecutor
        from momopay import FileRateBudget
        from ratelimit.kit import Caller
        caller = Caller(FileRateBudget(sys.argv[1], requests=40, window=60.0))
        def take(_):
            for _ in range(1000):
                delay = caller.reserve()
                if delay == 0 or delay > 1:
                    return delay == 0
                time.sleep(delay)  # another process has the lock
        with ThreadPoolExecutor(8) as threads:
            print(sum(threads.map(take, range(40))))
    """
    command = [sys.executable, "-c", code, str(path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, env=PATH) for _ in range(3)]
    assert sum(int(child.communicate(timeout=60)[0]) for child in children) == 40
