"""The catalogue of mutants fits the source as it is now."""

from __future__ import annotations

import ast

import pytest

from mutants.catalogue import ROOT, Mutant, drawn, listed

MUTANTS = listed()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.area}: {mutant.name}")
def test_a_mutant_applies_and_names_tests_that_exist(mutant: Mutant) -> None:
    changed = mutant.apply((ROOT / mutant.file).read_text())
    if mutant.file.endswith(".py"):
        ast.parse(changed)
    assert mutant.tests
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_random_mutants_are_drawn_again_by_their_seed() -> None:
    assert drawn(20, seed=3) == drawn(20, seed=3)
    for mutant in drawn(50, seed=4):
        ast.parse(mutant.apply((ROOT / mutant.file).read_text()))
