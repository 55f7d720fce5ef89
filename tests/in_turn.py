"""A table of values that one test goes through."""

import inspect
import itertools
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def in_turn(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with one value after another, as `pytest.mark.parametrize` does, but as one test.

    It is for tests that a value cannot leave different for the next one. The test fails with every value that fails.
    """
    table, places = list(values), (names,) if isinstance(names, str) else names

    def over(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**others: Any) -> None:
            assert table, "a test without a value tests nothing"
            failures = list[BaseException]()
            for value in table:
                given = dict(zip(places, value if len(places) > 1 else (value,), strict=True))
                try:
                    test(**others, **given)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below
                    error.add_note(f"with {given!r:.500}")
                    failures.append(error)
            if len(failures) > 1:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} values fail", failures)
            for failure in failures:
                raise failure

        signature = inspect.signature(test)
        left = [each for each in signature.parameters.values() if each.name not in places]
        vars(run)["__signature__"] = signature.replace(parameters=left)
        return run

    return over


def some_by_default(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the values for `pytest.mark.parametrize`; those after the first `count` run with `-m whole` alone."""
    marks = (() if number < count else pytest.mark.whole for number in itertools.count())
    rows: list[tuple[Any, ...]] = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=mark) for row, mark in zip(rows, marks, strict=False)]
