"""Renew objects in the child of a fork. Code that must run before a fork uses `os.register_at_fork` itself.

Only the thread that forks exists in the child. A lock that another thread held would stay held there for ever, and what
that thread was doing would never end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from types import MethodType
from weakref import WeakValueDictionary

_numbers = count()
# By a number and the name of the method. A WeakSet would need objects that are hashable.
_renewed: WeakValueDictionary[tuple[int, str], object] = WeakValueDictionary()


def renew_in_child(renew: Callable[[], None]) -> None:
    """Call a bound method in each child of a fork, for as long as its object lives.

    The method replaces the object's locks and the state that the parent's threads left behind.
    """
    assert isinstance(renew, MethodType)  # noqa: S101  for type checkers
    _renewed[next(_numbers), renew.__name__] = renew.__self__


def _renew_all() -> None:
    for (_, method), renewed in list(_renewed.items()):
        getattr(renewed, method)()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_all)
