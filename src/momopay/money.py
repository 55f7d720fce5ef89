"""Amounts in KES: exact to the cent in both directions. Pure; knows nothing of the rest.

JSON readers hold numbers in 64 bits, this package's among them, so exactness ends at ten trillion shillings; more
is refused before it is sent.
"""

from __future__ import annotations

from decimal import Decimal

_LARGEST_EXPONENT = 13


def parse_amount(value: object, minimum: int) -> Decimal:
    """Take an amount of KES as the caller gave it, or refuse it.

    Args:
        value: An ``int`` or a ``Decimal``; a bool, a float and text are refused, since they are how
            amounts come to be wrong by a cent or by a meaning.
        minimum: The least that the endpoint takes, KES (SPEC.md, "Limits").

    Returns:
        The amount, with no more than two decimals.

    Raises:
        ValueError: Another type, not finite, more than two decimals, too small or too large for JSON.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError("must be an int or a Decimal, in KES")  # noqa: TRY004  every refusal is a ValueError
    amount = Decimal(value)
    if not amount.is_finite():
        raise ValueError("must be a finite number")
    if _has_more_than_cents(amount):
        raise ValueError("must have no more than two decimals")
    if amount < minimum:
        raise ValueError(f"must be at least KES {minimum}")
    if amount.adjusted() >= _LARGEST_EXPONENT:
        raise ValueError("is larger than JSON carries to the cent")
    return amount


def _has_more_than_cents(amount: Decimal) -> bool:
    _, digits, exponent = amount.as_tuple()
    return isinstance(exponent, int) and exponent < -2 and any(digits[exponent + 2 :])  # noqa: PLR2004  cents


def format_amount(amount: Decimal) -> str:
    """Write an amount as a JSON number, exact to the cent, whole shillings without a point."""
    if amount == amount.to_integral_value():
        return str(int(amount))
    return f"{amount:.2f}"
