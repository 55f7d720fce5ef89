"""`FileRateBudget`: one rate budget for the processes of a machine, without a server.

The file holds a `SharedState`, by the machine's clock, under a lock. What may happen to it:
    - A process dies with the lock: the kernel releases it. One that is stopped with the lock: nobody gets a slot until
      it goes on or ends; nobody blocks on the lock, so calls keep their deadlines.
    - It is damaged or deleted: the window counts as full, whichever process comes first. A second, empty file beside
      it shows that the budget was used before. Only if that one was deleted too, a process that never used the budget
      begins with a free window.

Threads of a process share one descriptor and thereby the file's lock, so they have a lock of their own. An exception
out of a signal handler leaves neither held: both are released by functions of C, called directly.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from momopay._ratelimit.limiter import BaseBudget
from momopay._ratelimit.shared import Change, SharedSlots, SharedState
from momopay._ratelimit.slot_log import SlotLog
from momopay.errors import ConfigurationError

if TYPE_CHECKING:
    from momopay._ratelimit.limiter import Backend

if sys.platform != "win32":
    import fcntl

__all__ = ["FileRateBudget"]

logger = logging.getLogger("momopay")

_MAX_BYTES: Final = 65536


class FileRateBudget(BaseBudget):
    """One rate budget for all processes of a machine that use a key: web workers, queue workers, commands.

    It keeps `RateBudget`'s log in a file, under a lock. So it needs no server, and it remembers what was sent when a
    process ends, crashes or starts anew. Payments go first, whichever process they wait in. A slot costs less than
    0.1 ms; nothing waits for the lock. If the file is damaged or was deleted, the window counts as full: the
    logger ``momopay`` says so (WARNING), and requests wait for up to a window. A hidden empty file beside it,
    ``.NAME.used``, shows that it was there. Safe to use from many threads and event loops, and across a fork. Money
    never moves here.

    Args:
        path: The file, or a folder in which each account has a file of its own. By default a file in XDG_RUNTIME_DIR,
            or in the temporary folder, named by a hash of address and key. Give a path if not all processes have the
            same environment: cron and systemd set no XDG_RUNTIME_DIR. The file must be on a local disk.
        requests: How many requests a window holds, for all who share it. Two below the service's 60.
        window: Its length, seconds. One above the service's 60.

    Raises:
        ConfigurationError: The system has no file locks of this kind (Windows). At a call: the file cannot be used,
            because it belongs to another user or is a link. Then nothing is sent.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, requests: int = 58, window: float = 61.0) -> None:
        if sys.platform == "win32":
            raise ConfigurationError("FileRateBudget needs POSIX file locks; use RedisRateBudget")
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError("path must name a file or a folder")
        self.path: Path | None = None if path is None else Path(path).absolute()
        super().__init__(requests, window)

    def __repr__(self) -> str:
        where = "" if self.path is None else f"{str(self.path)!r}, "
        return f"FileRateBudget({where}requests={self.requests}, window={self.window})"

    def _open(self, account_hash: str) -> FileSlots:
        path = self.path
        if path is None:
            path = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
            if not (path.is_absolute() and path.is_dir()):
                path = Path(tempfile.gettempdir())
        if path.is_dir():
            path /= f"momopay-{account_hash[:32]}.budget"
        return FileSlots(path, self.requests, self.window, is_private=self.path is None)


class FileSlots(SharedSlots):
    """The slots of one account, in its file."""

    def __init__(self, path: Path, requests: int, window: float, *, is_private: bool) -> None:
        super().__init__(requests, window)
        self._path = path
        self._marker = path.with_name(f".{path.name}.used")
        self._is_private = is_private  # of one user, in a folder where others may write
        self._descriptor = -1
        self._is_known = False  # whether this process has used the budget
        self._refusals = 0

    def close(self) -> None:
        """Close the file; the next request opens it again."""
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without waiting for the lock."""
        # In a child, too: the file that it inherited would keep a lock that a thread of its parent held at the fork.
        descriptor, self._descriptor = self._descriptor, -1  # first: an exception must not leave a number that is free
        if descriptor >= 0:
            os.close(descriptor)

    async def _change(self, backend: Backend, change: Change) -> float:
        """Change the file and return the delay; without the lock, return the time after which to try again."""
        with self._lock:
            try:
                delay = None
                while delay is None:
                    delay = self._try_change(backend, change)
            except OSError as error:
                self.abandon()
                if error.errno is None:  # not the system's: a signal handler raised it
                    raise
                raise ConfigurationError(
                    f"the rate budget's file {self._path} cannot be used ({error.strerror}): remove it, or give"
                    " FileRateBudget another path, in a folder where only you may write. Nothing was sent"
                ) from error
        return delay

    def _try_change(self, backend: Backend, change: Change) -> float | None:
        """Change the file, or return None if it has been deleted or replaced meanwhile."""
        if self._descriptor < 0:
            self._open_file()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            now = backend.now()  # before the next line, so that no slot of a deleted file is later than it
            if self._is_current():
                self._refusals = 0
                state = self._read(now)
                delay = self._apply(change, state, now, now)
                os.pwrite(self._descriptor, state.dump(now), 0)
                self._is_known = True
                return delay
        except BlockingIOError:
            # Never waits: an event loop may be the caller, and whoever holds the lock may be stopped.
            self._refusals += 1
            return min(0.25, 0.001 * 2.0 ** min(self._refusals - 1, 8))
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.abandon()
        return None

    def _open_file(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        found = os.fstat(self._descriptor)
        for is_so, reason in (
            (not stat.S_ISREG(found.st_mode), "it is not a file"),
            (found.st_mode & stat.S_IWOTH, "it can be written by everybody"),
            (self._is_private and found.st_uid != os.geteuid(), "it belongs to another user"),
            (self._is_private and found.st_nlink > 1, "it has another name, too"),
        ):
            if is_so:
                raise PermissionError(errno.EPERM, reason)

    def _is_current(self) -> bool:
        """Return whether the open file is still the one at the path."""
        with suppress(FileNotFoundError):
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116  a Path costs more than the call
            return os.path.samestat(found, os.fstat(self._descriptor))
        return False

    def _read(self, now: float) -> SharedState:
        text = os.pread(self._descriptor, _MAX_BYTES, 0)
        if not self._is_known:
            # Beside a good log, too: what cleans temporary folders may have deleted the marker of an old budget.
            with suppress(FileExistsError, PermissionError):
                self._marker.touch(0o600, exist_ok=False)
                if not text:  # nobody has used this budget before
                    return SharedState(SlotLog(*self.size))
        state = SharedState.parse(text, *self.size, now)
        if state is None:
            name, window = self._path, self.size[1]
            logger.warning("the rate budget's file %s was damaged or deleted: no request for %g s", name, window)
            return SharedState.full(*self.size, now)
        return state
