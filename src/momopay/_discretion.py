"""Errors leave no values behind: the frames that one went through lose their locals."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def forget(error: BaseException) -> None:
    """Clear the locals of the frames that an error went through, and of those of its causes.

    They hold the key and whole phone numbers, which a traceback with locals would show. Only causes are followed: a
    context may be the caller's own. A frame that still runs keeps its locals; whoever calls this drops them.
    """
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__


def forgetful(work: Callable[P, T]) -> Callable[P, T]:
    """Let a function that refuses its arguments leave them behind nowhere; nor a constructor its half-made object."""

    @wraps(work)
    def discreetly(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except Exception as error:
            forget(error)
            del args, kwargs
            raise

    return discreetly
