"""Draw mutants of the money paths that a tool makes (cosmic-ray), and print which ones no test noticed.

    python tests/mutants/generate.py --sample 24     so many, drawn by --seed

Where catalogue.toml has bugs that a person would make, these are small changes of every kind: another operator, another
number, a loop that ends at once. Some change nothing that a caller could see, so not every survivor is a fault.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from mutants.run import ROOT, Mutant, run

TESTS = {
    "journal/rules.py": ("journal/test_rules.py", "durable/test_once.py", "durable/test_refund.py"),
    "durable/once.py": (
        "durable/test_once.py",
        "durable/test_known.py",
        "durable/test_send.py",
        "safety/test_orders_and_people.py",
    ),
    "durable/send.py": ("durable/test_send.py", "durable/test_known.py", "safety/test_wrong_account.py"),
    "_core/retry.py": ("core/test_retry.py", "core/test_call.py"),
    "_core/call.py": ("core/test_call.py", "core/test_retry.py"),
}
"""The files, each with the tests that must notice its mutants."""
# Not imported by name: cosmic-ray has no types.
TREES, MUTATING, PLUGINS = (import_module(f"cosmic_ray.{name}") for name in ("ast", "mutating", "plugins"))


def generated(file: str) -> Iterator[tuple[str, str, int]]:
    """Yield every place of a file that an operator can change: the file, the operator, and the number of the place."""
    nodes: list[Any] = list(TREES.ast_nodes(TREES.get_ast((ROOT / "src" / "momopay" / file).read_text())))
    names: list[str] = [name for name in PLUGINS.operator_names() if "Variable" not in name]  # those need arguments
    for name in names:
        operator = PLUGINS.get_operator(name)()
        places = sum(1 for node in nodes for _ in operator.mutation_positions(node))
        yield from ((file, name, number) for number in range(places))


def made(file: str, operator: str, place: int) -> Mutant | None:
    """Return a mutant; None if it is no Python, or changes an annotation alone."""
    text = (ROOT / "src" / "momopay" / file).read_text()
    mutated: str | None = MUTATING.mutate_code(text, PLUGINS.get_operator(operator)(), place)
    try:
        if mutated is None or _without_annotations(mutated) == _without_annotations(text):
            return None
    except SyntaxError:
        return None
    lines = zip(text.splitlines(), mutated.splitlines(), strict=False)
    number, line = next((number, new.strip()) for number, (old, new) in enumerate(lines, start=1) if old != new)
    return Mutant(f"{number}: {line}", file, text, mutated, TESTS[file])


def _without_annotations(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(None))
    return ast.dump(tree)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=24, metavar="N", help="draw so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    places = [place for file in TESTS for place in generated(file)]
    random.Random(options.seed).shuffle(places)
    mutants: list[Mutant] = []
    while places and len(mutants) < options.sample:
        if (mutant := made(*places.pop())) is not None:
            mutants.append(mutant)
    survived = run(mutants, options.jobs)
    noticed = len(mutants) - len(survived)
    print(f"{noticed} of {len(mutants)} mutants were noticed ({noticed / max(1, len(mutants)):.0%})")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
