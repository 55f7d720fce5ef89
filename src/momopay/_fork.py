"""Renew objects in the child of a fork. Code that must run before a fork uses `os.register_at_fork` itself.

Only the thread that forks exists in the child. A lock that another thread held would stay held there for ever, and what
that thread was doing would never end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

# Functions, because a bound method would keep its object. Not WeakMethods, which may be collected before their objects
# when Python ends, and then print an AttributeError.
_renewals: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def renew_in_child(renew: Callable[[], None]) -> None:
    """Call a bound method in each child of a fork, for as long as its object lives.

    The method replaces the object's locks and the state that the parent's threads left behind. An object has one.
    """
    assert isinstance(renew, MethodType)  # noqa: S101  for type checkers
    _renewals[renew.__self__] = renew.__func__


def _renew_all() -> None:
    for renewed, renew in list(_renewals.items()):
        renew(renewed)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_all)
