"""References as text: two that look the same are the same. Pure.

A reference decides whether a payout was made before. An export that adds a space, or a system that writes é as two
characters, must not make a second payout of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Final
from unicodedata import category, is_normalized, name, normalize

# Control, format and unassigned characters, line separators, and the category of U+0020 and the other spaces.
_REFUSED: Final = frozenset({"Cc", "Cf", "Cn", "Zl", "Zp", "Zs"})
# Characters of other categories that show nothing: fillers, variation selectors, a joiner and the blank Braille cell.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_MINUS: Final = "\N{MINUS SIGN}"  # the one dash that is in another category than Pd


def check_reference(text: str) -> str:
    """Return the text, or raise ValueError with the code point of the character at fault and what to do about it."""
    if text.isascii() and text.isprintable() and text == text.strip():  # nearly all of them
        return text
    if text != text.strip():
        end = text[0] if text[0].isspace() else text[-1]
        raise ValueError(f"must not begin or end with {_shown(end)}: remove it")
    for character in text:
        if character != " " and _is_refused(character):
            advice = "use an ordinary space" if category(character) == "Zs" else "remove it"
            raise ValueError(f"must not contain {_shown(character)}: {advice}")
    if not is_normalized("NFC", text):
        # A part of a text in NFC is in NFC, so the texts from the beginning up to each character are first in it, then
        # not.
        position = bisect_left(range(len(text)), True, key=lambda last: not is_normalized("NFC", text[: last + 1]))
        form = "the Unicode form NFC: use unicodedata.normalize('NFC', reference)"
        raise ValueError(f"must have {_shown(text[position])} in {form}")
    return text


def canonical(reference: str) -> str:
    """Return the reference that `check_reference` accepts and that looks the same."""
    visible = (" " if category(each) == "Zs" else each for each in reference)
    return normalize("NFC", "".join(each for each in visible if each == " " or not _is_refused(each))).strip()


def similarity_key(reference: str) -> str:
    """Return what a reference has in common with those that differ from it only in case, dashes or spaces."""
    # A journal may hold references of version 0.2, which were not checked; so what nobody sees makes no difference.
    # It goes first: between a letter and its accent it would keep them apart.
    visible = "".join(each for each in reference if not (_is_refused(each) or category(each) == "Pd" or each == _MINUS))
    return normalize("NFKC", normalize("NFKC", visible).casefold())


def _is_refused(character: str) -> bool:
    return category(character) in _REFUSED or _INVISIBLE.match(character) is not None


def _shown(character: str) -> str:
    return f"U+{ord(character):04X} {name(character, '')}".rstrip()
