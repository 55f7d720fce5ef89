"""Callers that wait for the same kind of answer take turns: one at a time makes the requests for all of them.

Why not a worker of its own, in a thread or task: a client would have to start it, stop it and survive its failures.
Here the requests are made by a caller that waits anyway. If that caller is cancelled or gives up, its turn ends and
another one takes the next.

Thread safety: all methods may be called from any thread on a blocking client, and from the event loop of an
asynchronous one. The child of a fork begins anew: a thread that had the turn is not there to end it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet


class Caller(Protocol):
    """One that takes part."""

    def wake(self) -> None:
        """Make it examine its own state, which is written first, so that no wake-up is lost."""
        ...


CallerT = TypeVar("CallerT", bound=Caller)


class Turns(Generic[CallerT]):
    """Registers callers, wakes them, and grants one of them the turn."""

    def __init__(self) -> None:
        self._renew()
        _all_turns.add(self)

    def _renew(self) -> None:
        self._callers: dict[int, CallerT] = {}  # in order, by identity: one of thousands leaves at once
        # Reentrant: the garbage collector may end a wait that was left while this thread holds it.
        self._callers_lock = threading.RLock()
        self._turn = threading.Lock()

    @staticmethod
    def renew_all() -> None:
        """Begin anew in the child of a fork."""
        for each in list(_all_turns):
            each._renew()  # noqa: SLF001  this class's own

    @contextmanager
    def register(self, caller: CallerT) -> Generator[None]:
        callers, lock = self._callers, self._callers_lock  # they may be others when it ends, if the process forks
        with lock:
            callers[id(caller)] = caller
        try:
            yield
        finally:
            with lock:
                del callers[id(caller)]

    @contextmanager
    def take_turn(self) -> Generator[bool]:
        """Take the turn if nobody has it, and yield whether it was taken."""
        # Never blocks: whoever does not get the turn waits for its own signal, so that it still ends at its deadline.
        turn = self._turn
        taken = turn.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken:
                turn.release()
                # Whatever ended the turn, cancellation included, the others must see that it is free.
                self.wake()

    def wake(self) -> None:
        for caller in self.registered():
            caller.wake()

    def registered(self) -> list[CallerT]:
        """Return those that take part now, the longest first."""
        with self._callers_lock:
            return list(self._callers.values())


_all_turns: WeakSet[Turns[Any]] = WeakSet()

if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=Turns.renew_all)
