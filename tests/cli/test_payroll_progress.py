"""What a payroll waits for, and the time left by the rate budget."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from momopay import Lane, RateBudget
from momopay._transport import clock
from momopay.cli.output import Output
from momopay.cli.payroll_progress import Activity, Clock, Pace, What, progress, reading
from patience import until

TEXT = Output(as_json=False)


def stopped(seconds: float) -> Pace:
    """Return the pace of a budget that a 429 has stopped."""
    budget = RateBudget()
    budget.stop(clock.now(), clock.now() + seconds)
    return Pace(budget)


def test_a_wait_is_described() -> None:
    assert Pace(RateBudget()).describe() == ""
    assert stopped(58.2).describe() == "waiting for the rate budget, 58 s"
    assert stopped(1).describe() == ""  # not worth a line


def test_the_time_left_counts_the_budget() -> None:
    budget = RateBudget()
    pace = Pace(budget)
    pace.lane = Lane.PAYMENT
    assert [pace.seconds(number) for number in (0, 1, 58)] == [0, 0, 0]
    assert pace.seconds(59) == pytest.approx(61)
    assert pace.seconds(58 * 10) == pytest.approx(61 * 9)
    for _ in range(58):
        budget.reserve(clock.now(), Lane.PAYMENT)
    assert pace.seconds(1) == pytest.approx(61, abs=1)
    assert pace.seconds(58 * 2) == pytest.approx(61 * 2, abs=1)


def drawn(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().strip()


def test_a_terminal_shows_what_is_waited_for() -> None:
    assert drawn(Activity(Pace(RateBudget()), "Reading the account")) == "Reading the account"
    assert drawn(Activity(stopped(58.2), "Reading")) == "Reading: waiting for the rate budget, 58 s"


def test_a_bar_shows_the_time_left_while_it_pays() -> None:
    pace = stopped(58.2)
    bar = Progress(console=Console(file=io.StringIO()))
    bar.add_task("Paying", total=100)
    (task,) = bar.tasks
    pace.lane = Lane.PAYMENT
    assert drawn(What(pace).render(task)) == "Waiting for the rate budget, 58 s"
    assert drawn(Clock(pace).render(task)) == "about 0:01:59 left"
    pace.lane = Lane.POLL
    assert drawn(Clock(pace).render(task)) == "since 0:00:00"
    assert drawn(What(Pace(RateBudget())).render(task)) == "Paying"


def test_a_line_of_the_bar_fits_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    monkeypatch.setattr("momopay.cli.payroll_progress.stderr", lambda: console)
    with progress(TEXT, stopped(58.2), 10_000, "Paying", Lane.PAYMENT):
        pass
    assert isinstance(console.file, io.StringIO)
    drawn_lines = [Text.from_ansi(line).plain for line in re.split("[\r\n]", console.file.getvalue())]
    assert any("Waiting for the rate budget, 58 s" in line and "left" in line for line in drawn_lines)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_log_has_a_line_for_each_wait(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """At once, and not again while it lasts. Programs read stderr for errors alone."""
    output, said = Output(as_json=as_json), [""]

    def lines() -> int:
        said[0] += capsys.readouterr().err
        return len(re.findall("Waiting for the rate budget, [0-9]+ s\n", said[0]))

    with reading(output, stopped(30), "Reading"):
        until(lambda: as_json or lines() == 1)
        time.sleep(0.3)
    assert lines() == (not as_json)
    with progress(output, stopped(30), 9, "Paying", Lane.PAYMENT):
        until(lambda: as_json or lines() == 2)
    assert lines() == (0 if as_json else 2)
