"""A test over a table of values fails with each value that fails."""

import pytest

from in_turn import in_turn


@in_turn("number", [1, 2, 3, 4])
def even(number: int) -> None:
    assert number % 2 == 0


@in_turn(("number", "text"), [(1, "one"), (2, "two")])
def first(number: int, text: str) -> None:
    assert text == "one", number


def test_every_value_that_fails_is_reported() -> None:
    with pytest.raises(ExceptionGroup, match="2 of 4 values fail") as caught:
        even()
    assert [error.__notes__ for error in caught.value.exceptions] == [["with {'number': 1}"], ["with {'number': 3}"]]


def test_a_single_failure_is_raised_as_it_is() -> None:
    with pytest.raises(AssertionError) as caught:
        first()
    assert caught.value.__notes__ == ["with {'number': 2, 'text': 'two'}"]
