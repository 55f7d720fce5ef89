"""`FileRateBudget`: one rate budget for the processes of a machine, without a server."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from momopay._ratelimit.budget import check_size
from momopay._ratelimit.file_log import FileLog
from momopay._ratelimit.lane import Lane, Place
from momopay._ratelimit.line import Line
from momopay.errors import ConfigurationError

__all__ = ["FileRateBudget"]


class FileRateBudget:
    """One rate budget for all processes of a machine that use a key: web workers, queue workers, commands.

    It keeps `RateBudget`'s log in a file, under a lock. So it needs no server, and it remembers what was sent when a
    process ends, crashes or starts anew. Payments go first, whichever process they wait in. A slot costs some 50
    microseconds; nothing waits for the lock. If the file is damaged or was deleted, the window counts as full: the
    logger ``momopay`` says so (WARNING), and requests wait for up to a window. Safe to use from many threads and event
    loops, and across a fork. Money never moves here.

    Args:
        path: The file, or a folder in which each account has a file of its own. By default a file in XDG_RUNTIME_DIR,
            or in the temporary folder, named by a hash of address and key. Give a path if not all processes have the
            same environment: cron and systemd set no XDG_RUNTIME_DIR. The file must be on a local disk.
        requests: How many requests a window holds, for all who share it. Two below the service's 60.
        window: Its length, seconds. One above the service's 60.

    Raises:
        ConfigurationError: An argument is out of range, or the system has no file locks of this kind (Windows). At a
            call: the file cannot be used, because it belongs to another user or is a link. Then nothing is sent.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, requests: int = 58, window: float = 61.0) -> None:
        check_size(requests, window)
        if sys.platform == "win32":
            raise ConfigurationError("FileRateBudget needs POSIX file locks; use RedisRateBudget")
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError("path must name a file or a folder")
        self.path: Path | None = None if path is None else Path(path).absolute()
        self.requests = requests
        self.window = window
        # By process, because a lock belongs to the open file, which the child of a fork shares with its parent.
        self._logs: dict[tuple[int, str], FileLog] = {}

    def slots(self, backend: Any, account_hash: str) -> Any:
        """Return the slots of an account, asked for through a client's backend. Clients do this for themselves."""
        path = str(self._path_for(account_hash))
        return FileSlots(backend, lambda: self._own_log(path))

    def close(self) -> None:
        """Close the files; they open again when needed."""
        for log in list(self._logs.values()):
            log.close()

    def __repr__(self) -> str:
        where = "" if self.path is None else f"{str(self.path)!r}, "
        return f"FileRateBudget({where}requests={self.requests}, window={self.window})"

    def _path_for(self, account_hash: str) -> Path:
        if self.path is not None and not self.path.is_dir():
            return self.path
        return (self.path or _default_folder()) / f"momopay-{account_hash[:32]}.budget"

    def _own_log(self, path: str) -> FileLog:
        name = (os.getpid(), path)
        log = self._logs.get(name)
        if log is None:
            is_private = self.path is None
            log = self._logs.setdefault(name, FileLog(path, self.requests, self.window, is_private=is_private))
        return log


@dataclass(frozen=True)
class FileSlots:
    """One account's slots as one client asks for them."""

    backend: Any  # the client's, blocking or asynchronous
    log: Callable[[], FileLog]

    @property
    def line(self) -> Line:
        """Where the calls of this process wait."""
        return self.log().line

    def reserve_now(self, _now: float, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        return self.log().reserve_now(self.backend.now, lane, place)  # the clock is read under the lock

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, to nobody who shares the file."""
        self.log().stop(self.backend.now, until - now)

    async def close(self) -> None:
        """Close this process's file; another client that uses it opens it again."""
        self.log().close()


def _default_folder() -> Path:
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(folder) if Path(folder).is_absolute() and Path(folder).is_dir() else Path(tempfile.gettempdir())
