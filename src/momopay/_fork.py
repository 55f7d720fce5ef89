"""Renew objects in the child of a fork. Code that must run before a fork uses `os.register_at_fork` itself.

Only the thread that forks exists in the child. A lock that another thread held would stay held there for ever, and what
that thread was doing would never end.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any
from weakref import ref

_numbers = itertools.count()
# An object, which may not be hashable, and the function of its method. A WeakMethod would print an AttributeError if it
# is collected before its object, as may happen when Python ends.
_renewals: dict[int, tuple[ref[Any], Callable[[Any], None]]] = {}


def renew_in_child(renew: Callable[[], None]) -> None:
    """Call a bound method in each child of a fork, for as long as its object lives.

    The method replaces the object's locks and the state that the parent's threads left behind.
    """
    assert isinstance(renew, MethodType)  # noqa: S101  for type checkers
    number = next(_numbers)
    # The callback looks nothing up, because names may be gone when Python ends.
    _renewals[number] = ref(renew.__self__, partial(_renewals.pop, number)), renew.__func__


def _renew_all() -> None:
    for reference, renew in list(_renewals.values()):
        renewed = reference()
        if renewed is not None:
            renew(renewed)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_all)
