"""`FileRateBudget`: one rate budget for the processes of a machine, without a server.

The file holds a `SharedState` by the machine's clock, and is changed under a lock. What may go wrong:
    - A process dies while it holds the lock: the kernel releases the lock. If it is only stopped, nobody gets a slot
      until it continues or dies. Nobody blocks on the lock, so calls keep their deadlines.
    - The file is damaged: the window counts as full.
    - The file is deleted: the window counts as full for a process that has used the budget. For another, this is the
      first use ever.

Threads of a process share one descriptor and thereby the file's lock, so they have a lock of their own. An exception
from a signal handler leaves neither held: C functions release both, and the file is closed.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import stat
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from momopay._locks import SafeLock
from momopay._ratelimit.budget import BUSY, BaseBudget, Slots
from momopay._ratelimit.slot_log import Lane, Place, SlotLog
from momopay.errors import ConfigurationError

if TYPE_CHECKING:
    from momopay._ratelimit.budget import Backend

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["FileRateBudget"]

logger: logging.Logger = logging.getLogger("momopay")

_VERSION: Final = 1  # of the format
_GRACE: Final = 1.0  # seconds that a process may take to wake up for a payment's slot


@dataclass
class SharedState:
    """What processes share: the log, and for each process how many payments wait and until when that is valid.

    Times are in seconds of one clock, the machine's or the Redis server's.
    """

    log: SlotLog
    waiting: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])

    @classmethod
    def full(cls, requests: int, window: float, now: float) -> Self:
        """Return a state in which the whole window was used just now."""
        log = SlotLog(requests, window)
        log.slots = [now] * requests
        log.stop(now, now + window)  # for processes that allow more requests
        return cls(log)

    @classmethod
    def parse(cls, text: str | bytes, requests: int, window: float, now: float) -> Self | None:
        """Return the state in the first line of the text, or None if it is damaged."""
        try:
            data: Any = json.loads(text.splitlines()[0])
            if data["version"] != _VERSION:
                return None
            # If the machine restarted or the server's clock was set back, the state counts as written just now.
            shift = max(0.0, data["now"] - now)
            log = SlotLog(requests, window)
            log.kept_for = max(window, data["window"])
            log.slots = [each - shift for each in data["slots"]]
            log.polls = [each - shift for each in data["polls"]]
            log.stopped_until = data["stop"] - shift
            log.asked = {lane: data["asked"][lane.value] - shift for lane in Lane}
            return cls(log, {process: (int(count), until - shift) for process, count, until in data["waiting"]})
        except (IndexError, KeyError, RecursionError, TypeError, ValueError):
            return None

    def dump(self, now: float) -> bytes:
        """Return one line of JSON. In a file, the rest of a longer text may follow it."""
        log = self.log
        data = {
            "version": _VERSION,
            "now": now,
            "window": log.kept_for,
            "slots": log.slots,
            "polls": log.polls,
            "stop": log.stopped_until,
            "asked": {lane.value: asked for lane, asked in log.asked.items()},
            "waiting": [(process, *each) for process, each in self.waiting.items() if each[0] > 0 and each[1] > now],
        }
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"

    def reserve_now(self, now: float, lane: Lane, place: Place, process: str) -> float:
        others = sum(count for name, (count, until) in self.waiting.items() if name != process and until > now)
        if others and lane is not Lane.PAYMENT:  # payments go first, whichever process they wait in
            place = place._replace(queued=True, before=place.before + others)
        delay = self.log.reserve(now, lane, 0.0, place)
        count, until = place.payments, self.waiting.get(process, (0, now))[1]
        if delay <= 0:
            count -= lane is Lane.PAYMENT
        elif lane is Lane.PAYMENT:
            until = max(until, now + delay + _GRACE)
        self.waiting[process] = (count, until)
        return delay


Change = Callable[[SharedState, float], float]
"""Changes a state at a time of its clock, and returns a delay."""


class SharedSlots(Slots):
    """The slots of one account that several processes share."""

    def __init__(self, requests: int, window: float) -> None:
        super().__init__()
        self.size: tuple[int, float] = (requests, window)
        self._process = secrets.token_hex(4)
        self._lock = SafeLock()
        self._stopped_until = -inf  # on this machine's clock; kept until the shared state has it
        # The fewest requests that an answer has shown to remain, and until when. Kept in the same way, because after an
        # answer to a payment nothing may wait or fail.
        self._remaining: tuple[int, float] | None = None

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        remaining = self._remaining
        delay = await self._change(backend, lambda state, at: state.reserve_now(at, lane, place, self._process))
        if delay != BUSY and self._remaining is remaining:
            self._remaining = None
        return delay

    def note_remaining(self, now: float, remaining: int, seconds: float) -> None:
        noted, known = (remaining, now + seconds), self._remaining
        if known is None or known[1] <= now or noted < known:
            self._remaining = noted

    async def stop(self, backend: Backend, seconds: float) -> None:
        """Give no slot to any process for so many seconds; in this one even if the state cannot be changed now."""
        self._stopped_until = max(self._stopped_until, backend.now() + seconds)
        await self._change(backend, lambda _state, _at: 0.0)

    @abstractmethod
    async def _change(self, backend: Backend, change: Change) -> float:
        """Change the shared state and return the delay."""

    def _apply(self, change: Change, state: SharedState, at: float, now: float) -> float:
        """Change a state at the time `at` of its own clock, which is `now` on this machine's."""
        if self._stopped_until > now:
            state.log.stop(at, at + self._stopped_until - now)
        if self._remaining is not None:
            state.log.leave(at, self._remaining[0], self._remaining[1] - now)
        return change(state, at)


