"""Payouts: a payroll from a CSV file, resumable, and what its journal says."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from momopay.cli.command import Command
from momopay.cli.credentials import Consent, api_key, journal_exists, open_client, open_journal
from momopay.cli.exit_codes import CommandError
from momopay.cli.options import BaseUrl, ConfirmLive, JournalAt, Json, ShowPhones
from momopay.cli.output import Output, kes
from momopay.cli.unresolved import release, status
from momopay.money import format_amount

if TYPE_CHECKING:
    from momopay.cli.payroll import Plan
    from momopay.cli.payroll_file import Salaries

app: typer.Typer = typer.Typer(help="Pay a list of people once, and look into its journal.", no_args_is_help=True)


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
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="What became of every row, as CSV.")] = None,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Pay every row of a CSV file once, however often this is run.

    Checks the whole file first, and sends nothing if any row is at fault. Then shows totals and asks. Run it again
    after an interruption, a crash or a refusal: the journal knows what was paid. Ctrl-C stops after the payout under
    way.

    --confirm-live takes the total of the whole file, so that the same command resumes. With --json, one event a line:
    plan, row, end. Exits with 0 if the service accepted all, 4 if rows are in doubt, 5 if rows are surely not paid.
    """
    from momopay.cli.payroll import plan, refuse_conflicts
    from momopay.cli.payroll_file import total
    from momopay.cli.payroll_view import show_plan

    output = Output(as_json, show_phones)
    salaries = _checked(output, file)
    if dry_run:
        with ExitStack() as stack:
            book = stack.enter_context(open_journal(journal)) if journal_exists(journal) else None
            made = plan(salaries.rows, book)
        refuse_conflicts(made)
        show_plan(output, salaries, made, None)
        output.say("Dry run: nothing was sent.")
        return
    from momopay._ratelimit.budget import RateBudget
    from momopay.cli.paying import pay_file

    key, budget = api_key(), RateBudget()
    consent = Consent(key, may_move=salaries.total, yes=yes, confirm_live=confirm_live)

    def agree(made: Plan) -> None:
        due = total(made.to_pay)
        consent.ask(f"Pay KES {kes(due)} to {len(made.to_pay)} people now?", to_type=format_amount(due))

    with open_client(base_url, key=key, budget=budget) as client, open_journal(journal) as book:
        code = pay_file(output, salaries, client, book, budget=budget, agree=agree, report=report)
    raise typer.Exit(code)


app.command(cls=Command)(status)
app.command(cls=Command)(release)


def _checked(output: Output, file: Path) -> Salaries:
    from momopay.cli.payroll_file import FaultyFileError, read_salaries
    from momopay.cli.payroll_view import show_faults

    try:
        return read_salaries(file)
    except FaultyFileError as error:
        show_faults(output, error.faults)
        raise CommandError(
            f"{file.name}: {len(error.faults)} fault(s), listed above; nothing was sent",
            remedy="mend them, then run the command again",
        ) from None
    except OSError as error:
        raise CommandError(f"{file.name} cannot be read: {error.strerror}", remedy="check the file") from None
