"""Renew objects in the child of a fork. Code that must run before a fork uses `os.register_at_fork` itself.

Only the thread that forks exists in the child. A lock that another thread held would stay held there for ever, and what
that thread was doing would never end.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from weakref import WeakMethod

_numbers = itertools.count()
_renewals: dict[int, WeakMethod[Callable[[], None]]] = {}


def renew_in_child(renew: Callable[[], None]) -> None:
    """Call a bound method in each child of a fork, for as long as its object lives.

    The method replaces the object's locks and the state that the parent's threads left behind.
    """
    number = next(_numbers)
    _renewals[number] = WeakMethod(renew, lambda _dead: _renewals.pop(number, None))


def _renew_all() -> None:
    for method in list(_renewals.values()):
        renew = method()
        if renew is not None:
            renew()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_all)