class FileRateBudget(BaseBudget):
    """One rate budget for all processes of a machine that use a key: web workers, queue workers, commands.

    It works as `RateBudget` does, with its log in a file. So it needs no server, and it remembers what was sent when a
    process ends, crashes or restarts. Payments go first, whichever process they wait in. A slot costs less than 0.1 ms,
    and no call blocks on the file's lock. If the file is damaged, or deleted while it is in use, the window counts as
    full: the logger ``momopay`` says so (WARNING), and requests wait for up to a window. Safe to use from many threads
    and event loops, and across a fork. It moves no money.

    Args:
        path: The file, or a folder in which each account has its own file. By default a file in XDG_RUNTIME_DIR or the
            temporary folder, named by a hash of address and key. Give a path if the processes do not all have the same
            environment: cron and systemd set no XDG_RUNTIME_DIR. The file must be on a local disk.
        requests: How many requests a window holds, for all who share it. Two below the service's 60.
        window: Its length, seconds. One above the service's 60.

    Raises:
        ConfigurationError: At a call: the file cannot be used, for example because it belongs to another user or is a
            link. Then nothing is sent.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, requests: int = 58, window: float = 61.0) -> None:
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(
                "path must name a file or a folder, or be left out: then it is in the user's runtime folder"
            )
        if path is not None and "\0" in os.fsdecode(path):
            raise ConfigurationError("path has a NUL character, which no file's name can have")
        self.path: Path | None = None if path is None else Path(path).absolute()
        super().__init__(requests, window)

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
        self._is_private = is_private  # must belong to this user, because others may write to the folder
        self._descriptor = -1
        self._is_known = False  # whether this process has used the budget

    def close(self) -> None:
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        # A forked child must close it, too, or it would keep the lock that a thread of its parent held at the fork.
        descriptor, self._descriptor = self._descriptor, -1  # first, so that an exception leaves no closed descriptor
        if descriptor >= 0:
            os.close(descriptor)

    async def _change(self, backend: Backend, change: Change) -> float:
        """Change the file and return the delay; without the lock, return BUSY."""
        with self._lock:
            try:
                return self._try_change(backend, change)
            except BaseException as error:
                self.abandon()  # an interrupt in a hook of `sys.addaudithook` keeps `flock` from unlocking
                if not isinstance(error, OSError) or error.errno is None:  # not the system's
                    raise
                raise ConfigurationError(
                    f"the rate budget's file {self._path} cannot be used ({error.strerror}): remove it, or give"
                    " FileRateBudget another path, in a folder where only you may write. Nothing was sent"
                ) from error

    def _try_change(self, backend: Backend, change: Change) -> float:
        if self._descriptor < 0:
            self._open_file()
        try:
            _lock(self._descriptor)
        except _LOCKED:
            # Never waits, because the caller may be an event loop, and the process with the lock may be stopped.
            return BUSY
        try:
            now = backend.now()  # before the next line, so that no slot of a deleted file is later than it
            if self._is_current():
                state = self._read(now)
                delay = self._apply(change, state, now, now)
                _write(self._descriptor, state.dump(now))
                self._is_known = True
                return delay
        finally:
            _unlock(self._descriptor)
        self.abandon()  # it was deleted or replaced meanwhile
        return self._try_change(backend, change)

    def _open_file(self) -> None:
        if sys.platform == "win32":
            if self._path.is_symlink():
                raise PermissionError(errno.EPERM, "it is a link")
            # Its modes and owners say nothing; the temporary folder is the user's own.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOINHERIT | os.O_BINARY)
            return
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
        text = _read(self._descriptor)
        if not text and not self._is_known:
            return SharedState(SlotLog(*self.size))
        state = SharedState.parse(text, *self.size, now)
        if state is None:
            name, window = self._path, self.size[1]
            logger.warning("the rate budget's file %s was damaged or deleted: no request for %g s", name, window)
            return SharedState.full(*self.size, now)
        return state


# Windows' locks keep others from reading and writing the locked bytes, too. So one that the state does not reach is
# locked. A call here may begin anywhere in the file: only one thread at a time uses the descriptor.
_LOCK_AT: Final = 1 << 30
_LOCKED: Final = PermissionError if sys.platform == "win32" else BlockingIOError

if sys.platform == "win32":

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCK_AT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCK_AT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _read(descriptor: int) -> bytes:
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, os.fstat(descriptor).st_size)

    def _write(descriptor: int, text: bytes) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, text)

else:

    def _lock(descriptor: int) -> None:
        """Lock the open file until it is unlocked or closed. Raise `_LOCKED` if another process has locked it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _read(descriptor: int) -> bytes:
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def _write(descriptor: int, text: bytes) -> None:
        os.pwrite(descriptor, text, 0)
