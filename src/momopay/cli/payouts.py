"""The ``momopay payouts`` commands: pay a CSV file, refund a collection, and resolve unknown outcomes."""

from __future__ import annotations

import signal
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

import momopay
from momopay.cli.command import Group, command, consented, on_signals
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.journal import as_document
from momopay.cli.options import (
    SEARCH_DEADLINE,
    AccountOptions,
    Confirmation,
    ConfirmLive,
    Every,
    JournalOptions,
    Timeout,
    Wait,
    Yes,
    api_key,
    check_writable,
    checked,
    flag,
    is_interactive,
    journal_exists,
    kes_option,
    login_name,
    not_blank,
    request_option,
    sheet_option,
    word_option,
)
from momopay.cli.output import Output, kes, moment, plain, stderr
from momopay.cli.payroll import PayrollRun, Plan, exit_code, make_plan
from momopay.cli.payroll_file import people, read_payroll, total
from momopay.cli.payroll_report import (
    RELEASE_HINT,
    progress_bar,
    show_end,
    show_faults,
    show_plan,
    show_row,
    shown_task,
    write_report,
)
from momopay.cli.transactions import TRANSACTIONS, show
from momopay.errors import MomoPayError, OutcomeUnknownError, RequestValidationError
from momopay.money import format_amount
from momopay.spreadsheets.faults import FaultyFileError

app: typer.Typer = typer.Typer(
    cls=Group, help="Pay a list of people once, pay back, and see what is unresolved.", no_args_is_help=True
)

_DOUBTFUL = {
    "Reference": "reference kind",
    "KES": "amount",
    "Phone": "phone",
    "Sent": "sent_at",
    "Attempts": "attempts",
}
_COLUMNS = "CSV or .xlsx, with the columns reference, phone, amount; perhaps description and name."
_NEW_JOURNAL = "The journal is new, so nobody counts as paid before."
_STOPPING = "Stopping after this payout; press again to stop at once, which may leave its outcome unknown."
_FRESH = timedelta(minutes=10)  # the service's list may not show a payment that is younger


@command(app, untouched="Nothing was sent.")
def run(
    options: AccountOptions,
    file: Annotated[Path, Argument(metavar="FILE", exists=True, dir_okay=False, help=_COLUMNS)],
    dry_run: Annotated[bool, flag("--dry-run", "Check the file and the journal; send nothing.")] = False,
    yes: Yes = False,
    confirm_live: ConfirmLive = None,
    report: Annotated[Path | None, Option(metavar="FILE", help="Write what happened to every row, as CSV.")] = None,
    sheet: Annotated[str | None, sheet_option("FILE")] = None,
    similar: Annotated[bool, flag("--similar", "Pay also what looks like another payout.")] = False,
    allow_similar: Annotated[bool, Option("--allow-similar", hidden=True)] = False,  # its name before
    max_total: Annotated[Decimal | None, kes_option("--max-total", "Send nothing if the file comes to more.")] = None,
    max_each: Annotated[Decimal | None, kes_option("--max-each", "Send nothing if a row is for more.")] = None,
    wait: Wait = False,
    timeout: Timeout = 600,
    every: Every = 10,
    mask_phones: Annotated[bool, flag("--mask-phones", "Mask phones in --json and in the report too.")] = False,
) -> int:
    """Pay every row of a CSV or .xlsx file once, however often this is run.

    Checks the whole file first, and sends nothing if any row is at fault, looks like a payout that was made under
    another reference, or if all were paid within 12 hours under others. Then shows totals and the file's digest, and
    asks. Run it again after an interruption, a crash or a refusal: the journal knows what was paid. Ctrl-C stops after
    the payout under way, a second one at once.

    A row that the service accepted may still be reversed: --wait follows all to their end. --confirm-live takes the
    total of the whole file, so that the same command resumes. With --json, one event a line: plan, row, settled, end.

    Exits with 0 if the service accepted all (with --wait: if all were paid), 1 if a payout failed or was reversed, 4 if
    rows are unresolved, 5 if rows were not paid, 6 if some had not settled in time.

    Examples:
        momopay payouts run salaries.csv --journal payments.db --dry-run
        momopay payouts run salaries.csv --journal payments.db --report report.csv
    """
    from momopay.durable.pay_all import PayoutLimits  # loads pydantic

    similar = similar or allow_similar
    output = Output(options.as_json, (options.show_phones or options.as_json) and not mask_phones)
    try:
        payroll = read_payroll(file, sheet)
        PayoutLimits.checked(max_total=max_total, max_each=max_each).check(payroll.rows)
        is_there = options.journal is None or journal_exists(options.journal)
        if dry_run:
            # A dry run needs no key and no network, and leaves no new journal behind.
            with options.open_journal() if is_there else nullcontext() as opened:
                plan = make_plan(payroll, opened, similar=similar)
            show_plan(output, payroll, plan, None)
            if not is_there:
                output.note(_NEW_JOURNAL)
            output.note("Dry run: nothing was sent.")
            return ExitCode.OK
        key = api_key()
        confirmation = Confirmation(key, may_move=total(payroll.rows), yes=yes, confirm_live=confirm_live)
        with options.open_journal(create=True) as journal, options.client(journal, key=key) as client:
            make_plan(payroll, journal, similar=similar)
            with stderr().status("Reading the account"):
                # Before the plan is shown, because rows that are found now need no payment. This also refuses the
                # journal of another account.
                journal.reconcile_all(client)
                plan = make_plan(payroll, journal, similar=similar)
                wallet = client.wallet.balance().available_balance
            show_plan(output, payroll, plan, wallet)
            owner = Output(as_json=False, show_phones=not mask_phones)
            paying = PayrollRun(client, journal, payroll, plan, similar=similar)
            # Checked before money moves, and after a new journal was made, so that the report cannot overwrite it.
            check_writable(report, "--report", file)
            if report is not None:
                write_report(owner, report, paying)
            if plan.to_pay:
                due = total(plan.to_pay)
                question = f"Pay KES {kes(due)} in {people(plan.to_pay)} now?{'' if is_there else f' {_NEW_JOURNAL}'}"
                # The options state the total of the file; a person types what is still due.
                confirmation.ask(question, to_type=format_amount(due))
            schedule = momopay.PollSchedule(first=0, every=every, limit=timeout) if wait else None
            try:
                _pay_and_follow(output, paying, plan, schedule)
            finally:  # also if the reader of stdout is gone
                if report is not None:
                    write_report(owner, report, paying)
    except FaultyFileError as error:
        raise show_faults(output, error) from error
    # As in shells: 128 plus the number of the signal.
    ended = exit_code(paying.outcomes.values(), followed=wait)
    code = 128 + paying.signals[0] if paying.signals else ended
    show_end(output, paying, plan, code, followed=wait)
    return code


