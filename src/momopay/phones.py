"""Kenyan phone numbers, in the one form that is sent. Pure."""

from __future__ import annotations

import re

_SEPARATED = re.compile(r"\(?\+?[0-9](?:[ ()-]*[0-9])*")
_FORMS = re.compile(r"(?:0(?=[17])|\+?254)([0-9]{9})")


def normalise_phone(text: str) -> str:
    """Return a Kenyan phone number in the form that the service requires, ``254XXXXXXXXX``.

    Accepts the four forms of the service page, "Conventions": ``07XXXXXXXX``, ``01XXXXXXXX``, ``+254XXXXXXXXX`` and
    ``254XXXXXXXXX``, in ASCII digits. Spaces, dashes and parentheses between the digits are removed. Nothing is
    guessed, because a wrong guess would pay a stranger. Sends nothing.

    Args:
        text: The number as a person wrote it.

    Returns:
        Twelve digits: ``254`` and nine more.

    Raises:
        ValueError: The text is in none of the four forms. Ask for the number again. The message does not repeat it.
    """
    if isinstance(text, str) and _SEPARATED.fullmatch(text):
        digits = _FORMS.fullmatch(re.sub(r"[ ()-]", "", text))
        if digits is not None:
            return "254" + digits[1]
    del text  # a crash reporter shows the locals of a frame that raises
    raise ValueError("must be a Kenyan phone number: 07XXXXXXXX, 01XXXXXXXX, +254XXXXXXXXX or 254XXXXXXXXX")


def same_phone(one: str, other: str) -> bool:
    """Return whether two texts may be the same phone number. A masked digit, ``*``, matches any digit."""
    if one == other:
        return True
    one, other = _normalised(one), _normalised(other)
    return len(one) == len(other) and all("*" in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))


def _normalised(text: str) -> str:
    try:
        return normalise_phone(text)
    except ValueError:
        return text
