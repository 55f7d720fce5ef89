"""The catalogue of mutants fits the source and the tests as they are now, and the runner tells what it was asked."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutants.run import ROOT, Mutant, is_noticed, listed

SOURCE = ROOT / "src" / "momopay"


@pytest.mark.parametrize("mutant", listed(), ids=lambda mutant: mutant.name)
def test_each_mutant_applies_and_names_tests_that_exist(mutant: Mutant) -> None:
    ast.parse(mutant.apply((SOURCE / mutant.file).read_text()))
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name or 'test_'}" in (ROOT / "tests" / file).read_text(), test


def test_a_mutant_whose_text_has_changed_is_an_error() -> None:
    mutant = Mutant("a bug", "a.py", "x = 1", "x = 2", ("test_a.py",))
    for text in ("y = 1", "x = 1\nx = 1"):
        with pytest.raises(ValueError, match="a bug: the text occurs"):
            mutant.apply(text)


@pytest.mark.whole
def test_a_mutant_is_noticed_survives_or_was_not_tested(tmp_path: Path) -> None:
    source, tests = tmp_path / "src" / "momopay" / "a.py", tmp_path / "tests" / "test_a.py"
    source.parent.mkdir(parents=True)
    tests.parent.mkdir()
    source.with_name("__init__.py").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:momopay\n")
    source.write_text("x = 1\ny = 1\n")
    tests.write_text("from momopay.a import x\n\n\ndef test_x():\n    assert x == 1\n")
    assert is_noticed(Mutant("x is wrong", "a.py", "x = 1", "x = 2", ("test_a.py",)), tmp_path)
    assert not is_noticed(Mutant("y is wrong", "a.py", "y = 1", "y = 2", ("test_a.py",)), tmp_path)
    with pytest.raises(SystemExit, match="nothing was tested"):
        is_noticed(Mutant("x is wrong", "a.py", "x = 1", "x = 2", ("test_b.py",)), tmp_path)
    assert source.read_text() == "x = 1\ny = 1\n"
