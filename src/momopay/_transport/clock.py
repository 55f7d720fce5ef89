"""The clock of every deadline in this package, and of the rate budget: it also runs while the machine sleeps."""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":

    def now() -> float:
        """Return the seconds since some moment, on a clock that never goes back."""
        # Linux stops CLOCK_MONOTONIC while the machine is suspended. A payment whose deadline passed meanwhile would
        # still be sent when the machine wakes up, long after somebody has looked for it and found nothing.
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Return the seconds since some moment, on a clock that never goes back."""
        return time.monotonic()
