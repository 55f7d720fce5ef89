"""Work in a forked child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def succeeds_in_child(work: Callable[[], object]) -> bool:
    """Whether the work ends well in a forked child, within ten seconds."""
    child = os.fork()
    if child == 0:
        worker = threading.Thread(target=lambda: (work(), os._exit(0)), daemon=True)
        worker.start()
        worker.join(10)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
