"""Errors leave no values behind: the frames that one went through lose their locals."""

from __future__ import annotations

import traceback


def forget(error: BaseException) -> None:
    """Clear the locals of the frames that an error went through, and of those of its causes.

    They hold the key and whole phone numbers, which a traceback with locals would show. Only causes are followed: a
    context may be the caller's own. A frame that still runs keeps its locals; whoever calls this drops them.
    """
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__
