"""The variable ``MOMOPAY_LOG``, which shows the log of a program that configures none.

Loaded when the package is imported, and only if the variable is set.
"""

from __future__ import annotations

import logging

logger: logging.Logger = logging.getLogger("momopay")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO}


class FallbackHandler(logging.StreamHandler):  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument]  it takes none at run time
    """Writes to the standard error unless the program has handlers of its own, which would write a line again."""

    def emit(self, record: logging.LogRecord) -> None:
        others = [handler for handler in (*logger.handlers, *logging.getLogger().handlers) if handler is not self]
        if not others:
            super().emit(record)


def configure(level: str) -> None:
    """Let the logger of the package show this level, ``debug`` or ``info``; log a warning for any other."""
    if level.lower() not in _LEVELS:
        logger.warning("MOMOPAY_LOG must be debug or info; it is ignored")
        return
    handler = FallbackHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[level.lower()])
