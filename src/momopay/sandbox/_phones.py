"""Phone numbers, in the four forms of SPEC.md and no other."""

import re

from momopay.sandbox._refusals import Refusal

PATTERN = r"^(0[17][0-9]{8}|\+?254[0-9]{9})$"
_FORMS = re.compile(r"(?:0([17][0-9]{8})|\+?254([0-9]{9}))")


def normalise(phone: str) -> str:
    """`254XXXXXXXXX`.

    Raises:
        Refusal: INVALID_PHONE, for anything but the four forms; spaces and dashes are not removed.
    """
    match = _FORMS.fullmatch(phone)
    if match is None:
        raise Refusal("INVALID_PHONE", "The phone number format is not recognised")
    return f"254{match[1] or match[2]}"
