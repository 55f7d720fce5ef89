"""Payouts: pay a payroll from a CSV file. `momopay.cli.unresolved` has the commands for what is in doubt then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

import momopay
from momopay.cli import unresolved
from momopay.cli.command import Command
from momopay.cli.credentials import api_key, journal_exists, open_client, open_journal
from momopay.cli.exit_codes import ExitCode
from momopay.cli.options import BaseUrl, ConfirmLive, JournalAccount, JournalAt, Json, ShowPhones
from momopay.cli.output import Output, kes, stderr
from momopay.cli.payroll import PayrollRun, Plan, RowOutcome, check_account, make_plan, read_wallet, reconcile
from momopay.cli.payroll_file import FaultyFileError, PayrollFile, read_payroll, total
from momopay.cli.payroll_report import NOT_BEGUN, show_end, show_faults, show_plan, show_row, write_report
from momopay.cli.payroll_similar import check_similar
from momopay.cli.prompts import Confirmation
from momopay.errors import MomoPayError
from momopay.money import format_amount

app: typer.Typer = typer.Typer(help="Pay a list of people once, and see what is in doubt.", no_args_is_help=True)


@app.command(cls=Command)
def run(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv",
            exists=True,
            dir_okay=False,
            help="Columns reference, phone, amount; perhaps description.",
        ),
    ],
    journal: JournalAt,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and the journal; send nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With a test key: do not ask.")] = False,
    confirm_live: ConfirmLive = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what happened to every row, as CSV.")
    ] = None,
    allow_similar: Annotated[
        bool, typer.Option("--allow-similar", help="Also pay what differs only in case, dashes or spaces.")
    ] = False,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Pay every row of a CSV file once, however often this is run.

    Checks the whole file first, and sends nothing if any row is at fault. Then shows totals and asks. Run it again
    after an interruption, a crash or a refusal: the journal knows what was paid. Ctrl-C stops after the payout under
    way.

    --confirm-live takes the total of the whole file, so that the same command resumes. With --json, one event a line:
    plan, row, end. Exits with 0 if the service accepted all, 4 if rows are in doubt, 5 if rows were not paid.
    """
    output = Output(as_json, show_phones)
    with _faults_shown(output):
        payroll = read_payroll(file)
        if dry_run:
            # Without the key or the network, and without making a journal that the check would leave behind.
            with open_journal(journal, account) if journal_exists(journal) else nullcontext() as opened:
                plan = make_plan(payroll.rows, opened)
            check_similar(plan.similar, allowed=allow_similar)
            show_plan(output, payroll, plan, None)
            output.note("Dry run: nothing was sent.")
            return
        # Asked for before the file is judged against the account: a program pipes the key first, then its answer.
        key, budget = api_key(), momopay.RateBudget()
        confirmation = Confirmation(key, may_move=payroll.total, yes=yes, confirm_live=confirm_live)

        # The options state the total of the file, so that the same command resumes it; a person types what is still
        # due.
        def confirm(plan: Plan) -> None:
            due = total(plan.to_pay)
            confirmation.ask(f"Pay KES {kes(due)} to {len(plan.to_pay)} people now?", to_type=format_amount(due))

        with (
            open_client(base_url, key=key, budget=budget) as client,
            open_journal(journal, account, create=True) as opened,
        ):
            check_similar(make_plan(payroll.rows, opened).similar, allowed=allow_similar)
            # Paying may wait for the budget between rows, so it is given the client's own.
            code = _pay(output, payroll, client, opened, budget=budget, confirm=confirm, report=report)
    raise typer.Exit(code)


@contextmanager
def _faults_shown(output: Output) -> Generator[None]:
    """Show the lines at fault if that is what ends the command."""
    try:
        yield
    except FaultyFileError as error:
        show_faults(output, error.faults)
        raise


def _pay(
    output: Output,
    payroll: PayrollFile,
    client: momopay.Client,
    journal: momopay.Journal,
    *,
    budget: momopay.Budget,
    confirm: Callable[[Plan], None],
    report: Path | None,
) -> int:
    """Pay what is still to be paid, show it, and return the exit status."""
    check_account(make_plan(payroll.rows, journal), client)
    # Before the plan that is shown: what is found now needs no payment, and its sum must not be asked about.
    journal.reconcile_all(client)
    plan = make_plan(payroll.rows, journal)
    show_plan(output, payroll, plan, read_wallet(client))
    outcomes = {each.row.reference: each for each in (*plan.accepted, *plan.in_doubt)}
    if report is not None:
        write_report(output, report, payroll, outcomes)  # a report that cannot be written stops before money moves
    signals: list[int] = []
    stopped_by: MomoPayError | None = None
    if plan.to_pay:
        confirm(plan)
        with _progress(output, len(plan.to_pay)) as (advance, on_pause):
            paying = PayrollRun(client, journal, budget=budget, on_pause=on_pause)
            # The second signal raises KeyboardInterrupt wherever this thread is; what was not yielded is not begun, or
            # is in the journal, which the next run reads.
            with _stopping_on_signals(paying, signals), suppress(KeyboardInterrupt):
                for outcome in paying.pay(plan.to_pay):
                    outcomes[outcome.row.reference] = outcome
                    advance()
                    show_row(output, outcome)
        stopped_by = paying.stopped_by
    if not signals:
        try:
            reconcile(journal, client, outcomes)
        except MomoPayError as error:
            stopped_by = stopped_by or error
    if report is not None:
        write_report(output, report, payroll, outcomes)
    # As shells have it: 128 and the number of the signal.
    code = 128 + signals[0] if signals else _exit_code(payroll, outcomes)
    show_end(
        output,
        payroll,
        outcomes,
        accepted_before=frozenset(each.row.reference for each in plan.accepted),
        stopped_by=stopped_by,
        interrupted=bool(signals),
        code=code,
    )
    return code


def _exit_code(payroll: PayrollFile, outcomes: dict[str, RowOutcome]) -> ExitCode:
    states = {outcomes[row.reference].state if row.reference in outcomes else NOT_BEGUN for row in payroll.rows}
    # SENDING: another process is sending it, so it is not known here.
    if states & {momopay.JournalState.UNKNOWN, momopay.JournalState.SENDING}:
        return ExitCode.UNKNOWN
    return ExitCode.OK if states == {momopay.JournalState.ACCEPTED} else ExitCode.PARTIAL


@contextmanager
def _stopping_on_signals(paying: PayrollRun, received: list[int]) -> Generator[None]:
    """On the first SIGINT or SIGTERM, stop after the payout under way; on the second, break it off."""

    def stop(number: int, _frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        paying.stop = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(output: Output, rows: int) -> Generator[tuple[Callable[[], None], Callable[[], None]]]:
    """Show a progress bar; yield what to call after each row, and at each pause."""
    # Slow to load, and only this command needs it.
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    description = TextColumn("{task.description}")
    with Progress(description, *columns, console=stderr(), disable=output.as_json, transient=True) as bar:
        task = bar.add_task("Paying", total=rows)
        yield (
            lambda: bar.update(task, advance=1, description="Paying"),
            lambda: bar.update(task, description="Waiting for the rate budget"),
        )


app.command(cls=Command)(unresolved.status)
app.command(cls=Command)(unresolved.release)
