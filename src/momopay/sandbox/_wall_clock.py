"""The clock that drives virtual time. Seconds, from a start that means nothing."""

import sys
import time

if sys.platform == "win32":

    def monotonic() -> float:
        """Return seconds on a clock that nobody sets."""
        return time.monotonic()

else:

    def monotonic() -> float:
        """Return seconds on a clock that nobody sets, and that freezegun does not stop: it would stop the server."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)
