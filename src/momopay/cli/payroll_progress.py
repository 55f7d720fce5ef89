"""What a payroll shows while it works: a line while the service is read, a bar while rows are paid and followed.

A wait for the rate budget is shown as soon as it begins: after a crash, the first request of the next run may have to
wait for a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.text import Text

import momopay
from momopay._ratelimit.budget import LocalSlots
from momopay._ratelimit.slot_log import Place
from momopay._transport import clock
from momopay.cli.output import Output, stderr

# Seconds: a shorter wait is not worth a line.
_WORTH_SHOWING: Final = 2.0
_LOOK_EVERY: Final = 0.25
# All columns together fit on 80 characters, with 10,000 rows and a wait.
_BAR_WIDTH: Final = 12


class Pace:
    """How long the rate budget lets requests wait."""

    def __init__(self, budget: momopay.RateBudget) -> None:
        self._slots = LocalSlots(budget)
        self.lane: momopay.Lane = momopay.Lane.READ
        """What is asked for now."""

    def seconds(self, requests: int = 1) -> float:
        """Return the seconds until so many requests, one after another, may have gone out."""
        place = Place(queued=True, same=requests - 1, payments=requests if self.lane is momopay.Lane.PAYMENT else 0)
        return self._slots.expect(clock.now(), self.lane, place) if requests > 0 else 0.0

    def describe(self) -> str:
        """Return what it waits for, or ""."""
        seconds = self.seconds()
        return f"waiting for the rate budget, {seconds:.0f} s" if seconds >= _WORTH_SHOWING else ""


@contextmanager
def reading(output: Output, pace: Pace, what: str) -> Generator[None]:
    """Show that the service is read, and what the reading waits for."""
    pace.lane = momopay.Lane.READ
    with _announced(output, pace):
        if output.as_json:
            yield
        else:
            with stderr().status(Activity(pace, what)):
                yield


@contextmanager
def progress(output: Output, pace: Pace, rows: int, what: str, lane: momopay.Lane) -> Generator[Callable[[], None]]:
    """Show a progress bar; yield what to call after each row."""
    pace.lane = lane
    columns = (What(pace), BarColumn(bar_width=_BAR_WIDTH), MofNCompleteColumn(), Clock(pace))
    console = stderr()
    is_hidden = output.as_json or not console.is_terminal
    with _announced(output, pace), Progress(*columns, console=console, disable=is_hidden, transient=True) as bar:
        task = bar.add_task(what, total=rows)
        yield lambda: bar.update(task, advance=1)


class Activity:
    """A text that is made anew each time it is drawn."""

    def __init__(self, pace: Pace, what: str) -> None:
        self._pace = pace
        self._what = what

    def __rich__(self) -> Text:
        return Text(": ".join(filter(None, (self._what, self._pace.describe()))))


class What(ProgressColumn):
    """What is under way, or what it waits for."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        """Return it."""
        return Text(self._pace.describe().capitalize() or task.description)


class Clock(ProgressColumn):
    """The time that the rate budget needs for the rest; for ends, which no budget tells, the time until now."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        """Return it, by the pace of the budget."""
        is_paying = self._pace.lane is momopay.Lane.PAYMENT
        shown = self._pace.seconds(int(task.remaining or 0)) if is_paying else task.elapsed or 0.0
        minutes, seconds = divmod(round(shown), 60)
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}:{minutes:02}:{seconds:02}"
        return Text(f"about {text} left" if is_paying else f"since {text}", style="cyan")


@contextmanager
def _announced(output: Output, pace: Pace) -> Generator[None]:
    """Where nothing can be redrawn, as in a log, write a line when a wait begins."""
    if output.as_json or stderr().is_terminal:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        is_waiting = False
        while not ended.wait(_LOOK_EVERY):
            text = pace.describe()
            if text and not is_waiting:
                output.note(text.capitalize())
            is_waiting = bool(text)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
