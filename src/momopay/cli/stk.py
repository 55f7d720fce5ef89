"""One STK prompt."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import typer

import momopay
from momopay.cli.credentials import api_key, open_client
from momopay.cli.options import BaseUrl, ConfirmLive, Every, Json, ShowPhones, Timeout, Utc, amount
from momopay.cli.output import Output, kes
from momopay.cli.prompts import Confirmation
from momopay.cli.transactions import end_with, show, wait_for


def stk(
    amount_: Annotated[Decimal, typer.Option("--amount", metavar="KES", parser=amount, help="At least 1.")],
    phone: Annotated[str, typer.Option(metavar="PHONE", help="The customer's: 07..., 01..., +254... or 254...")],
    reference: Annotated[
        str | None, typer.Option(metavar="TEXT", help="At most 12 characters; on the customer's statement.")
    ] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="At most 13 characters; on the PIN prompt.")
    ] = None,
    callback_url: Annotated[str | None, typer.Option(metavar="URL", help="Public HTTPS; gets the result.")] = None,
    channel: Annotated[str | None, typer.Option(metavar="ID", help="A channel other than the default.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end.")] = False,
    timeout: Timeout = 300,
    every: Every = 10,
    confirm_live: ConfirmLive = None,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Send a PIN prompt to a customer's phone.

    Every call is a new prompt. With --wait, exits with 0 for SUCCESS, 1 for any other end, 6 if it has not ended in
    time: the customer may still pay then, so wait on with `momopay transactions wait`. With a live key it asks first.

    Examples:
        momopay stk --amount 100 --phone 0712345678 --reference INV-42 --wait
    """
    output = Output(as_json, show_phones)
    key = api_key()
    with open_client(base_url, key=key) as client:
        # A test key moves no money, so one prompt to it is never asked about.
        confirmation = Confirmation(key, may_move=amount_, yes=True, confirm_live=confirm_live)
        confirmation.ask(f"Ask the customer for KES {kes(amount_)}?", to_type="yes")
        prompt = client.stk.initiate(
            amount=amount_,
            phone=phone,
            account_reference=reference,
            transaction_desc=description,
            callback_url=callback_url,
            channel_id=channel,
        )
        if not wait:
            show(output, prompt)
            if not as_json:
                output.note(f"momopay transactions wait {prompt.transaction_id} waits for its end")
            return
        if not as_json:
            output.note(f"Prompt sent: transaction {prompt.transaction_id}")
        # A new prompt is left alone for longer than the time between polls, in the proportion of the library's default.
        first = every * momopay.PollSchedule.first / momopay.PollSchedule.every
        try:
            ended = wait_for(client, prompt, first=first, timeout=timeout, every=every)
        except BaseException:
            # Whatever ends the wait, an interrupt too, must not lose the id of a prompt that can still be paid.
            if as_json:
                show(output, prompt)
            output.note(f"The prompt was sent and may still be paid: momopay transactions wait {prompt.transaction_id}")
            raise
    end_with(output, ended)
