"""What is left out on Windows is still there."""

import subprocess
import sys
from fnmatch import filter as matching
from pathlib import Path

from windows.skips import SKIPS

TESTS = Path(__file__).parent


def test_each_pattern_of_what_windows_skips_matches_a_test() -> None:
    files = sorted({pattern.partition("::")[0] for pattern in SKIPS})
    plugins = "--import-mode=importlib -p no:momopay -p pytester"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", f"addopts={plugins}", *files]
    listed = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False).stdout.splitlines()
    assert [pattern for pattern in SKIPS if not matching(listed, f"tests/{pattern}")] == []


def test_each_reason_names_windows_or_wine() -> None:
    assert [reason for reason in SKIPS.values() if not reason.startswith(("Windows", "Wine"))] == []
