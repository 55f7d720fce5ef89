"""Amounts in KES, exact to the cent in both directions, and checks for other numbers. Pure.

JSON parsers, this package's included, hold numbers in 64 bits. From ten trillion shillings these are no longer exact to
the cent, so such amounts are refused.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from typing_extensions import TypeIs

_MAX_DIGITS: Final = 13  # before the decimal point


def parse_amount(value: object, minimum: int) -> Decimal:
    """Return an amount of KES as a Decimal.

    Args:
        value: An ``int`` or a ``Decimal``. Not a float, which may be wrong by a cent.
        minimum: The least that the endpoint accepts, KES (service page, "Limits").

    Returns:
        The amount, with no more than two decimals.

    Raises:
        ValueError: Another type, not finite, more than two decimals, too small or too large for JSON.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        remedy = "int(amount)" if hasattr(value, "__index__") else "Decimal(str(amount))"
        shape = 'must be an int or a Decimal, in KES, such as 100 or Decimal("99.50")'
        raise ValueError(f"{shape}, not {type(value).__name__}: {remedy} converts a number")  # noqa: TRY004  every refusal is a ValueError
    amount = Decimal(value)
    if not amount.is_finite():
        raise ValueError("must be a finite number")
    # By its digits, because `quantize` fails or allocates for an exponent such as 1E-999999999.
    _, digits, exponent = amount.as_tuple()
    if isinstance(exponent, int) and exponent < -2 and any(digits[exponent + 2 :]):  # noqa: PLR2004  cents
        raise ValueError("must have no more than two decimals: round it first")
    if amount < minimum:
        raise ValueError(f"must be at least KES {minimum}")
    if amount.adjusted() >= _MAX_DIGITS:
        raise ValueError("must be below KES 10,000,000,000,000, where JSON is no longer exact to the cent")
    return amount


def format_amount(amount: Decimal) -> str:
    """Return an amount as a JSON number, exact to the cent. Whole shillings have no decimal point."""
    if amount.adjusted() >= _MAX_DIGITS:  # no real amount, and it may have too many digits to write out
        return str(amount)
    if amount == amount.to_integral_value():
        return str(int(amount))
    return f"{amount:.2f}"


def json_number(amount: Decimal) -> int | float:
    """Return an amount as JSON libraries write it exactly: it has at most 15 digits, as many as a float keeps."""
    return int(amount) if amount == amount.to_integral_value() else float(amount)


def is_whole(value: object) -> TypeIs[int]:
    """Return whether a value is a whole number. True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeIs[int | float]:
    """Return whether a value is a number, finite or not. True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
