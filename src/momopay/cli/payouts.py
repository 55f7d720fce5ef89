"""Payouts: pay a payroll from a CSV file. `momopay.cli.unresolved` has the commands for what is in doubt then."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

import momopay
from momopay.cli import refund, unresolved
from momopay.cli.command import Command, Group
from momopay.cli.credentials import api_key, journal_exists, open_client, open_journal
from momopay.cli.exit_codes import CommandError
from momopay.cli.options import (
    BaseUrl,
    ConfirmLive,
    Every,
    JournalAccount,
    JournalAt,
    Json,
    ShowPhones,
    Timeout,
    Utc,
    amount,
)
from momopay.cli.output import Output, kes
from momopay.cli.payroll import Plan, make_plan
from momopay.cli.payroll_file import FaultyFileError, PayrollFile, people, read_payroll, total
from momopay.cli.payroll_report import show_faults, show_plan
from momopay.cli.payroll_similar import check_similar
from momopay.cli.prompts import Confirmation
from momopay.errors import RequestValidationError
from momopay.money import format_amount

app: typer.Typer = typer.Typer(
    cls=Group, help="Pay a list of people once, and see what is in doubt.", no_args_is_help=True
)


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
    max_total: Annotated[
        Decimal | None,
        typer.Option("--max-total", metavar="KES", parser=amount, help="Send nothing if the file comes to more."),
    ] = None,
    max_each: Annotated[
        Decimal | None,
        typer.Option("--max-each", metavar="KES", parser=amount, help="Send nothing if a row is for more."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow all payouts until the money has arrived or is back.")
    ] = False,
    timeout: Timeout = 600,
    every: Every = 10,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    mask_phones: Annotated[
        bool, typer.Option("--mask-phones", help="Mask phones in --json and in the report too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pay every row of a CSV file once, however often this is run.

    Checks the whole file first, and sends nothing if any row is at fault. Then shows totals and the file's digest, and
    asks. Run it again after an interruption, a crash or a refusal: the journal knows what was paid. Ctrl-C stops after
    the payout under way.

    A row that the service accepted may still be reversed: --wait follows all to their end. --confirm-live takes the
    total of the whole file, so that the same command resumes. With --json, one event a line: plan, row, settled, end.

    Exits with 0 if the service accepted all (with --wait: if all were paid), 1 if a payout failed or was reversed, 4 if
    rows are in doubt, 5 if rows were not paid, 6 if some had not settled in time.

    Examples:
        momopay payouts run salaries.csv --journal shop.db --dry-run
        momopay payouts run salaries.csv --journal shop.db --report report.csv
    """
    output = Output(as_json, (show_phones or as_json) and not mask_phones)
    with _faults_shown(output):
        payroll = read_payroll(file)
        _check_limits(payroll, max_total, max_each)
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
            confirmation.ask(f"Pay KES {kes(due)} in {people(plan.to_pay)} now?", to_type=format_amount(due))

        with (
            open_client(base_url, key=key, budget=budget) as client,
            open_journal(journal, account, create=True) as opened,
        ):
            check_similar(make_plan(payroll.rows, opened).similar, allowed=allow_similar)
            schedule = momopay.PollSchedule(first=0, every=every, limit=timeout) if wait else None
            from momopay.cli.payroll_progress import Pace  # loads rich's progress bar, which takes its time
            from momopay.cli.payroll_run import FileRun

            code = FileRun(output, payroll, client, opened, Pace(budget), schedule, report, mask_phones).pay(confirm)
    raise typer.Exit(code)


def _check_limits(payroll: PayrollFile, max_total: Decimal | None, max_each: Decimal | None) -> None:
    from momopay.resources.payout_items import PayoutLimits  # loads pydantic

    try:
        PayoutLimits.checked(max_total, max_each).check(payroll.rows)
    except RequestValidationError as error:
        options = {"max_total": "--max-total", "max_each": "--max-each"}
        problems = "; ".join(f"{options[name]}: {problem}" for name, problem in error.fields.items())
        raise CommandError(
            f"{problems}; nothing was sent", remedy="fix the file; give a higher limit only if the file is right"
        ) from error


@contextmanager
def _faults_shown(output: Output) -> Generator[None]:
    """Show the lines at fault if that is what ends the command."""
    try:
        yield
    except FaultyFileError as error:
        show_faults(output, error.faults)
        raise


app.command(cls=Command)(unresolved.status)
app.command(cls=Command)(unresolved.release)
app.command(cls=Command)(refund.refund)
