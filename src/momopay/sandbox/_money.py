"""Money in KES: Decimal inside, a JSON number exact to the cent outside."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field, WithJsonSchema

# SPEC.md shows no maximum. This one keeps amounts and balances far below 2**53 cents, where the
# shortest text of a double is still the exact amount.
MAXIMUM = Decimal("999999999.99")

Money = Annotated[Decimal, Field(decimal_places=2), WithJsonSchema({"type": "number"})]


def number(amount: Decimal) -> int | float:
    """The JSON number of an amount: whole shillings without a fraction."""
    whole = int(amount)
    return whole if whole == amount else float(amount)
