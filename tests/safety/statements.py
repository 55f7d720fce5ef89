"""Something else happens just before the k-th statement of a call: another call, a failure, the process's end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from sqlalchemy import Engine, event


class Statements:
    """Counts the statements of a call, and does something before one of them."""

    def __init__(self, number: int | None, work: Callable[[], object], *, stays: bool = False) -> None:
        """Do the work before statement `number`, counted from 1; if it `stays`, before all later ones too."""
        self.count = 0
        self.has_struck = False
        self._number = number
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
        if self._is_working or self._number is None:  # what the work itself executes is not counted
            self.count += self._number is None
            return
        self.count += 1
        if self.count == self._number or (self._stays and self.count > self._number):
            self.has_struck = True
            self._is_working = True
            try:
                self._work()
            finally:
                self._is_working = False


def nothing() -> None:
    """Do nothing: for counting."""


def count_statements(call: Callable[[], object]) -> int:
    """Return how many statements a call executes."""
    counting = Statements(None, nothing)
    with counting.watched():
        call()
    return counting.count


def each_moment(most: int, attempt: Callable[[int], bool]) -> int:
    """Call `attempt(k)` for k = 1, 2, ... until it returns that there was no k-th statement; return how many were."""
    for number in range(1, most + 1):
        if not attempt(number):
            return number - 1
    raise AssertionError(f"a call of more than {most} statements")
