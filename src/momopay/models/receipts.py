"""The receipt in a text that a customer reads out, types or pastes. Pure.

A receipt is letters and digits; which, and how many, the service page does not say. So everything in the text that may
be one is looked for, and what nobody has is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from unicodedata import normalize

from momopay.models.arguments import without_hidden

_WORD: Final = re.compile(r"[^\W_]+")
_SHORTEST, _LONGEST = 4, 30  # characters of a receipt in a longer text
_MOST_WORDS: Final = 100  # of a text; a message of the provider has about thirty
_MOST_PARTS: Final = 12  # into which a person splits a receipt, letter by letter


def receipt_key(text: str) -> str:
    """Return a key that is the same for a receipt in any case, with spaces, dots, dashes and invisible characters."""
    return "".join(_words(text)).upper()


def receipts_in(text: str) -> list[str]:
    """Return the keys of what may be a receipt in a text, the whole text first, then from its beginning to its end."""
    return list(dict.fromkeys([receipt_key(text), *_runs(_words(text)[:_MOST_WORDS])]))


def _runs(words: list[str]) -> Iterator[str]:
    for begin in range(len(words)):
        for end in range(begin + 1, min(begin + _MOST_PARTS, len(words)) + 1):
            joined = "".join(words[begin:end])
            if len(joined) > _LONGEST:
                break
            if len(joined) >= _SHORTEST:
                yield joined.upper()


def _words(text: str) -> list[str]:
    return _WORD.findall(without_hidden(normalize("NFKC", text)))
