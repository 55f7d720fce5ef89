"""Apply each mutant of catalogue.toml to a copy of the source, run its tests, and print which ones nothing noticed.

    python tests/mutants/run.py                 every mutant
    python tests/mutants/run.py store watermark those of files whose path has one of these words
    python tests/mutants/run.py --sample 40     so many, drawn by --seed

The exit status is 0 if all are noticed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
CATALOGUE = Path(__file__).parent / "catalogue.toml"
TIMEOUT = 120
"""Seconds after which a run counts as noticed: the mutant made it hang."""
PASSED, FAILED = 0, 1
"""Exit statuses of pytest. With another one, such as for a test that does not exist, nothing was tested."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file; see catalogue.toml."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Return the mutated text of the file; raise ValueError if the old text does not occur exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: the text occurs {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def listed() -> list[Mutant]:
    entries = tomllib.loads(CATALOGUE.read_text())["mutant"]
    return [Mutant(tests=tuple(entry.pop("tests")), **entry) for entry in entries]


def run_tests(tests: Iterable[str], copy: Path) -> int:
    """Run tests against the source in a copy, and return the exit status of pytest."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    # SQLite is enough: the default tests run over PostgreSQL what differs there.
    options = ["-x", "-p", "no:cacheprovider", "-k", "not postgresql"]
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/{test}" for test in tests)]
    try:
        return subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return FAILED


def is_noticed(mutant: Mutant, copy: Path) -> bool:
    """Return whether the mutant's tests fail with it; raise SystemExit if they did not run."""
    file = copy / "src" / "momopay" / mutant.file
    original = file.read_text()
    file.write_text(mutant.apply(original))
    try:
        status = run_tests(mutant.tests, copy)
    finally:
        file.write_text(original)
    if status not in {PASSED, FAILED}:
        raise SystemExit(f"{mutant.name}: pytest ended with {status}, so nothing was tested")
    return status == FAILED


def run(mutants: list[Mutant], jobs: int) -> list[Mutant]:
    """Try every mutant, so many at a time, and return those that nothing noticed."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copy = Path(folder) / str(number)
            for name in ("src", "tests", "docs/hooks"):  # conftest.py imports from the last
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", copy)
            copies.put(copy)

        def survives(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                noticed = is_noticed(mutant, copy)
            finally:
                copies.put(copy)
            print("noticed " if noticed else "SURVIVED", f"{mutant.file}: {mutant.name}", flush=True)  # noqa: T201
            return not noticed

        # Tests that fail without a mutant would notice nothing.
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        if run_tests(tests, Path(folder) / "0") != PASSED:
            raise SystemExit(f"without a mutant, these do not pass: {' '.join(tests)}")
        return [mutant for mutant, survived in zip(mutants, pool.map(survives, mutants), strict=True) if survived]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutants of files whose path has one of these")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="draw so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    mutants = [each for each in listed() if not options.words or any(word in each.file for word in options.words)]
    if options.sample:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    survived = run(mutants, options.jobs)
    print(f"{len(mutants) - len(survived)} of {len(mutants)} mutants were noticed")  # noqa: T201
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
