"""The catalogue of mutants fits the source as it is now."""

from __future__ import annotations

import ast
from itertools import groupby

import pytest

from mutants.catalogue import ROOT, drawn, listed

AREAS = {area: list(mutants) for area, mutants in groupby(listed(), key=lambda mutant: mutant.area)}


@pytest.mark.parametrize("area", AREAS)
def test_each_mutant_applies_and_names_tests_that_exist(area: str) -> None:
    for mutant in AREAS[area]:
        changed = mutant.apply((ROOT / mutant.file).read_text())
        if mutant.file.endswith(".py"):
            ast.parse(changed)
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).exists(), (mutant.name, test)


def test_random_mutants_are_drawn_again_by_their_seed() -> None:
    mutants = drawn(50, seed=3)
    assert mutants == drawn(50, seed=3)
    for mutant in mutants:
        ast.parse(mutant.apply((ROOT / mutant.file).read_text()))
