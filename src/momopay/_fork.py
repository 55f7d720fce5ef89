"""Begin anew in the child of a fork. What must be done before a fork registers with `os.register_at_fork` itself.

Only the thread that forks lives on in the child. A lock that another thread held at that moment would stay held there
for ever, and what that thread was doing never ends.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from weakref import WeakMethod

_numbers = itertools.count()
_renewals: dict[int, WeakMethod[Callable[[], None]]] = {}


def renew_in_child(renew: Callable[[], None]) -> None:
    """Call a method in each child of a fork, for as long as its object lives.

    It replaces the locks of the object, and what threads of the parent left behind. It runs before anything else does.
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
