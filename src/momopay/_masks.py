"""What is not to be read in a text that is logged or shown: API keys, and phones but for their ends. Pure."""

from __future__ import annotations

import re

_KEY = re.compile(r"\b(pk_(?:live|test)_|cGtf)[!-~]+")
"""As it is, or as the base64 of Basic authentication, which begins so for every ``pk_``."""

_PHONE = re.compile(
    r"(?P<id>(?<![0-9A-Za-z])[0-9a-f]{16,}(?![0-9A-Za-z]))"
    r"|(?<![0-9])(?:\+?254|0(?=[ ()-]?[17]))(?:[ ()-]{0,2}[0-9]){9}(?![0-9])"
)
"""However it is separated. What stands in a long hexadecimal id is no phone."""


def mask_phone(text: str) -> str:
    """Show the first four and the last three characters: ``2547*****678``."""
    return f"{text[:4]}*****{text[-3:]}"


def discreet(text: str) -> str:
    """Mask every key and every phone number that stands in a text."""
    return _PHONE.sub(_mask, _KEY.sub(r"\1*****", text))


def discreet_repr(value: object) -> str:
    """Give a value's repr with every key and phone number in it masked: a reference may be one."""
    return discreet(repr(value))


def _mask(found: re.Match[str]) -> str:
    return found[0] if found["id"] else mask_phone(found[0])
