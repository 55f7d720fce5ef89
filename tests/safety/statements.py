"""Something else happens just before the k-th statement of a call: another call, a failure, the process's end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from sqlalchemy import Engine, event


class Statements:
    """Counts the statements of a call, and does something before one of them."""

    def __init__(self, number: int, work: Callable[[], object], *, stays: bool = False) -> None:
        """Do the work before statement `number`, counted from 1; if it `stays`, before all later ones too."""
        self.has_struck = False
        self._number = number
        self._count = 0
        self._work = work
        self._stays = stays
        self._is_working = False

    @contextmanager
    def watched(self) -> Generator[None]:
        event.listen(Engine, "before_cursor_execute", self._before)
        try:
            yield
        finally:
            event.remove(Engine, "before_cursor_execute", self._before)

    def _before(self, *_statement: object) -> None:
        if self._is_working:  # what the work itself executes is not counted
            return
        self._count += 1
        if self._count == self._number or (self._stays and self._count > self._number):
            self.has_struck = True
            self._is_working = True
            try:
                self._work()
            finally:
                self._is_working = False