def _pay_and_follow(output: Output, run: PayrollRun, plan: Plan, schedule: momopay.PollSchedule | None) -> None:
    # The first signal stops the run after the payout under way, the second breaks that off. The interrupt may be raised
    # anywhere in this thread. A row that was not yielded by then was not begun, or it is in the journal.
    bar = progress_bar(output)

    def stop(number: int, _frame: object) -> None:
        run.stop(number)
        bar.stop()
        output.note(_STOPPING)

    with on_signals(stop, signal.SIGINT, signal.SIGTERM), suppress(KeyboardInterrupt):
        try:
            if plan.to_pay:
                with shown_task(bar, "Paying", plan.to_pay) as advance:
                    for outcome in run.pay():
                        advance(outcome)
                        show_row(output, "row", outcome)
            if not run.signals:
                with stderr().status("Searching for what is unresolved"):
                    run.search()
            if schedule is not None and not run.signals and (waiting := run.open()):
                with shown_task(bar, "Settling", [each.row for each in waiting]) as advance:
                    for outcome in run.follow(schedule):
                        advance(outcome)
                        show_row(output, "settled", outcome)
        except MomoPayError as error:  # of a search or a wait; all payouts are in the journal
            run.stopped_by = run.stopped_by or error
    for outcome in run.read_rest():
        show_row(output, "row", outcome)


@command(app, untouched="Nothing was sent.")
def refund(
    options: AccountOptions,
    of: Annotated[str, Argument(metavar="REFERENCE", callback=not_blank, help="Of the collection, as in the journal.")],
    amount_: Annotated[
        Decimal | None,
        kes_option("--amount", "By default all that is left to refund.", callback=checked("PayoutRequest.amount")),
    ] = None,
    reference: Annotated[
        str | None, request_option("PayoutRequest.reference", "TEXT", "Of the refund; by default REFERENCE-R1.")
    ] = None,
    description: Annotated[str | None, request_option("PayoutRequest.description", "TEXT", "A short purpose.")] = None,
    yes: Yes = False,
    confirm_live: ConfirmLive = None,
) -> None:
    """Pay back to the payer what was paid of a collection, or a part. Asks first.

    Run it again after any failure: one reference is paid once. All refunds of a collection together never exceed what
    was paid. Of an order that was paid twice, the default is what was paid too often. A second refund of the same
    collection needs a --reference of its own.

    Examples:
        momopay payouts refund INV-43 --journal payments.db
        momopay payouts refund INV-43 --amount 40 --journal payments.db
    """
    from momopay.durable.refund import preview_refund  # loads the modules that send

    key = api_key()
    # If the amount is known already, a wrong --confirm-live is refused before the first request.
    confirmation = None
    if amount_ is not None:
        confirmation = Confirmation(key, may_move=amount_, yes=yes, confirm_live=confirm_live)
    with options.open_journal() as journal, options.client(journal, key=key) as client:
        plan = preview_refund(client, journal, of=of, amount=amount_, reference=reference)
        due, phone, name = Decimal(plan.amount), options.output.phone(plan.phone), options.output.text(plan.reference)
        confirmation = confirmation or Confirmation(key, may_move=due, yes=yes, confirm_live=confirm_live)
        confirmation.ask(f"Pay KES {kes(due)} back to {plain(phone)}, as {plain(name)}?", to_type="yes")
        # Exactly the amount that was agreed to, whatever others refund meanwhile.
        show(options.output, client.payouts.refund(of=of, amount=due, reference=reference, description=description))


