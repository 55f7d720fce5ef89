"""Commands for the journal: list, check, back up, anonymise, sweep and reconcile. None of them moves money."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer import Argument, Option

import momopay
from momopay.cli.command import Group, command, consented
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import (
    AccountOptions,
    DayOptions,
    DisplayOptions,
    JournalOptions,
    check_writable,
    file_option,
    flag,
    is_interactive,
    kes_option,
    not_blank,
    seconds_option,
    sheet_option,
    time_option,
    url_of,
    word_option,
)
from momopay.cli.output import Output, day_of, day_zone, in_lines, kes, moment, plain, stderr, use_zone
from momopay.cli.payroll_file import read_file
from momopay.cli.payroll_report import show_faults
from momopay.errors import ConfigurationError, InvalidApiKeyError, MomoPayError
from momopay.spreadsheets.faults import FaultyFileError

logger: logging.Logger = logging.getLogger("momopay.cli")  # whose warnings are shown without --debug, too
app: typer.Typer = typer.Typer(cls=Group, help="List, check, back up and anonymise a journal.", no_args_is_help=True)

_VARIABLE = "MOMOPAY_ANONYMISE_SECRET"
_ENTRIES = {
    "Reference": "reference kind",
    "State": "state",
    "Status": "status",
    "KES": "amount fee",
    "Phone and time": "phone created_at",
    "Receipt": "receipt",
}
_SWEPT = {"Settled now": "settled", "Open": "open", "Unresolved": "unknown"}
_HISTORY = {"When": "at", "What": "what", "From": "from_", "To": "to", "Learnt": "source", "By": "by"}
_FEES = (
    "The wallet may have paid more fees, for transactions that ended without success: {}. The service takes a fee when"
    " a payment begins, gives none back, and shows 0 after a failure."
)
_DIFFERENCES = {"Reference": "reference", "Ours": "ours", "Theirs": "theirs", "What to do": "remedy proposal"}


@command(app, "list")
def list_(
    options: JournalOptions,
    kind: Annotated[Any, word_option("KIND", lambda: momopay.EntryKind, "PAYOUT or COLLECTION.")] = None,
    state: Annotated[Any, word_option("STATE", lambda: momopay.JournalState, "ACCEPTED, UNKNOWN, REFUSED, ...")] = None,
    status_: Annotated[
        Any, word_option("STATUS", lambda: momopay.TransactionStatus, "SUCCESS, FAILED, REVERSED, ...", "--status")
    ] = None,
    since: Annotated[datetime | None, time_option("First used then or later.")] = None,
    until: Annotated[datetime | None, time_option("First used before.")] = None,
    limit: Annotated[int, Option(metavar="N", min=1, max=1_000_000, help="The newest so many.")] = 50,
    everything: Annotated[bool, flag("--all", "All of them.")] = False,
) -> None:
    """List the entries, newest first.

    With --json, one entry a line.

    Examples:
        momopay journal list --journal payments.db --state UNKNOWN
        momopay journal list --journal payments.db --since 2026-11-01 --all
    """
    with options.open_journal() as journal:
        found = journal.entries(kind=kind, state=state, status=status_, since=since, until=until)
        options.output.rows(map(as_document, islice(found, None if everything else limit)), _ENTRIES)


@command(app)
def show(
    options: JournalOptions,
    reference: Annotated[
        str, Argument(metavar="REFERENCE", callback=not_blank, help="Of a payout, or of a collection.")
    ],
) -> None:
    """Show all that the journal has of a reference, and what happened to it, in order.

    A payout and a collection may have the same reference; then both are shown, with --json in two lines.

    Examples:
        momopay journal show INV-43 --journal payments.db
    """
    with options.open_journal() as journal:
        entries = [entry for kind in momopay.EntryKind if (entry := journal.get(reference, kind)) is not None]
        history = {entry.kind: list(map(asdict, journal.history(reference, entry.kind))) for entry in entries}
    if not entries:
        raise CommandError("this reference is not in the journal", remedy="check it, and --account")
    for entry in entries:
        changes = history[entry.kind]
        document = {**as_document(entry), "history": changes}
        options.output.record(document, "wire_reference", "transaction_ids", "clock_offset", "history")
        if not options.output.as_json:
            options.output.result(None, options.output.table(changes, _HISTORY))
        if entry.paid_twice:
            options.output.note("Paid twice: pay back all but one, with `momopay payouts refund`")


def as_document(entry: momopay.JournalEntry) -> dict[str, object]:
    """Return an entry as shown, without the fields that only the library needs."""
    of_transaction = ("result_code", "receipt", "fee", "ended_at", "transaction_ids", "paid_twice")
    internal = {"seen_id", "claim", "revision"}
    return {**entry.model_dump(exclude=internal), **{name: getattr(entry, name) for name in of_transaction}}


@command(app)
def backup(
    options: JournalOptions, path: Annotated[Path, Argument(metavar="FILE", help="Where nothing is yet.")]
) -> None:
    """Copy the whole journal into a new SQLite file, while others write to it.

    Only its owner may read the file. It has all accounts, and whole phones. Overwrites nothing.

    Examples:
        momopay journal backup backup-2026-11-30.db --journal payments.db
    """
    with options.open_journal() as journal:
        journal.backup(path)
    options.output.result({"file": str(path)}, f"Copied to {plain(path)}")


@command(app, untouched="Nothing was changed.")
def anonymise(
    options: JournalOptions,
    before: Annotated[datetime, time_option("What ended before this.")],
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
) -> None:
    """Remove phones and metadata of all that ended before a date. It cannot be undone.

    With MOMOPAY_ANONYMISE_SECRET in the environment, each phone is replaced by a hash that is keyed with it. What is
    open or unresolved stays whole. References stay used, so nothing is paid again.

    Examples:
        momopay journal anonymise --before 2025-11-30 --journal payments.db
    """
    secret = os.environ.get(_VARIABLE) or None
    what = "replaced by keyed hashes" if secret else "removed"
    with options.open_journal() as journal:
        if not yes:
            if not is_interactive():
                raise CommandError("nobody is there to answer", remedy="give --yes; nothing was changed")
            question = f"Phones and metadata of what ended before {moment(before)} will be {what} for ever. Go on?"
            if not typer.confirm(in_lines(question), err=True):
                raise CommandError("not confirmed, nothing was changed", remedy="", code=ExitCode.REFUSED)
        consented()
        changed = journal.anonymise(before=before, secret=secret)
    options.output.result({"changed": changed}, f"{changed} entries changed: phones {what}, metadata removed")


@command(app)
def check(options: AccountOptions) -> ExitCode:
    """Check the whole journal: the file, what it belongs to, and what needs a person.

    With a key and an address in the environment, also that it is the journal of that account. Exits with 1 if something
    needs a person: an unresolved payment, an order that was paid twice and not paid back, a journal that went back in
    time, or an index that is missing or differs; with 3 if it is another account's.

    Examples:
        momopay journal check --journal payments.db
    """
    from momopay.durable.access import check_client  # loads the modules that send

    output = options.output
    with options.open_journal() as journal:
        found = journal.check()
        if found.mode and options.base_url and (key := os.environ.get("MOMOPAY_API_KEY")):
            with options.client(key=key) as client:
                check_client(client, journal)
    counts = {f"{kind} {state}": count for (kind, state), count in sorted(found.counts.items())}
    document = {**asdict(found), "counts": counts, "needs_attention": found.needs_attention}
    output.record(document, "went_back")
    if found.unresolved:
        output.note("What to do: `momopay sweep` searches for what is unresolved")
    if found.paid_twice:
        output.note("What to do: `momopay payouts refund REFERENCE` pays back what was paid twice")
    if found.skipped:
        output.note(f"{found.skipped} ends reached no handler within 30 days, and are not delivered any more")
    if found.went_back:
        output.note(f"What to do: {plain(found.went_back)}")
    if found.differing:
        output.note("What to do: `momopay journal migrate` makes the indexes anew that are missing or differ")
    return ExitCode.REFUSED if found.needs_attention else ExitCode.OK


@command(app)
def accept_restored(
    options: JournalOptions, by: Annotated[str, Option("--by", metavar="NAME", help="Who decides.")]
) -> None:
    """Let a journal be used that went back in time, such as a restored copy.

    It does not know what was paid since, and would pay it again. Run `momopay reconcile` for the days that this prints;
    until it is accepted, every command that pays refuses it.

    Examples:
        momopay journal accept-restored --by Amina --journal payments.db
    """
    with options.open_journal() as journal:
        days = journal.accept_restored(by=by)
    shown = "This journal lost nothing: there was nothing to accept."
    if days:
        shown = f"Accepted by {plain(by)}: commands that pay use it again. If you have not done it yet, {plain(days)}"
    options.output.result({"accepted": bool(days), "went_back": days or None}, shown)


@command(app)
def migrate(
    options: JournalOptions, check: Annotated[bool, flag("--check", "Change nothing; exit with 1 if it would.")] = False
) -> ExitCode:
    """Create the journal's tables, or upgrade them to this momopay's version.

    The first payment does it, too. Run this as a step of a deploy where the application's role may not create tables,
    or the journal is large. Processes of the version before may run meanwhile. Makes indexes anew that are missing or
    differ.

    Examples:
        momopay journal migrate --journal payments.db
        momopay journal migrate --journal payments.db --check
    """
    said = momopay.Journal.migrate(options.journal_url(), check=check)
    shown = f"{'To do: ' if check else 'Done: '}{plain(said)}" if said else "Nothing to do: the journal is up to date."
    options.output.result({"check": check, "changes": said or None}, shown)
    return ExitCode.REFUSED if said and check else ExitCode.OK


@command(app)
def move(
    options: DisplayOptions,
    from_: Annotated[str, Option("--from", metavar="URL", help="The journal: the path of a file, or a URL.")],
    to: Annotated[str, Option("--to", metavar="URL", help="A database without payments.")],
    undo: Annotated[bool, flag("--undo", "Open the old one again, if the new one began no payment.")] = False,
    lost: Annotated[bool, flag("--lost", "With --undo: the new one cannot be reached any more.")] = False,
) -> None:
    """Move a whole journal to another database, such as from a file to PostgreSQL.

    All accounts, with their history. The old journal then refuses every call, and says where it went. If this is
    interrupted, at most one of the two can be used, and running it again finishes. Stop the programs that pay before.

    Examples:
        momopay journal move --from payments.db --to postgresql:///shop
        momopay journal move --from payments.db --to postgresql:///shop --undo
    """
    if lost and not undo:
        raise CommandError("--lost says how to undo a move", remedy="give --undo with it, or leave it out")
    with momopay.Journal(url_of(from_), create=False) as journal:
        said = journal.move_to(url_of(to), undo=undo, lost=lost)
    options.output.result({"done": said}, f"Done: {plain(said)}")


def sweep(
    options: AccountOptions,
    every: Annotated[float | None, seconds_option("Sweep again and again, until Ctrl-C.")] = None,
    warn_below: Annotated[Decimal | None, kes_option("--warn-below", "Log a WARNING if the wallet has less.")] = None,
) -> None:
    """Record how the journal's payments ended, also those whose answer or callback was lost.

    One pass of at most 15 requests; what it does not reach is left to the next one. Safe to run in several places at
    once. It has no handler: an application that sweeps too still gets each end that is recorded here. With --json, one
    document for each pass.

    Examples:
        momopay sweep --journal payments.db
        momopay sweep --journal payments.db --every 60
    """
    output = options.output
    with options.open_journal() as journal, options.client(journal) as client:
        while True:
            try:
                report = client.transactions.sweep()
                hint = ["`momopay payouts status` shows what is unresolved."] if report.unknown else []
                hint += [f"Items of the list that could not be read: {report.unread}."] if report.unread else []
                output.result(asdict(report), output.table([report], _SWEPT), *hint)
                if warn_below is not None and (has := client.wallet.balance().available_balance) < warn_below:
                    logger.warning(
                        "the service wallet has KES %s, less than KES %s: top it up", kes(has), kes(warn_below)
                    )
            except MomoPayError as error:
                if every is None or isinstance(error, ConfigurationError | InvalidApiKeyError):
                    raise
                output.note(f"The next sweep goes on: {plain(error)}")
            if every is None:
                return
            time.sleep(every)


def _days(text: str) -> tuple[date, date]:
    """Return the first and the last day of a month, or a date twice."""
    is_month = text.count("-") == 1
    try:
        if day := day_of(text, day_zone()):
            return day, day
        if is_month:
            first = date.fromisoformat(f"{text}-01")
            return first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
        return date.fromisoformat(text), date.fromisoformat(text)
    except (ValueError, OverflowError):
        kind = "month" if is_month else "date"
        example = "2026-11-30 or 2026-11, today or yesterday"
        raise typer.BadParameter(f"{plain(text) or repr(text)} is not a {kind}, such as {example}") from None


def reconcile(
    options: DayOptions,
    day: Annotated[
        Any, Option(metavar="DAY", parser=_days, help="2026-11-30, today or yesterday; 2026-11 for the whole month.")
    ],
    last_day: Annotated[Any, Option(metavar="DAY", parser=_days, help="The last of several days, or months.")] = None,
    orders: Annotated[
        Path | None, file_option("CSV or .xlsx: reference, amount, state (PAID, WAITING, FAILED).")
    ] = None,
    sheet: Annotated[str | None, sheet_option("--orders")] = None,
    out: Annotated[Path | None, Option(metavar="FILE", help="Write the differences, as CSV.")] = None,
) -> ExitCode:
    """Compare a day of the service's list with the journal and your orders.

    Shows sums, and every difference with what to do about it: payments that nobody knows, entries that the service
    does not have, orders paid twice, other amounts, money that came back, what is unresolved. Proposes the unpaid
    orders that an unknown payment may be of. Records in the journal what the service says. Sends no payment. Exits
    with 1 if there is a difference. Run it when the day is over. Days begin at midnight in Nairobi, or in the zone of
    --timezone.

    Examples:
        momopay reconcile --day yesterday --journal payments.db
        momopay reconcile --day 2026-11 --journal payments.db --orders orders.csv
    """
    output = options.output
    days = day_zone()
    use_zone(days)  # of the times that are shown, too
    first, last = day[0], (last_day or day)[1]
    booked = None if orders is None else _orders(output, orders, sheet)
    check_writable(out, "--out", orders)
    with (
        options.open_journal() as journal,
        options.client(journal) as client,
        stderr().status("Reading the service's list"),
    ):
        report = client.transactions.reconcile(day=first, last_day=last, orders=booked, zone=days)
    if out is not None:
        report.write_csv(out)
    output.record({**asdict(report), "agrees": report.agrees}, "differences", "agrees")
    if not output.as_json:
        hint = [_FEES.format(report.without_fee)] if report.without_fee else []
        shown = output.table(report.differences, _DIFFERENCES) if report.differences else "No differences."
        output.result(None, *hint, shown)
    return ExitCode.OK if report.agrees else ExitCode.REFUSED


def _orders(output: Output, path: Path, sheet: str | None) -> list[momopay.types.BookedOrder]:
    """Return the orders of a file; show its faults, or what cannot be seen of it."""
    from momopay.spreadsheets.rows import read_orders  # loads pydantic

    try:
        rows, notes = read_file(f"--orders {path}", lambda: read_orders(path, sheet))
    except FaultyFileError as error:
        raise show_faults(output, error, "--orders: ") from error
    for note in notes:
        output.note(f"Warning: {plain(note)}")
    return [momopay.types.BookedOrder(each.reference, each.amount, cast("Any", each.state)) for each in rows]
