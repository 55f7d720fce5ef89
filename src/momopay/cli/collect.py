"""Collect an order once, or send one prompt."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from typing import Annotated, Any

from typer import Argument, Option

import momopay
from momopay.cli.credentials import api_key
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import AccountOptions, ConfirmLive, Every, Timeout, Wait, amount
from momopay.cli.output import Output, kes
from momopay.cli.prompts import Confirmation
from momopay.cli.transactions import end_with, show, wait_for


def collect(
    options: AccountOptions,
    amount_: Annotated[Decimal, Option("--amount", metavar="KES", parser=amount, help="At least 1.")],
    phone: Annotated[str, Option(metavar="PHONE", help="The customer's: 07..., 01..., +254... or 254...")],
    reference: Annotated[
        str | None, Argument(metavar="REFERENCE", help="Your own, of the order.", show_default=False)
    ] = None,
    no_journal: Annotated[bool, Option("--no-journal", help="Send one prompt each time, and record nothing.")] = False,
    description: Annotated[str | None, Option(metavar="TEXT", help="At most 13 characters; on the PIN prompt.")] = None,
    callback_url: Annotated[str | None, Option(metavar="URL", help="Public HTTPS; gets the result.")] = None,
    channel: Annotated[str | None, Option(metavar="ID", help="A channel other than the default.")] = None,
    abandon_after: Annotated[
        float | None,
        Option(metavar="SECONDS", help="Prompt again although a prompt is still open after this long."),
    ] = None,
    wait: Wait = False,
    timeout: Timeout = 300,
    every: Every = 10,
    confirm_live: ConfirmLive = None,
) -> ExitCode | None:
    """Collect an order once: prompt the customer, unless a prompt is open or was paid.

    Run it again whenever the customer tries again. The journal is created if there is none. With --no-journal, every
    run sends a prompt, and REFERENCE may be left out. With --wait, exits with 0 for SUCCESS, 1 for any other end, 6 if
    it has not ended in time, 4 if it is not known whether the customer was prompted. With a live key it asks first.

    Examples:
        momopay collect INV-43 --amount 100 --phone 0712345678 --journal shop.db
        momopay collect INV-43 --amount 100 --phone 0712345678 --no-journal --wait
    """
    output, key = options.output, api_key()
    if not no_journal and (reference is None or not options.journal):
        raise CommandError(
            "an order is collected once by its REFERENCE and a journal",
            remedy="give both, with --journal FILE or MOMOPAY_JOURNAL; or --no-journal, to send one prompt",
        )
    if no_journal and abandon_after is not None:
        raise CommandError("--abandon-after needs a journal", remedy="leave it out: --no-journal prompts each time")
    # A test key moves no money, so one prompt to it is never asked about.
    confirmation = Confirmation(key, may_move=amount_, yes=True, confirm_live=confirm_live)
    optional: dict[str, Any] = {"transaction_desc": description, "callback_url": callback_url, "channel_id": channel}
    opened = nullcontext() if no_journal else options.open_journal(create=True)
    with opened as journal, options.client(journal, key=key) as client:
        confirmation.ask(f"Ask the customer for KES {kes(amount_)}?", to_type="yes")
        prompt: momopay.StkTransaction | momopay.Payment
        if journal is None or reference is None:
            prompt = client.stk.initiate(amount=amount_, phone=phone, account_reference=reference, **optional)
        else:
            prompt = client.stk.collect_once(
                reference=reference, amount=amount_, phone=phone, abandon_after=abandon_after, **optional
            )
        is_new = not isinstance(prompt, momopay.Payment) or prompt.is_new
        if not output.as_json:
            sent = f"Prompt sent: transaction {prompt.transaction_id}"
            output.note(sent if is_new else "No prompt was sent: this one is open, or was paid")
        if prompt.status.is_terminal and wait:
            return end_with(output, prompt)
        if not wait:
            show(output, prompt)
            return None
        ended = _wait(output, client, prompt, every=every, timeout=timeout, is_new=is_new)
        if journal is not None:
            journal.settle(ended)
    return end_with(output, ended)


def _wait(
    output: Output,
    client: momopay.Client,
    prompt: momopay.StkTransaction | momopay.Payment,
    *,
    every: float,
    timeout: float,
    is_new: bool,
) -> momopay.Transaction:
    # A new prompt is left alone for longer than the time between polls, in the proportion of the library's default.
    first = every * momopay.PollSchedule.first / momopay.PollSchedule.every if is_new else 0.0
    try:
        return wait_for(client, prompt.transaction_id, first=first, timeout=timeout, every=every)
    except BaseException:
        # Whatever ends the wait, an interrupt too, must not lose the id of a prompt that can still be paid.
        if output.as_json:
            show(output, prompt)
        output.note(f"The prompt may still be paid: momopay transactions wait {prompt.transaction_id}")
        raise
