"""Kenyan phone numbers: one spelling for the wire. Pure; knows nothing of the rest."""

from __future__ import annotations

import re

__all__ = ["normalise_phone"]

_SEPARATED = re.compile(r"\(?\+?[0-9](?:[ ()-]*[0-9])*")
_FORMS = re.compile(r"(?:0(?=[17])|\+?254)([0-9]{9})")


def normalise_phone(text: str) -> str:
    """Spell a Kenyan phone number as the service wants it, ``254XXXXXXXXX``.

    Takes the four forms of SPEC.md, "What the service does": ``07XXXXXXXX``, ``01XXXXXXXX``,
    ``+254XXXXXXXXX`` and ``254XXXXXXXXX``, ASCII digits only. Spaces, dashes and parentheses between the
    digits are taken out first, because they must not be sent. Nothing is guessed and nothing is sent.

    Args:
        text: The number as a person wrote it.

    Returns:
        Twelve digits, ``254`` and nine more.

    Raises:
        ValueError: The text is in none of the four forms. Ask for the number again; the message does not
            repeat it.
    """
    if isinstance(text, str) and _SEPARATED.fullmatch(text):
        digits = _FORMS.fullmatch(re.sub(r"[ ()-]", "", text))
        if digits is not None:
            return "254" + digits[1]
    raise ValueError("must be a Kenyan phone number: 07XXXXXXXX, 01XXXXXXXX, +254XXXXXXXXX or 254XXXXXXXXX")


def same_phone(one: str, other: str) -> bool:
    """Tell whether two spellings may name one phone; a digit hidden behind ``*`` agrees with any."""
    one, other = _spell(one), _spell(other)
    return len(one) == len(other) and all("*" in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))


def _spell(text: str) -> str:
    try:
        return normalise_phone(text)
    except ValueError:
        return text
