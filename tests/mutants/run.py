"""Apply each mutant to a copy of the source, run its tests, and print which ones nothing noticed.

    python tests/mutants/run.py                      every mutant of the catalogue
    python tests/mutants/run.py polling journal      those of two areas
    python tests/mutants/run.py --sample 40          so many of the catalogue, drawn by --seed
    python tests/mutants/run.py --random 50 --seed 7 drawn from the library, with the mirrored tests

The exit status is 1 when fewer than 95 % are noticed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutants.catalogue import ROOT, Mutant, drawn, listed

GOAL = 0.95
TIMEOUT = 120
"""Seconds after which a run counts as noticed: the mutant made it hang."""


@contextmanager
def copies(count: int) -> Generator[SimpleQueue[Path]]:
    """Yield a queue of so many copies of what the tests need."""
    with tempfile.TemporaryDirectory() as folder:
        queue: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = Path(folder) / str(number)
            for name in ("src", "tests", "examples", "docs"):
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "mkdocs.yml"):
                shutil.copy(ROOT / name, copy / name)
            queue.put(copy)
        yield queue


def passes(tests: Iterable[str], copy: Path) -> bool:
    """Return whether these tests pass in a copy."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", "not campaign", *tests]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def is_noticed(mutant: Mutant, copy: Path) -> bool:
    """Return whether the mutant's tests fail with it."""
    file = copy / mutant.file
    original = file.read_text()
    file.write_text(mutant.apply(original))
    try:
        return not passes(mutant.tests, copy)
    finally:
        file.write_text(original)


def run(mutants: Iterable[Mutant], jobs: int) -> list[tuple[Mutant, bool]]:
    """Try every mutant, so many at a time.

    Raises:
        SystemExit: Tests fail without any mutant, so that they notice nothing.
    """
    mutants = list(mutants)
    with copies(jobs) as queue, ThreadPoolExecutor(jobs) as pool:

        def attempt_without(tests: tuple[str, ...]) -> None:
            copy = queue.get()
            passed = passes(tests, copy)
            queue.put(copy)
            if not passed:
                raise SystemExit(f"{', '.join(tests)}: fails or tests nothing without a mutant")

        list(pool.map(attempt_without, sorted({mutant.tests for mutant in mutants})))

        def attempt(mutant: Mutant) -> tuple[Mutant, bool]:
            copy = queue.get()
            try:
                noticed = is_noticed(mutant, copy)
            finally:
                queue.put(copy)
            print("noticed " if noticed else "SURVIVED", f"{mutant.area}: {mutant.name}", flush=True)  # noqa: T201
            return mutant, noticed

        return list(pool.map(attempt, mutants))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", help="files of the catalogue, without .toml; all by default")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="draw so many of the catalogue")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw so many mutants instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--jobs", type=int, default=2 * (os.cpu_count() or 1), help="half of the tests' time is waiting"
    )
    options = parser.parse_args()
    mutants = drawn(options.random, options.seed) if options.random else listed()
    mutants = [each for each in mutants if not options.areas or each.area in options.areas]
    if options.sample:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    results = run(mutants, options.jobs)
    total = Counter(mutant.area for mutant, _ in results)
    noticed = Counter(mutant.area for mutant, caught in results if caught)
    print(f"\n{'area':<14}{'mutants':>8}{'noticed':>9}")  # noqa: T201
    for area in sorted(total):
        print(f"{area:<14}{total[area]:>8}{noticed[area]:>9}")  # noqa: T201
    share = noticed.total() / total.total()
    print(f"{'all':<14}{total.total():>8}{noticed.total():>9}  {share:.1%}")  # noqa: T201
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
