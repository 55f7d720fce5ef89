"""Collect an order once."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import typer

import momopay
from momopay.cli.credentials import api_key, open_client, open_journal
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
from momopay.cli.output import Output, kes, plain
from momopay.cli.prompts import Confirmation
from momopay.cli.transactions import end_with, show, wait_for


def collect(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Your own, of the order.")],
    amount_: Annotated[Decimal, typer.Option("--amount", metavar="KES", parser=amount, help="At least 1.")],
    phone: Annotated[str, typer.Option(metavar="PHONE", help="The customer's: 07..., 01..., +254... or 254...")],
    journal: JournalAt,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="At most 13 characters; on the PIN prompt.")
    ] = None,
    callback_url: Annotated[str | None, typer.Option(metavar="URL", help="Public HTTPS; gets the result.")] = None,
    channel: Annotated[str | None, typer.Option(metavar="ID", help="A channel other than the default.")] = None,
    abandon_after: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Prompt again although a prompt is still open after this long."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end.")] = False,
    timeout: Timeout = 300,
    every: Every = 10,
    confirm_live: ConfirmLive = None,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Collect an order once: prompt the customer, unless a prompt is open or was paid.

    Run it again whenever the customer tries again. The journal is created if there is none. With --wait, exits with 0
    for SUCCESS, 1 for any other end, 6 if it has not ended in time, 4 if it is not known whether the customer was
    prompted. With a live key it asks first.

    Examples:
        momopay collect INV-43 --amount 100 --phone 0712345678 --journal shop.db
    """
    output = Output(as_json, show_phones)
    key = api_key()
    with open_client(base_url, key=key) as client:
        # As for `stk`: a test key moves no money, so one prompt to it is never asked about.
        confirmation = Confirmation(key, may_move=amount_, yes=True, confirm_live=confirm_live)
        confirmation.ask(f"Ask the customer for KES {kes(amount_)}?", to_type="yes")
        with open_journal(journal, account, create=True) as opened:
            found = client.stk.collect_once(
                journal=opened,
                reference=reference,
                amount=amount_,
                phone=phone,
                transaction_desc=description,
                callback_url=callback_url,
                channel_id=channel,
                abandon_after=abandon_after,
            )
            # A prompt that this call sent is PENDING. Anything else was there before.
            was_sent = isinstance(found, momopay.StkTransaction)
            if not (wait or as_json):
                output.note("Prompt sent" if was_sent else "No prompt was sent: this one is open, or was paid")
            if not wait:
                show(output, found)
                return
            if found.status.is_terminal and isinstance(found, momopay.Transaction):
                end_with(output, found)
            first = every * momopay.PollSchedule.first / momopay.PollSchedule.every if was_sent else 0.0
            try:
                ended = wait_for(client, found.transaction_id, first=first, timeout=timeout, every=every)
            except BaseException:
                # As for `stk`: whatever ends the wait must not lose the id.
                if as_json:
                    show(output, found)
                output.note(f"The prompt may still be paid: momopay collect {plain(reference)} ... shows its end")
                raise
            opened.settle(ended)
    end_with(output, ended)