@command(app)
def status(options: JournalOptions) -> ExitCode:
    """Show which payouts and orders are unresolved. Needs no key and sends nothing.

    Exits with 4 if anything is unresolved.

    Examples:
        momopay payouts status --journal payments.db
    """
    output = options.output
    with options.open_journal() as journal:
        entries = journal.unresolved()
    shown: list[object] = ["Nothing is unresolved."]
    if entries:
        notes = [f"{output.text(each.reference)}: {_note(each)}" for each in entries if each.released_at]
        next_step = f"`momopay sweep` searches for them in the service's list. If one stays here, {RELEASE_HINT}."
        shown = [output.table(entries, _DOUBTFUL, "May or may not have been paid"), *notes]
        shown.append(Text.assemble(("What to do: ", "bold"), next_step))
    output.result({"unresolved": list(map(as_document, entries))}, *shown)
    return ExitCode.UNKNOWN if entries else ExitCode.OK


def _note(entry: momopay.JournalEntry) -> str:
    return f"released at {moment(entry.released_at)} by {plain(entry.released_by)}" if entry.released_at else ""


@command(app, untouched="Nothing was changed.")
def release(
    options: AccountOptions,
    reference: Annotated[
        str, Argument(metavar="REFERENCE", callback=not_blank, help="Of what was not paid: a payout, or an order.")
    ],
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who decides; by default your login name.")] = None,
    kind: Annotated[
        Any, word_option("KIND", lambda: momopay.EntryKind, "PAYOUT or COLLECTION, if it is of both.")
    ] = None,
    searched_elsewhere: Annotated[
        bool, flag("--searched-elsewhere", "What the list shows is another payment.")
    ] = False,
) -> None:
    """Say that an unresolved payment was NOT made, so that it is sent again.

    If it was made after all, it is paid twice. Look into the account console first. This command asks you to type the
    reference; no option answers for you. Then it searches the service's whole list, and releases nothing if a
    transaction has the reference, whatever its amount, phone or time. The journal keeps who released it, and when.

    Examples:
        momopay payouts release SAL-2026-11-001 --journal payments.db
    """
    output = options.output
    with options.open_journal() as journal, options.client(journal, deadline=SEARCH_DEADLINE) as client:
        try:
            entry = journal.get(reference, kind)
        except ValueError as error:
            remedy = "give --kind PAYOUT or --kind COLLECTION"
            raise CommandError("a payout and an order have this reference", remedy=remedy) from error
        if entry is None or entry.state != momopay.JournalState.UNKNOWN:
            known = "not in the journal" if entry is None else f"{entry.state} in the journal, not unresolved"
            raise CommandError(f"this reference is {known}", remedy="`momopay payouts status` lists what is unresolved")
        name = by or login_name()
        if name is None:
            raise CommandError("your login name is not known", remedy="give --by NAME; nothing was changed")
        _ask_for_release(output, entry)
        consented()
        try:
            with stderr().status("Searching the service's list"):
                released = client.payouts.release(
                    reference=reference, by=name, kind=entry.kind, searched_elsewhere=searched_elsewhere
                )
        except OutcomeUnknownError as error:
            if not options.as_json:  # the error's JSON has their ids
                output.note(
                    output.table(
                        [*error.matches, *error.near_matches], TRANSACTIONS, "Transactions with this reference"
                    )
                )
            raise
        except RequestValidationError as error:
            now = journal.get(reference, entry.kind)
            is_early = now is not None and now.state == momopay.JournalState.UNKNOWN  # its sender may be frozen
            remedy = "wait until then; nothing was changed" if is_early else "it was paid and must not be sent again"
            code = ExitCode.TRY_LATER if is_early else ExitCode.REFUSED
            raise CommandError(str(error), remedy=remedy, code=code) from error
    again_by = "run pays it" if released.kind == momopay.EntryKind.PAYOUT else "`momopay collect` prompts for it"
    output.result(as_document(released), f"Released: it is {released.state} now, and the next {again_by}.")


def _ask_for_release(output: Output, entry: momopay.JournalEntry) -> None:
    console = stderr()
    way = "to" if entry.kind == momopay.EntryKind.PAYOUT else "from"
    phone = plain(output.phone(entry.phone))
    console.show(f"KES {kes(entry.amount)} {way} {phone}, sent at {moment(entry.sent_at)}, may have been paid.")
    if entry.released_at:
        console.show(f"Note: {_note(entry)}.")
    console.show("The service's list is searched for it next. That it is not there proves nothing.")
    if datetime.now(UTC) - entry.sent_at < _FRESH:
        console.show("It is younger than ten minutes: the list may not show it yet. Better wait.", "bold red")
    console.show("If it was paid after all, releasing it pays it twice.", "bold red")
    # Only a person can have looked into the account console.
    if not is_interactive():
        raise CommandError("releasing takes a person at a terminal", remedy="run it there; nothing was changed")
    if typer.prompt("Type the reference to release it", err=True).strip() != entry.reference.strip():
        raise CommandError("not the same reference", remedy="nothing was changed", code=ExitCode.REFUSED)
