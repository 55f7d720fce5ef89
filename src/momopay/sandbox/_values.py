"""Money in KES and phone numbers: what the service takes, and how it shows them."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import Field, WithJsonSchema

from momopay.sandbox._refusals import Refusal

# The service states no maximum. This one keeps amounts and balances far below 2**53 cents, where the
# shortest text of a double is still the exact amount.
MAXIMUM_AMOUNT = Decimal("999999999.99")

Money = Annotated[Decimal, Field(decimal_places=2), WithJsonSchema({"type": "number"})]

PHONE_PATTERN = r"^(0[17][0-9]{8}|\+?254[0-9]{9})$"
# `[0-9]`, never `\d`, which also matches digits of other scripts.
_PHONE = re.compile(r"(?:0([17][0-9]{8})|\+?254([0-9]{9}))")


def json_number(amount: Decimal) -> int | float:
    """Return the JSON number of an amount: whole shillings without a fraction."""
    whole = int(amount)
    return whole if whole == amount else float(amount)


def normalise_phone(phone: str) -> str:
    """Return `254XXXXXXXXX`.

    Raises:
        Refusal: INVALID_PHONE, for anything but the four forms; spaces and dashes are not removed.
    """
    match = _PHONE.fullmatch(phone)
    if match is None:
        raise Refusal("INVALID_PHONE", "The phone number format is not recognised")
    return f"254{match[1] or match[2]}"
