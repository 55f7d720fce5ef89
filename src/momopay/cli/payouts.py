"""Payouts: pay a payroll from a CSV file, see what is in doubt, and release what was not paid."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.text import Text

import momopay
from momopay.cli.command import Command
from momopay.cli.credentials import api_key, journal_exists, open_client, open_existing_journal, open_journal
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, ConfirmLive, JournalAt, Json, ShowPhones
from momopay.cli.output import Output, kes, moment, plain, stderr, table
from momopay.cli.output import status as styled
from momopay.cli.payroll import PayrollRun, Plan, RowOutcome, check_account, make_plan, read_wallet, reconcile
from momopay.cli.payroll_file import FaultyFileError, PayrollFile, read_payroll, total
from momopay.cli.payroll_report import NOT_BEGUN, RELEASE_HINT, show_end, show_faults, show_plan, show_row, write_report
from momopay.cli.prompts import Confirmation, is_interactive
from momopay.errors import MomoPayError
from momopay.money import format_amount

app: typer.Typer = typer.Typer(help="Pay a list of people once, and see what is in doubt.", no_args_is_help=True)

# The service's list may not show a payout that is younger.
_FRESH = timedelta(minutes=10)


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
    try:
        payroll = read_payroll(file)
    except FaultyFileError as error:
        show_faults(output, error.faults)
        raise
    if dry_run:
        # Without the key or the network, and without making a journal that the check would leave behind.
        with open_journal(journal) if journal_exists(journal) else nullcontext() as opened:
            show_plan(output, payroll, make_plan(payroll.rows, opened), None)
        output.note("Dry run: nothing was sent.")
        return
    # Asked for before the file is judged against the account: a program pipes the key first, then its answer.
    key, budget = api_key(), momopay.RateBudget()
    confirmation = Confirmation(key, may_move=payroll.total, yes=yes, confirm_live=confirm_live)

    # The options state the total of the file, so that the same command resumes it; a person types what is still due.
    def confirm(plan: Plan) -> None:
        due = total(plan.to_pay)
        confirmation.ask(f"Pay KES {kes(due)} to {len(plan.to_pay)} people now?", to_type=format_amount(due))

    with open_client(base_url, key=key, budget=budget) as client, open_journal(journal) as opened:
        # Paying may wait for the budget between rows, so it is given the client's own.
        code = _pay(output, payroll, client, opened, budget=budget, confirm=confirm, report=report)
    raise typer.Exit(code)


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


@app.command(cls=Command)
def status(
    journal: JournalAt,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.csv", exists=True, dir_okay=False, help="Count its rows by state too."),
    ] = None,
    look: Annotated[bool, typer.Option("--look", help="Search for them in the service's list first.")] = False,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Show which payouts are in doubt.

    Needs no key and sends nothing, except with --look. Exits with 4 if any is in doubt.
    """
    output = Output(as_json, show_phones)
    with open_existing_journal(journal) as opened:
        if look:
            with open_client(base_url) as client:
                opened.reconcile_all(client)
        entries = opened.unresolved()
        counts = None if file is None else _count_by_state(read_payroll(file), opened)
    shown: list[object] = []
    if counts is not None:
        rows = [(styled(state), count) for state, count in counts.items()]
        shown.append(table(("State", "Rows"), rows, right=("Rows",), title="The file"))
    shown += _in_doubt(output, entries, searched=look) if entries else ["Nothing is in doubt."]
    output.result({"unresolved": list(map(_as_document, entries)), "file": counts}, *shown)
    raise typer.Exit(ExitCode.UNKNOWN if entries else ExitCode.OK)


def _count_by_state(payroll: PayrollFile, journal: momopay.Journal) -> dict[str, int]:
    entries = [journal.get(row.reference) for row in payroll.rows]
    return Counter(NOT_BEGUN if entry is None else entry.state.value for entry in entries)


def _in_doubt(output: Output, entries: list[momopay.JournalEntry], *, searched: bool) -> list[object]:
    rows = [(output.text(entry.reference), entry.amount, output.phone(entry.phone), entry.sent_at) for entry in entries]
    columns = ("Reference", "KES", "Phone", "Sent at")
    shown: list[object] = [table(columns, rows, right=("KES",), title="May or may not have been paid")]
    if searched:
        shown.append("The service's list does not show them, which proves nothing.")
    first = "Search again later, then" if searched else "Give --look to search for them in the service's list, then"
    return [*shown, Text.assemble(("What to do: ", "bold"), f"{first} {RELEASE_HINT}.")]


@app.command(cls=Command)
def release(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Of the payout that was not made.")],
    journal: JournalAt,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Say that a payout in doubt was NOT made, so that it is sent again.

    If it was made after all, it is paid twice. Look into the account console first. This command searches for it in the
    service's list once more, and then asks you to type the reference; no option answers for you.
    """
    output = Output(as_json, show_phones)
    with open_existing_journal(journal) as opened, open_client(base_url) as client:
        entry = opened.get(reference)
        if entry is None or entry.state != momopay.JournalState.UNKNOWN:
            known = "not in the journal" if entry is None else f"{entry.state} in the journal, not in doubt"
            raise CommandError(f"this reference is {known}", remedy="`momopay payouts status` lists what is in doubt")
        matches = client.transactions.find(
            reference=reference, since=entry.sent_at, amount=entry.amount, phone=entry.phone, type="B2C"
        )
        if matches:
            # Which of several it is, only a person can say.
            if len(matches) == 1:
                opened.settle(matches[0])
            raise CommandError(
                f"the service has it, {len(matches)} times: {', '.join(each.transaction_id for each in matches)}",
                remedy="it was paid and must not be sent again",
                code=ExitCode.REFUSED,
            )
        _ask_for_release(output, entry)
        released = opened.release(reference)
    output.result(_as_document(released), f"Released: it is {released.state} now, and the next run pays it.")


def _ask_for_release(output: Output, entry: momopay.JournalEntry) -> None:
    console = stderr()
    phone = plain(output.phone(entry.phone))
    console.print(f"KES {kes(entry.amount)} to {phone}, sent at {moment(entry.sent_at)}, may have been paid.")
    console.print("The service's list does not show it, which proves nothing.")
    if datetime.now(UTC) - entry.sent_at < _FRESH:
        console.print("It is younger than ten minutes: the list may not show it yet. Better wait.", style="bold red")
    console.print("If it was paid after all, releasing it pays it twice.", style="bold red")
    # A pipe cannot have looked into the account console, so it cannot vouch for it.
    if not is_interactive():
        raise CommandError("releasing takes a person at a terminal", remedy="run it there; nothing was changed")
    if typer.prompt("Type the reference to release it", err=True).strip() != entry.reference:
        raise CommandError("not the same reference", remedy="nothing was changed", code=ExitCode.REFUSED)


def _as_document(entry: momopay.JournalEntry) -> dict[str, object]:
    return entry.model_dump(exclude={"body_hash"})
