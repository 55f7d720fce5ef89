"""The file: whose it is, who holds its lock, and what may have happened to it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from momopay import ConfigurationError, Lane
from momopay._ratelimit import file_log
from momopay._ratelimit.file_log import FileLog
from momopay._ratelimit.lane import ALONE, Place


class Process:
    """One process's log, by a clock of the test's own."""

    def __init__(self, path: Path, requests: int = 3, window: float = 60.0, *, is_private: bool = True) -> None:
        self.now = 1000.0
        self.log = FileLog(str(path), requests, window, is_private=is_private)

    def reserve(self, lane: Lane = Lane.PAYMENT, place: Place = ALONE) -> float:
        return self.log.reserve_now(lambda: self.now, lane, place)

    def at_once(self, calls: int) -> int:
        return [self.reserve() for _ in range(calls)].count(0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


def test_all_who_use_the_file_share_its_slots(path: Path) -> None:
    one, other = Process(path), Process(path)
    assert [each.reserve() for each in (one, other, one)] == [0.0] * 3
    other.now = 1020.0
    assert other.reserve() == 40.0


def test_it_is_its_owners_alone(path: Path) -> None:
    umask = os.umask(0)
    try:
        Process(path).reserve()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_survives_those_who_use_it(path: Path) -> None:
    for _ in range(3):
        process = Process(path)
        assert process.reserve() == 0.0
        process.log.close()
    assert Process(path).reserve() == 60.0


def test_a_file_that_was_closed_opens_again(path: Path) -> None:
    process = Process(path)
    assert process.reserve() == 0.0
    process.log.close()
    process.log.close()
    assert process.at_once(5) == 2


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


@pytest.mark.parametrize("damage", [truncate, cut, overwrite, zero, delete, replace])
def test_a_damaged_file_counts_as_full(
    path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = Process(path), Process(path)
    assert one.at_once(2) == 2
    other.reserve()
    damage(path)
    for now in (1000.0, 1000.5, 1001.0, 1001.5, 1059.9):
        one.now = other.now = now
        assert [each.reserve() > 0 for each in (one, other)] == [True, True]
    one.now = other.now = 1061.1
    assert one.at_once(3) + other.at_once(3) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no request for 60 s" in caplog.text


def test_a_file_that_another_process_is_just_making_is_waited_for(path: Path) -> None:
    process = Process(path)
    path.touch(mode=0o600)
    assert process.reserve() == 0.001
    maker = Process(path)
    maker.log._is_new = True
    maker.log._open()
    maker.log._is_new = True
    assert maker.reserve() == 0.0
    assert process.reserve() == 0.0


# Whose it is.


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(ConfigurationError, match=r"cannot be used .* remove it, or give .* Nothing was sent"):
        Process(path).reserve()
    assert victim.read_text() == "precious"


def test_a_second_name_of_a_file_is_refused(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    os.link(victim, path)
    with pytest.raises(ConfigurationError, match="another name"):
        Process(path).reserve()
    assert victim.read_text() == "precious"


def test_a_file_of_another_user_is_refused_unless_it_was_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Process(path).reserve()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        Process(path).reserve()
    assert Process(path, is_private=False).reserve() == 0.0


@pytest.mark.parametrize("is_private", [True, False])
def test_a_file_that_everybody_may_write_is_refused(path: Path, *, is_private: bool) -> None:
    path.touch()
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="written by everybody"):
        Process(path, is_private=is_private).reserve()


def test_what_is_no_file_is_refused(path: Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigurationError, match="not a file"):
        Process(path).reserve()
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Process(path).reserve()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        Process(tmp_path / "nowhere" / "budget").reserve()


# Who has the lock.


def test_nobody_waits_for_the_lock_and_nothing_is_sent_without_it(path: Path) -> None:
    process = Process(path)
    process.reserve()
    with path.open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        begun = time.monotonic()
        delays = [process.reserve() for _ in range(12)]
        assert time.monotonic() - begun < 5.0
        assert delays == [0.001 * 2**number for number in range(8)] + [0.25] * 4
        process.log.stop(lambda: process.now, 30.0)
    assert process.reserve() == 30.0  # the stop was kept until the file could be written
    assert process.at_once(3) == 0


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_a_process_that_dies_or_stops_with_the_lock_wedges_nobody_who_comes_after_it(path: Path, signal: str) -> None:
    code = f"""if True:
        import os, signal, sys
        from momopay._ratelimit import file_log, lane
        def die(*_): os.kill(os.getpid(), signal.{signal})
        os.pwrite = die
        log = file_log.FileLog(sys.argv[1], 3, 60.0, is_private=True)
        log.reserve_now(lambda: 1000.0, lane.Lane.READ, lane.ALONE)
    """
    process = Process(path)
    assert process.reserve() == 0.0
    child = subprocess.Popen([sys.executable, "-c", code, str(path)])
    try:
        if signal == "SIGSTOP":
            os.waitpid(child.pid, os.WUNTRACED)
            assert 0 < process.reserve() <= 0.25
        child.kill()
    finally:
        child.wait(20)
    assert process.at_once(3) == 2


def test_no_slot_that_a_thread_takes_is_lost(path: Path) -> None:
    process, interval = Process(path, requests=200), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            taken = list(threads.map(process.at_once, [25] * 8))
    finally:
        sys.setswitchinterval(interval)
    assert sum(taken) == 200
    assert len(json.loads(path.read_text().partition("\n")[0])["slots"]) == 200


def test_threads_of_processes_take_no_slot_twice(path: Path) -> None:
    code = """if True:
        import sys, time
        from concurrent.futures import ThreadPoolExecutor
        from momopay import Lane
        from momopay._ratelimit import file_log, lane
        log = file_log.FileLog(sys.argv[1], 40, 60.0, is_private=True)
        def take(_):
            for _ in range(1000):
                delay = log.reserve_now(time.monotonic, Lane.READ, lane.ALONE)
                if delay == 0 or delay > 1:
                    return delay == 0
                time.sleep(delay)  # another process has the lock
        with ThreadPoolExecutor(8) as threads:
            print(sum(threads.map(take, range(40))))
    """
    command = [sys.executable, "-c", code, str(path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    assert sum(int(child.communicate(timeout=60)[0]) for child in children) == 40


def test_a_slow_start_of_a_file_is_bounded(path: Path) -> None:
    path.touch(mode=0o600)  # whoever made it died before it wrote
    process = Process(path)
    assert process.reserve() < 1.0
    process.now += file_log._NEW / 1e6
    assert process.reserve() == 60.0
