"""Checks for numbers in options, arguments and details of errors. True and False are none. Pure."""

from __future__ import annotations

from typing_extensions import TypeIs


def is_whole(value: object) -> TypeIs[int]:
    """Return whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeIs[int | float]:
    """Return whether a value is a number, finite or not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
