"""Type-check the programs of an earlier version against this code: `python tests/release/earlier.py [COMMIT]`.

Without COMMIT it takes the tag of the latest release. The examples and tests/typing use what users use, and nothing
else. What fails is a break that nobody meant, or one that CHANGELOG.md must name.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("examples", "tests/typing/signatures.py")


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def main(arguments: list[str]) -> int:
    tags = git("tag", "--list", "v*", "--sort=-version:refname").decode().split()
    commit = next(iter([*arguments, *tags]), None)
    if commit is None:
        print("There is no release yet, so no earlier program can break.")  # noqa: T201
        return 0
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, *PROGRAMS))) as archive:
            archive.extractall(folder, filter="data")
        files = [str(path) for path in Path(folder).rglob("*.py")]
        command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), *files]
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
