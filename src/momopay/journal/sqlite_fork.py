"""SQLite across a fork: a file that was open when its process forked is refused in the child.

SQLite keeps a file's locks in the memory of its process. A child inherits that memory, but not the locks. If it opens
a file that was open at the fork, it believes that it holds them. Then another process deletes the write-ahead log, and
what the child committed is lost. So `momopay.journal.sqlite` has a file open only while a statement runs, and a child
that was forked at just such a moment does not open it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from momopay.errors import JournalError

# The process, the path, and an object of its own for each connection that may be open. In a child, the entries of other
# processes are what its parents had open when they forked. There is no lock, which a fork could copy while another
# thread holds it: adding to a set, discarding from it and copying it are atomic.
_open: set[tuple[int, str, object]] = set()


@contextmanager
def marked_open(path: str) -> Generator[None]:
    """Mark a file as open in this process while the context lasts.

    Raises:
        JournalError: It was open when this process was forked.
    """
    process = os.getpid()
    if any(other != process and opened == path for other, opened, _ in tuple(_open)):
        raise JournalError(
            "this process was forked while another thread used the journal, so SQLite is not safe in it:"
            " fork before threads begin, or start processes by spawn"
        )
    mark = (process, path, object())
    _open.add(mark)  # before the file is opened, as a fork may come between the two
    try:
        yield
    finally:
        _open.discard(mark)
