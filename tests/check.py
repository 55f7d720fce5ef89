"""Run the quick checks: format, lint, types, and the tests of what changed since a commit.

    python tests/check.py               changes against main, committed or not
    python tests/check.py --base HEAD   only what is not committed yet

Every check runs, also after a failure. The exit status is 1 if one failed.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TESTS = ROOT / "src" / "momopay", ROOT / "tests"
ALWAYS = {"tests/test_architecture.py", "tests/test_repository.py"}
"""Rules for the whole repository, which take a second."""


def changed_files(base: str) -> list[Path]:
    """Return the files that differ from the common ancestor with a commit, new ones included."""
    commands = (
        ["git", "diff", "--name-only", "--diff-filter=d", "--merge-base", base],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    printed = [subprocess.run(each, cwd=ROOT, check=True, capture_output=True, text=True).stdout for each in commands]
    return sorted({ROOT / name for text in printed for name in text.splitlines()})


def mirrored_test(path: Path) -> str:
    """Return the test file that mirrors a module, or the folder that covers it."""
    parts = [part.lstrip("_") for part in path.relative_to(SOURCE).with_suffix("").parts]
    folder = TESTS.joinpath(*parts[:-1])
    file = folder / f"test_{parts[-1]}.py"
    return str((file if file.exists() else folder).relative_to(ROOT))


def select(path: Path) -> set[str]:
    """Return the tests to run after a change of a file: files and folders, relative to the repository."""
    top, *rest = path.relative_to(ROOT).parts
    if path.is_relative_to(SOURCE) and path.suffix == ".py":
        return {mirrored_test(path)}
    if top == "tests" and path.name.startswith("test_"):
        return {str(path.relative_to(ROOT))}
    if top == "tests" and len(rest) > 1:
        return {f"tests/{rest[0]}"}  # a helper of that folder
    if top == "examples":
        return {"tests/examples"}
    if top in {"docs", "README.md", "CHANGELOG.md", "mkdocs.yml"}:
        return {"tests/docs"}
    return set()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the quick checks.")
    parser.add_argument("--base", default="main", help="the commit to compare with (default: main)")
    changed = changed_files(parser.parse_args().base)
    # A helper directly in tests/, or a module without tests of its own, would select the whole suite.
    tests = sorted(set[str]().union(ALWAYS, *map(select, changed)) - {"tests"})
    checks = {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types (mypy)": ["mypy"],
        "types (pyright)": ["pyright"],
        "tests": [sys.executable, "-m", "pytest", "-m", "not campaign", *filter(_exists, tests)],
    }
    failed: list[str] = []
    for name, command in checks.items():
        print(f"== {name}: {' '.join(command)}", flush=True)  # noqa: T201  a program for people
        start = time.monotonic()
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(name)
        print(f"   {time.monotonic() - start:.0f} s", flush=True)  # noqa: T201  as above
    print(f"failed: {', '.join(failed)}" if failed else "all passed")  # noqa: T201  as above
    return 1 if failed else 0


def _exists(test: str) -> bool:
    """Return whether a folder or file of tests exists and has tests; kits and benchmarks have none."""
    path = ROOT / test
    return path.is_file() or any(path.rglob("test_*.py"))


if __name__ == "__main__":
    sys.exit(main())
