"""One run of a payroll at a terminal: look, show, ask, pay, look again, report."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.output import Output, stderr
from momopay.cli.payroll import (
    Payroll,
    Plan,
    Result,
    hints,
    is_of_this_account,
    look_again,
    plan,
    refuse_conflicts,
)
from momopay.cli.payroll_view import show_end, show_plan, show_row, write_report
from momopay.errors import MomoPayError
from momopay.journal import JournalState

if TYPE_CHECKING:
    from types import FrameType

    from momopay._ratelimit.budget import Budget
    from momopay.cli.payroll_file import Salaries
    from momopay.client import Client
    from momopay.journal import Journal


def pay_file(
    output: Output,
    salaries: Salaries,
    client: Client,
    journal: Journal,
    *,
    budget: Budget | None,
    agree: Callable[[Plan], None],
    report: Path | None = None,
) -> int:
    """Pay what is still to be paid.

    Args:
        output: Where to show it.
        salaries: The file.
        client: Of the account.
        journal: Of the account.
        budget: The client's.
        agree: Raises unless somebody wants this paid.
        report: A file to write what became of every row to.

    Returns:
        The exit status.

    Raises:
        CommandError: Nothing was sent: the file contradicts the journal, or the journal is another account's.
        MomoPayError: Nothing was sent: the service or the journal failed on the way.
    """
    made = _looked(salaries, client, journal)
    show_plan(output, salaries, made, hints(client))
    results = {row.reference: Result(row, entry.state, entry.transaction_id) for row, entry in made.accepted}
    results |= {row.reference: Result(row, entry.state, entry.transaction_id) for row, entry in made.in_doubt}
    if report is not None:
        write_report(output, report, salaries, results)  # so that it can be written is known before money moves
    signalled = _Signalled()
    stopped_by: MomoPayError | None = None
    if made.to_pay:
        agree(made)
        with _progress(output, len(made.to_pay)) as (advance, pausing):
            payroll = Payroll(client, journal, budget=budget, pausing=pausing)
            with _stopping(payroll, signalled), suppress(KeyboardInterrupt):
                for result in payroll.pay(made.to_pay):
                    results[result.row.reference] = result
                    advance()
                    show_row(output, result)
        stopped_by = payroll.stopped_by
    if not signalled.number:
        try:
            look_again(journal, client, results)
        except MomoPayError as error:
            stopped_by = stopped_by or error
    if report is not None:
        write_report(output, report, salaries, results)
    code = _exit_code(salaries, results, signalled.number)
    show_end(
        output,
        salaries,
        results,
        before=frozenset(row.reference for row, _ in made.accepted),
        stopped_by=stopped_by,
        interrupted=bool(signalled.number),
        code=code,
    )
    return code


def _looked(salaries: Salaries, client: Client, journal: Journal) -> Plan:
    made = plan(salaries.rows, journal)
    refuse_conflicts(made)
    if not is_of_this_account(made, client):
        raise CommandError(
            "this account does not have what the journal calls accepted: it is the journal of another account",
            remedy="keep one journal for each account: one filled on a sandbox ends with that sandbox",
            code=ExitCode.CONFIGURATION,
        )
    journal.reconcile_all(client)
    return plan(salaries.rows, journal)


def _exit_code(salaries: Salaries, results: dict[str, Result], signal_number: int) -> int:
    if signal_number:
        return 128 + signal_number
    states = [results[row.reference].state if row.reference in results else None for row in salaries.rows]
    if any(state in {JournalState.UNKNOWN, JournalState.SENDING} for state in states):
        return ExitCode.UNKNOWN
    return ExitCode.OK if all(state is JournalState.ACCEPTED for state in states) else ExitCode.PARTLY


@dataclass
class _Signalled:
    number: int = 0


@contextmanager
def _stopping(payroll: Payroll, signalled: _Signalled) -> Generator[None]:
    """Let a first signal stop after the payout under way, and a second one break it off."""

    def stop(number: int, _frame: FrameType | None) -> None:
        if signalled.number:
            raise KeyboardInterrupt
        signalled.number = number
        payroll.stop = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(output: Output, rows: int) -> Generator[tuple[Callable[[], None], Callable[[float], None]]]:
    """Give what tells of a row done, and of a pause."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr(),
        disable=output.as_json,
        transient=True,
    )
    with bar:
        task = bar.add_task("Paying", total=rows)

        def advance() -> None:
            bar.update(task, advance=1, description="Paying")

        def pausing(_seconds: float) -> None:
            bar.update(task, description="Waiting for the rate budget")

        yield advance, pausing
