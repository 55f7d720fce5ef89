"""`FileRateBudget`: one budget for the processes of a machine, whatever happens to its file."""

import multiprocessing
import os
import signal
import stat
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import httpx
import pytest

from bodies import balance
from drivers import Drive, unique_key
from forked import in_a_fork
from momopay import BudgetExhaustedError, Client, ConfigurationError, FileRateBudget, RateBudget, RateLimitExceededError
from momopay._ratelimit import file_budget
from momopay._ratelimit.file_budget import SharedState
from momopay.sandbox import Sandbox
from ratelimit.kit import ACCOUNT, BASE, Caller

# Where the file is.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


def used(budget: FileRateBudget, account_hash: str = ACCOUNT) -> float:
    caller = Caller(budget, account_hash)
    try:
        return caller.reserve()
    finally:
        caller.close()


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_by_default_it_is_in_the_runtime_folder_one_for_each_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    budget = FileRateBudget(requests=1)
    assert repr(FileRateBudget()) == "FileRateBudget(requests=58, window=61.0)"
    assert [used(budget, name * 32) for name in ("ab", "cd")] == [0.0, 0.0]
    assert used(budget, "ab" * 32) > 0
    assert names(tmp_path) == [f"momopay-{'ab' * 16}.budget", f"momopay-{'cd' * 16}.budget"]
    folder = tmp_path / "of a path"
    folder.mkdir()
    for given in (PurePath(folder, "budget"), str(folder)):
        used(FileRateBudget(given))
    assert names(folder) == ["budget", f"momopay-{'ab' * 16}.budget"]
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        used(FileRateBudget(tmp_path / "nowhere" / "budget"))


@pytest.mark.parametrize("runtime", [None, "", "relative", "/nowhere/at/all"])
def test_without_a_runtime_folder_it_is_in_the_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str | None
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert used(FileRateBudget()) == 0.0
    assert names(tmp_path) == [f"momopay-{'ab' * 16}.budget"]


def test_a_path_that_no_file_can_have_is_refused_when_a_budget_is_made() -> None:
    for path in ("a\0b", Path("a\0b"), b"a"):
        with pytest.raises(ConfigurationError, match="path"):
            FileRateBudget(path)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_the_file_holds_neither_key_nor_address(tmp_path: Path) -> None:
    key, transport = unique_key(), httpx.MockTransport(balance)
    with Client(key, base_url=BASE, budget=FileRateBudget(tmp_path), transport=transport) as client:
        client.wallet.balance()
    (file,) = tmp_path.iterdir()
    stored = file.name + file.read_text()
    assert key not in stored
    assert "example" not in stored


def test_processes_overrun_the_service_unless_they_share_a_budget(
    drive: Drive, tmp_path: Path, sandbox: Sandbox
) -> None:
    for shared in (True, False):
        key = unique_key()
        sandbox.account(key).switches.rate_window = "sliding"
        budgets = [FileRateBudget(tmp_path) if shared else RateBudget() for _ in range(2)]
        processes = [drive(api_key=key, base_url=sandbox.base_url, deadline=20.0, budget=each) for each in budgets]
        before = len(sandbox.requests)
        for number in range(70):
            with suppress(BudgetExhaustedError, RateLimitExceededError):
                processes[number % 2](lambda client: client.wallet.balance())
        answers = Counter(request.status for request in sandbox.requests[before:])
        assert answers[200] == (58 if shared else 60)
        assert (answers[429] == 0) == shared


# The log, by a clock of the test's own.


def process(path: Path, requests: int = 3, window: float = 60.0, time: float | None = 1000.0) -> Caller:
    return Caller(FileRateBudget(path, requests=requests, window=window), time=time)


def test_all_who_use_the_file_share_its_slots(path: Path) -> None:
    """Whoever ends or is closed meanwhile, and after a restart of the machine, when the clock begins anew."""
    umask = os.umask(0)
    one, other = process(path), process(path)
    try:
        assert [each.reserve() for each in (one, other)] == [0.0] * 2
    finally:
        os.umask(umask)
    if sys.platform != "win32":  # which has no modes
        assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
    one.close()
    assert one.at_once(5) == 1
    other.time = 1020.0
    assert other.reserve() == 40.0
    restarted = process(path)
    restarted.time = 5.0
    assert restarted.reserve() == 40.0


