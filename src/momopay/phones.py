"""Kenyan phone numbers, in the one form that is sent. Pure."""

from __future__ import annotations

import re
from unicodedata import category, name

_SEPARATED = re.compile(r"\(?\+?[0-9](?:[ ()-]*[0-9])*")
_PHONE_LIKE = re.compile(r"\s*[(+]?[0-9*][0-9*\s()-]{3,24}")
_NATIONAL = re.compile(r"(?:(?:00)?254|0)?([0-9*]*)")  # without the country's code, or the zero in its place
_FORMS = re.compile(r"(?:0(?=[17])|\+?254)([0-9]{9})")


def normalise_phone(text: str) -> str:
    """Return a Kenyan phone number in the form that the service requires, ``254XXXXXXXXX``.

    Accepts the four forms of the service page, "Conventions": ``07XXXXXXXX``, ``01XXXXXXXX``, ``+254XXXXXXXXX`` and
    ``254XXXXXXXXX``, in ASCII digits. Spaces, dashes and parentheses between the digits are removed, and at the ends
    all spaces and invisible characters, such as a copied direction mark. Nothing is guessed, because a wrong guess
    would pay a stranger. Sends nothing.

    Args:
        text: The number as a person wrote it.

    Returns:
        Twelve digits: ``254`` and nine more.

    Raises:
        ValueError: The text is in none of the four forms. Ask for the number again. The message does not repeat it, but
            names a character that is in none of them, or the type that is no text.
    """
    if not isinstance(text, str):
        problem = f'must be text, not {type(text).__name__}: pass it in E.164 form, "+254XXXXXXXXX"'
    else:
        if not _SEPARATED.fullmatch(text):  # hardly any
            text = _trimmed(text)
        if _SEPARATED.fullmatch(text):
            digits = _FORMS.fullmatch(re.sub(r"[ ()-]", "", text))
            if digits is not None:
                return "254" + digits[1]
        unknown = re.sub(r"[0-9 ()+-]", "", text)[:1]
        without = unknown and f" without {describe_character(unknown)}"
        problem = f"must be a Kenyan phone number{without}: 07XXXXXXXX, 01XXXXXXXX, +254XXXXXXXXX or 254XXXXXXXXX"
    del text  # a crash reporter shows the locals of a frame that raises
    raise ValueError(problem)


def describe_character(character: str) -> str:
    """Return a character's code and name, such as ``U+00A0 NO-BREAK SPACE``."""
    return f"U+{ord(character):04X} {name(character, '')}".rstrip()


def _trimmed(text: str) -> str:
    visible = [place for place, each in enumerate(text) if not (each.isspace() or category(each) == "Cf")]
    return text[visible[0] : visible[-1] + 1] if visible else ""


def may_be_phone(text: str) -> bool:
    """Return whether a text of the service may be a phone, in any country's form, masked or not."""
    return _PHONE_LIKE.fullmatch(text) is not None


def is_same_phone_if_known(phone: str, shown: str | None) -> bool:
    """Return whether what the service shows does not contradict a phone, in whatever form, masked or not.

    A text that is no phone is a gap. Use `same_phone` where the phone must be shown.
    """
    if shown is None or not may_be_phone(shown) or same_phone(phone, shown):
        return True
    one, other = _national(phone), _national(shown)
    if "*" not in one + other:
        return one == other
    # The visible beginnings and ends: a mask may have any length.
    begins = zip(one.partition("*")[0], other.partition("*")[0], strict=False)
    ends = zip(one.rpartition("*")[2][::-1], other.rpartition("*")[2][::-1], strict=False)
    return all(a == b for a, b in (*begins, *ends))


def _national(text: str) -> str:
    digits = _NATIONAL.fullmatch(re.sub(r"[^0-9*]", "", text))
    return "" if digits is None else digits[1]


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
