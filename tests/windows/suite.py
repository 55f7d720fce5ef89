"""The default tests on Windows' Python under Wine: suite FOLDER [PATH ...], with the folder that setup.sh made.

Each folder of tests is run by a process of its own, two at a time, so that one that crashes or hangs loses no other.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from time import monotonic
from typing import Any

TESTS = Path(__file__).parents[1]
LONGEST = 1800  # seconds of one folder


class Recorder:
    """Write what begins and what ends, at once: a process that is killed has shown where it was."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115  the process ends with it

    def _write(self, *values: str) -> None:
        self._file.write(json.dumps(values) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("begun", nodeid, "")

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome == "skipped":
            self._write("skipped", report.nodeid, report.longrepr[2].removeprefix("Skipped: "))
        elif report.outcome == "failed" or getattr(report, "when", "") == "call":
            said = [report.longreprtext, *(text for _, text in report.sections)] if report.failed else []
            self._write(report.outcome, report.nodeid, "\n".join(said))


def _itself(sock: Any, **_options: object) -> Any:
    from trio._core._windows_cffi import _handle

    return _handle(sock.fileno() if hasattr(sock, "fileno") else sock)


def run_here(path: str, temporary: str, *arguments: str) -> None:
    """Run tests on this Python, that of Windows."""
    import pytest
    from trio._core import _io_windows as trio_on_windows

    # Wine does not answer SIO_BASE_HANDLE, by which trio looks beneath a socket; without a virus scanner's layers, the
    # socket itself is what it finds.
    setattr(trio_on_windows, "_get_underlying_socket", _itself)  # noqa: B010  the checkers refuse an assignment
    os.chdir(TESTS.parent)
    # Wine leaves handles to close to the collector of garbage, in whatever test that runs.
    options = [
        "--tb=short",
        "--continue-on-collection-errors",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    ]
    code = pytest.main([*options, f"--basetemp={temporary}", *arguments], plugins=[Recorder(path)])
    sys.stdout.flush()
    os._exit(code)  # a thread of a test that hangs holds up nothing


def parts(paths: list[str]) -> list[list[str]]:
    """Return what each process runs: a folder, the largest first, or the files that are in none."""
    if paths:
        return [[str(Path(path).resolve())] for path in paths]
    folders = [each for each in TESTS.iterdir() if each.name != "windows" and any(each.glob("test_*.py"))]
    folders.sort(key=lambda each: sum(file.stat().st_size for file in each.glob("test_*.py")), reverse=True)
    return [[str(each)] for each in folders] + [[str(each) for each in sorted(TESTS.glob("test_*.py"))]]


def run_part(folder: Path, number: int, part: list[str]) -> list[list[str]]:
    """Run tests under Wine; return the outcome, the test, and the reason or the traceback of each."""
    from memory import in_memory

    log = folder / f"suite{number}.jsonl"
    log.unlink(missing_ok=True)
    begun = monotonic()
    with tempfile.TemporaryDirectory(dir=in_memory()) as temporary:
        paths = (__file__, str(log), f"{temporary}/tests", *part)
        windows = ["Z:" + str(PureWindowsPath(each)) for each in paths]
        command = ["timeout", "--kill-after=10", str(LONGEST), str(folder / "run"), *windows]  # ends children, too
        done = subprocess.run(command, capture_output=True, check=False)
    seen = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
    print(f"{Path(part[0]).name}: {monotonic() - begun:.0f} s", flush=True)
    if done.returncode not in {0, 1, 5}:
        last = next((test for what, test, _ in reversed(seen) if what == "begun"), part[0])
        seen.append(["failed", last, f"the process ended with {done.returncode} here\n{done.stdout.decode()[-3000:]}"])
    return [each for each in seen if each[0] != "begun"]


@contextmanager
def services(folder: Path) -> Generator[None]:
    """Keep Wine's services running. The first program starts them, and its output ends only when they do."""
    command = [str(folder.resolve() / "run"), "-c", "import time; print('started', flush=True); time.sleep(1e6)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as first:
        assert first.stdout is not None
        first.stdout.readline()
        yield
        os.killpg(first.pid, signal.SIGTERM)


def main(folder: Path, paths: list[str]) -> int:
    sys.path.insert(0, str(TESTS))
    with services(folder), ThreadPoolExecutor(2) as pool:
        todo = parts(paths)
        ended: Iterable[list[list[str]]] = pool.map(run_part, [folder.resolve()] * len(todo), range(len(todo)), todo)
        outcomes = [each for part in ended for each in part]
    for what, test, why in outcomes:
        if what == "failed":
            print(f"\n== {test}\n{why}")
    unnamed = 0
    for reason, count in Counter(why for what, _, why in outcomes if what == "skipped").most_common():
        print(f"{count:5} skipped: {reason}")
        unnamed += not re.search("Windows|Wine", reason)
    counts = Counter(what for what, _, _ in outcomes)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    if unnamed:
        print(f"{unnamed} reasons to skip name neither Windows nor Wine")
    return 1 if counts["failed"] or unnamed or not counts["passed"] else 0


if __name__ == "__main__":
    if sys.platform == "win32":
        run_here(*sys.argv[1:])
    else:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
