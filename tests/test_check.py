"""Which tests `tests/check.py` runs after a change."""

from pathlib import Path

from check import ROOT, select
from in_turn import in_turn


@in_turn(
    ("changed", "tests"),
    [
        ("src/momopay/_core/retry.py", {"tests/core/test_retry.py"}),
        *(("src/momopay/durable/__init__.py", {"tests/durable"}), ("src/momopay/errors.py", {"tests/test_errors.py"})),
        *(("tests/core/test_retry.py", {"tests/core/test_retry.py"}), ("tests/cli/kit.py", {"tests/cli"})),
        *(("examples/payroll.py", {"tests/examples"}), ("docs/collect/index.md", {"tests/docs"})),
        ("pyproject.toml", set[str]()),
    ],
)
def test_a_change_selects_its_tests(changed: str, tests: set[str]) -> None:
    assert {Path(each).as_posix() for each in select(ROOT / changed)} == tests
    assert (ROOT / changed).exists()
    assert all((ROOT / test).exists() for test in tests)
