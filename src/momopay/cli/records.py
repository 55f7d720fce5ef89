"""The journal against the service: sweep it, and compare a day with the journal and the orders."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated

from typer import Option

import momopay
from momopay.cli.exit_codes import CommandError, ExitCode, exit_code_of
from momopay.cli.options import AccountOptions, finite
from momopay.cli.output import plain, stderr
from momopay.errors import MomoPayError

_SWEPT = {"Settled now": "settled", "Open": "open", "In doubt": "unknown"}
_DIFFERENCES = {"Reference": "reference", "Ours": "ours", "Theirs": "theirs", "What to do": "remedy"}


def sweep(
    options: AccountOptions,
    every: Annotated[
        float | None,
        Option("--every", metavar="SECONDS", min=1, callback=finite, help="Sweep again and again, until Ctrl-C."),
    ] = None,
) -> None:
    """Record how the journal's payments ended, also those whose answer or callback was lost.

    One pass of at most 15 requests; what it does not reach is left to the next one. Safe to run in several places at
    once. It has no handler: an application that sweeps too still gets each end that is recorded here. With --json, one
    document for each pass.

    Examples:
        momopay sweep --journal shop.db
        momopay sweep --journal shop.db --every 60
    """
    output = options.output
    with options.open_journal() as journal, options.client(journal) as client:
        while True:
            try:
                report = client.transactions.sweep()
                hint = ["`momopay payouts status` shows what is in doubt."] if report.unknown else []
                output.result(asdict(report), output.table([report], _SWEPT), *hint)
            except MomoPayError as error:
                if every is None or exit_code_of(error) is not ExitCode.TRY_LATER:
                    raise
                output.note(f"The next sweep goes on: {plain(error)}")
            if every is None:
                return
            time.sleep(every)


def reconcile(
    options: AccountOptions,
    day: Annotated[str, Option(metavar="DAY", help="2026-11-30, or 2026-11 for the whole month.")],
    last_day: Annotated[
        str | None, Option("--last-day", metavar="DAY", help="The last of several days, or months.")
    ] = None,
    orders: Annotated[
        Path | None,
        Option(
            metavar="FILE.csv",
            exists=True,
            dir_okay=False,
            help="Columns reference, amount, state: PAID, WAITING, FAILED.",
        ),
    ] = None,
    out: Annotated[Path | None, Option(metavar="FILE", help="Write the differences, as CSV.")] = None,
) -> ExitCode:
    """Compare a day of the service's list with the journal and your orders.

    Shows sums, and every difference with what to do about it: payments that nobody knows, entries that the service
    does not have, orders paid twice, other amounts, money that came back, what is in doubt. Records in the journal
    what the service says. Sends no payment. Exits with 1 if there is a difference. Run it when the day is over.

    Examples:
        momopay reconcile --day 2026-11-30 --journal shop.db
        momopay reconcile --day 2026-11 --journal shop.db --orders orders.csv
    """
    output = options.output
    first, last = _days(day, "--day")
    if last_day is not None:
        last = _days(last_day, "--last-day")[1]
    booked = None if orders is None else momopay.BookedOrder.read_csv(orders)
    if out is not None:
        _check_writable(out)
    with (
        options.open_journal() as journal,
        options.client(journal) as client,
        stderr().status("Reading the service's list"),
    ):
        report = client.transactions.reconcile(day=first, last_day=last, orders=booked, utc=options.utc)
    if out is not None:
        report.write_csv(out)
    output.record({**asdict(report), "agrees": report.agrees}, "differences", "agrees")
    if not output.as_json:
        shown = output.table(report.differences, _DIFFERENCES) if report.differences else "No differences."
        output.result(None, shown)
    return ExitCode.OK if report.agrees else ExitCode.REFUSED


def _days(text: str, option: str) -> tuple[date, date]:
    """Return the first and the last day of a day, or of a month."""
    try:
        if text.count("-") == 1:
            first = date.fromisoformat(f"{text}-01")
            return first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
        return date.fromisoformat(text), date.fromisoformat(text)
    except (ValueError, OverflowError):
        kind = "month" if text.count("-") == 1 else "date"
        remedy = "give a day or a month, such as 2026-11-30 or 2026-11"
        raise CommandError(f"{option}: {text or repr(text)} is not a {kind}", remedy=remedy) from None


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
