"""Sweeps from a terminal or from cron: the journal learns how its payments ended."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

import momopay
from momopay.cli.credentials import open_client, open_journal
from momopay.cli.exit_codes import ExitCode, exit_code_of
from momopay.cli.options import BaseUrl, JournalAccount, JournalAt, Json, finite
from momopay.cli.output import Output, plain, table
from momopay.errors import MomoPayError


def sweep(
    journal: JournalAt,
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="SECONDS", min=1, callback=finite, help="Sweep again and again, until Ctrl-C."),
    ] = None,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    as_json: Json = False,
) -> None:
    """Record how the journal's payments ended, also those whose answer or callback was lost.

    One pass of at most 15 requests; what it does not reach is left to the next one. Safe to run in several places at
    once. It has no handler: an application that sweeps too still gets each end that is recorded here. With --json, one
    document for each pass.

    Examples:
        momopay sweep --journal shop.db
        momopay sweep --journal shop.db --every 60
    """
    output = Output(as_json)
    with open_journal(journal, account) as opened, open_client(base_url) as client:
        while True:
            try:
                _show(output, client.transactions.sweep(journal=opened))
            except MomoPayError as error:
                if every is None or exit_code_of(error) is not ExitCode.TRY_LATER:
                    raise
                output.note(f"The next sweep goes on: {plain(error)}")
            if every is None:
                return
            time.sleep(every)


def _show(output: Output, report: momopay.SweepReport) -> None:
    headings = ("Settled now", "Open", "In doubt")
    counts = table(headings, [(report.settled, report.open, report.unknown)], right=headings)
    hint = ["`momopay payouts status` shows what is in doubt."] if report.unknown else []
    output.result(asdict(report), counts, *hint)
