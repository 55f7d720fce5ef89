"""The log of a rate budget in a file, under a lock. Times are in whole microseconds of the machine's clock.

What may happen to the file, and what then holds:
    - A process dies with the lock: the kernel releases it. One that is stopped with the lock: nobody gets a slot until
      it goes on or ends; nobody blocks on the lock, so calls keep their deadlines.
    - The machine restarts, and its clock begins anew: the log counts as if it had been written just now.
    - It is truncated, overwritten or deleted while in use: the window counts as full.
    - It is another's, or a link: ConfigurationError, and nothing is sent.

Thread safety: a lock for the threads of a process, because they share one descriptor and thereby the file's lock.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from momopay._ratelimit.file_state import SECOND, FileState
from momopay._ratelimit.lane import Lane, Place
from momopay._ratelimit.line import Line
from momopay.errors import ConfigurationError

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("momopay")

_MAX_BYTES: Final = 65536
_NEW: Final = SECOND  # how long a file may stay empty before whoever made it has died


class FileLog:
    """The log of one account, as one process uses it."""

    def __init__(self, path: str, requests: int, window: float, *, is_private: bool) -> None:
        self.line: Line = Line()
        self._path = path
        self._requests = requests
        self._window = round(window * SECOND)
        self._is_private = is_private  # of one user, in a folder where others may write
        self._member = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._descriptor = -1
        self._file: tuple[int, int] | None = None  # device and inode; kept when the file is closed
        self._is_new = self._was_deleted = False
        self._empty_since: int | None = None
        self._stopped_until = 0
        self._refusals = 0

    def reserve_now(self, clock: Callable[[], float], lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        delay = self._change(clock, lambda state, now: state.reserve_now(now, lane, place, self._member))
        return delay / SECOND

    def stop(self, clock: Callable[[], float], seconds: float) -> None:
        """Hand out no slot for so long, to any process; in this one even if the file cannot be locked now."""
        with self._lock:
            self._stopped_until = max(self._stopped_until, round((clock() + seconds) * SECOND))
        self._change(clock, lambda _state, _now: 0)

    def close(self) -> None:
        """Close the file; it opens again when needed."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _change(self, clock: Callable[[], float], change: Callable[[FileState, int], float]) -> float:
        """Change the file and return what `change` does; without the lock, return the time after which to try again."""
        with self._lock:
            try:
                self._open()
                if not self._lock_file():
                    return self._try_again()
                try:
                    now = int(clock() * SECOND)
                    state = self._read(now)
                    if state is None:
                        return self._try_again()
                    self._refusals = 0
                    if self._stopped_until > now:
                        state.log.stop(now, self._stopped_until)
                    result = change(state, now)
                    os.pwrite(self._descriptor, state.dump(now), 0)
                finally:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            except OSError as error:
                self._close()
                raise ConfigurationError(
                    f"the rate budget's file {self._path} cannot be used ({error.strerror}): remove it, or give"
                    " FileRateBudget another path. Nothing was sent"
                ) from error
        return result

    def _lock_file(self) -> bool:
        # Never waits: an event loop may be the caller, and whoever holds the lock may be stopped.
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _try_again(self) -> int:
        # The lock is held for some 50 microseconds. Who does not give it back after some tries is stopped.
        self._refusals += 1
        return min(SECOND // 4, (SECOND // 1000) << min(self._refusals - 1, 8))

    def _open(self) -> None:
        if self._descriptor >= 0:
            with suppress(FileNotFoundError):
                found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116  a Path costs more than the call
                if (found.st_dev, found.st_ino) == self._file:
                    return
            self._close()  # others write into another file by now
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            self._is_new, self._was_deleted = True, self._file is not None
        except FileExistsError:
            self._descriptor = os.open(self._path, flags)
        found = os.fstat(self._descriptor)
        self._file = (found.st_dev, found.st_ino)
        reason = _fault(found, is_private=self._is_private)
        if reason:
            self._close()
            raise ConfigurationError(
                f"the rate budget's file {self._path} {reason}: remove it, or give FileRateBudget a path in a folder"
                " where only you may write. Nothing was sent"
            )

    def _read(self, now: int) -> FileState | None:
        """Return what the file holds, or None if whoever made it just now has not written it yet."""
        size = (self._requests, self._window)
        is_new, self._is_new = self._is_new, False
        if is_new and not self._was_deleted:
            return FileState.empty(*size)
        text = os.pread(self._descriptor, _MAX_BYTES, 0)
        if not text and not is_new:
            self._empty_since = now if self._empty_since is None else self._empty_since
            if now < self._empty_since + _NEW:
                return None
        self._empty_since = None
        try:
            return FileState.parse(text, *size, now)
        except (KeyError, RecursionError, TypeError, ValueError):
            logger.warning(
                "the rate budget's file %s was damaged: no request for %g s", self._path, self._window / SECOND
            )
            return FileState.full(*size, now)


def _fault(found: os.stat_result, *, is_private: bool) -> str:
    """Return what is wrong with a file, or nothing."""
    if not stat.S_ISREG(found.st_mode):
        return "is not a file"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if is_private and found.st_uid != os.geteuid():
        return "belongs to another user"
    if is_private and found.st_nlink > 1:
        return "has another name, too"
    return ""