def test_closing_waits_for_a_change_that_another_thread_is_making(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the log might be written to another file, which was given the closed descriptor's number."""
    caller, write = process(path), file_budget._write
    closing = threading.Thread(target=caller.budget.close)

    def write_later(*arguments: Any) -> None:
        closing.start()
        closing.join(0.05)
        write(*arguments)

    monkeypatch.setattr(file_budget, "_write", write_later)
    assert caller.reserve() == 0.0
    closing.join()


def test_a_log_of_thousands_of_requests_is_read_whole(path: Path) -> None:
    path.write_bytes(SharedState.full(6000, 60.0, 939.123456789).dump(939.2))
    assert process(path, requests=6000).reserve() == 0.0  # the window of a damaged one would be full


# What happened to it.


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_text("garbage")
    other.chmod(0o600)
    other.rename(path)


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("damage", [partial(os.truncate, length=0), Path.unlink, replace])
def test_a_lost_log_counts_as_full_for_who_has_used_it_and_a_damaged_one_for_all(
    path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture, *, is_new: bool
) -> None:
    one, other = process(path), process(path)
    assert one.at_once(2) == 2
    other.reserve()
    damage(path)
    if is_new:
        one, other = process(path), process(path)
    if is_new and damage is not replace:
        assert one.at_once(4) == 3  # nothing shows that the budget was ever used
        return
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


# Whose it is.


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(ConfigurationError, match=r"cannot be used .* remove it, or give .* Nothing was sent"):
        process(path).reserve()
    assert victim.read_text() == "precious"


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
    assert used(FileRateBudget(private)) == pytest.approx(61.0)  # it was named, so the second name is the user's affair


def test_a_file_of_another_user_is_refused_unless_it_was_named(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used(FileRateBudget())
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        used(FileRateBudget())
    assert used(FileRateBudget(private)) == 0.0


def test_a_file_that_everybody_may_write_is_refused(private: Path) -> None:
    private.touch()
    private.chmod(0o666)
    for caller in [Caller(FileRateBudget()), Caller(FileRateBudget(private))] * 2:
        with pytest.raises(ConfigurationError, match="written by everybody"):
            caller.reserve()


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


def test_an_exception_of_a_signal_handler_is_not_taken_for_a_broken_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise TimeoutError  # as many a handler of SIGALRM does; it is an OSError

    caller = process(path)
    with monkeypatch.context() as patch:
        patch.setattr(file_budget, "_write", end)
        with pytest.raises(TimeoutError):
            caller.reserve()
    assert process(path).reserve() == 0.0  # the lock is free


def test_an_interrupt_in_an_audit_hook_leaves_the_file_unlocked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before `flock` does anything, hooks of `sys.addaudithook` run, which libraries write in Python."""

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    caller = process(path)
    with monkeypatch.context() as patch:
        patch.setattr(file_budget, "_unlock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            caller.reserve()
    with path.open("r+") as other:
        file_budget._lock(other.fileno())


# Who has the lock.


def test_the_child_of_a_fork_keeps_no_file_of_its_parent_open(path: Path) -> None:
    """Otherwise it would keep the lock that a thread of its parent held at the fork."""
    caller = process(path)
    caller.reserve()

    def is_open() -> bool:
        return any(each.exists() and each.samefile(path) for each in Path("/dev/fd").iterdir())

    assert is_open()
    assert in_a_fork(lambda: os._exit(is_open())) == 0


def test_nobody_waits_for_the_lock_and_nothing_is_sent_without_it(path: Path) -> None:
    caller = process(path, time=None)
    caller.reserve()
    with path.open("r+") as other:
        file_budget._lock(other.fileno())
        assert 0 < caller.reserve() <= 0.25  # seconds until it would ask again
        caller.stop(30.0)
        caller.stop(5.0)  # another answer, which names the shorter pause
    assert 25.0 < caller.reserve() <= 30.0  # the stop was kept until the file could be written
    assert 25.0 < process(path, time=None).reserve() <= 30.0
    assert caller.at_once(3) == 0


def test_a_process_that_stops_or_dies_with_the_lock_holds_up_nobody_who_comes_after_it(path: Path) -> None:
    """What it took before counts: a worker in a crash loop stays within the budget."""
    caller = process(path, time=None)

    def die() -> None:
        def stop(*_arguments: object) -> None:
            os.kill(os.getpid(), signal.SIGSTOP)

        crashing = process(path, time=None)
        crashing.reserve()
        setattr(os, "pwrite", stop)  # noqa: B010  the checkers refuse an assignment
        crashing.reserve()

    child = multiprocessing.get_context("fork").Process(target=die)
    child.start()
    try:
        os.waitpid(child.pid or 0, os.WUNTRACED)
        assert 0 < caller.reserve() <= 0.25
    finally:
        child.kill()
        child.join(20)
    assert caller.at_once(3) == 2
