"""The repository holds our own work only: no large files, no minified scripts."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LARGEST = 512 * 1024  # bytes of a file
LONGEST = 2_000  # characters of a line. Minified code has longer ones.


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def has_long_line(content: bytes) -> bool:
    return b"\0" not in content and max(map(len, content.splitlines()), default=0) > LONGEST


def test_no_file_is_large() -> None:
    files = tracked()
    assert len(files) > 100
    assert [str(path.relative_to(ROOT)) for path in files if path.stat().st_size > LARGEST] == []


def test_no_file_is_minified() -> None:
    assert [str(path.relative_to(ROOT)) for path in tracked() if has_long_line(path.read_bytes())] == []


def test_a_minified_script_is_recognised() -> None:
    assert has_long_line(b"// licence\n" + b"var a=1;" * 300)
    assert not has_long_line(b"\x89PNG\0" + b"x" * 5000)
