"""Compare a day of the service with the journal and the orders."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated

import typer

import momopay
from momopay.cli.credentials import open_client, open_journal
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, JournalAccount, JournalAt, Json, Utc
from momopay.cli.output import Output, fields, kes, plain, stderr, table


def reconcile(
    day: Annotated[str, typer.Option(metavar="DAY", help="2026-11-30, or 2026-11 for the whole month.")],
    journal: JournalAt,
    orders: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            exists=True,
            dir_okay=False,
            help="Columns reference, amount, state: PAID, WAITING, FAILED.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the differences, as CSV.")] = None,
    utc: Utc = False,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    as_json: Json = False,
) -> None:
    """Compare a day of the service's list with the journal and your orders.

    Shows sums, and every difference with what to do about it: payments that nobody knows, entries that the service
    does not have, orders paid twice, other amounts, money that came back, what is in doubt. Records in the journal
    what the service says. Sends no payment. Exits with 1 if there is a difference. Run it when the day is over.

    Examples:
        momopay reconcile --day 2026-11-30 --journal shop.db
        momopay reconcile --day 2026-11 --journal shop.db --orders orders.csv
    """
    output = Output(as_json)
    first, last = _days(day)
    booked = None if orders is None else momopay.BookedOrder.read_csv(orders)
    if out is not None:
        _check_writable(out)
    with (
        open_client(base_url) as client,
        open_journal(journal, account) as opened,
        stderr().status("Reading the service's list"),
    ):
        report = client.transactions.reconcile(journal=opened, day=first, last_day=last, orders=booked, utc=utc)
    if out is not None:
        report.write_csv(out)
    sums = {
        "Collected": report.collected,
        "Paid out": report.paid_out,
        "Refunded": report.refunded,
        "Came back": report.came_back,
        "Fees": report.fees,
    }
    rows = [
        (output.text(each.reference), output.text(each.ours), each.theirs, each.remedy) for each in report.differences
    ]
    shown = table(("Reference", "Ours", "Theirs", "What to do"), rows) if rows else "No differences."
    counts = {"Transactions": report.transactions, "Not ended": report.open}
    output.result(
        _document(report), fields(counts | {name: f"KES {kes(amount)}" for name, amount in sums.items()}), shown
    )
    raise typer.Exit(ExitCode.OK if report.agrees else ExitCode.REFUSED)


def _days(text: str) -> tuple[date, date]:
    """Return the first and the last day of a day, or of a month."""
    try:
        if text.count("-") == 1:
            first = date.fromisoformat(f"{text}-01")
            return first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
        return date.fromisoformat(text), date.fromisoformat(text)
    except (ValueError, OverflowError):
        kind = "month" if text.count("-") == 1 else "date"
        remedy = "give a day or a month, such as 2026-11-30 or 2026-11"
        raise CommandError(f"--day: {text or repr(text)} is not a {kind}", remedy=remedy) from None


def _check_writable(out: Path) -> None:
    """Raise CommandError if the file cannot be written: to learn that after some minutes of reading is too late."""
    try:
        is_new = not out.exists()
        out.open("a").close()
        if is_new:  # an empty file would be taken for a day without differences
            out.unlink()
    except OSError as error:
        remedy = "give a file that can be written"
        raise CommandError(f"--out {plain(out)}: {error.strerror}", remedy=remedy) from error


def _document(report: momopay.DayReport) -> dict[str, object]:
    return {**asdict(report), "agrees": report.agrees}
