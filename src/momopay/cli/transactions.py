"""Commands that collect an order, read, find and wait for transactions, and read the wallet and the channels."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import takewhile
from typing import Annotated, Any

import typer
from typer import Argument, Option

import momopay
from momopay._redaction import key_mode
from momopay.cli.command import Group, command
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import (
    SEARCH_DEADLINE,
    AccountOptions,
    Confirmation,
    ConfirmLive,
    Every,
    ServiceOptions,
    Timeout,
    Wait,
    api_key,
    checked,
    flag,
    kes_option,
    not_blank,
    request_option,
    time_option,
    whole_phone,
    word_option,
)
from momopay.cli.output import Output, kes, moment, stderr
from momopay.phones import same_phone

app: typer.Typer = typer.Typer(cls=Group, help="List, read, find and wait for transactions.", no_args_is_help=True)

_LOOK_BACK = timedelta(days=30)
_NO_RECEIPT = (
    "No entry of this journal has the receipt. That does not mean that nothing was paid: the receipt is missing if the"
    " callback was lost or is yet to come, and of what was paid without this journal. Search by phone: momopay"
    " transactions find --phone 07..."
)
# Two lines for each transaction, so that ids stay whole on 80 columns.
TRANSACTIONS = {
    "Transaction": "transaction_id created_at",
    "Status": "status type",
    "KES": "amount transaction_fee",
    "Phone and reference": "phone account_reference",
}

_CHANNELS = {
    "Channel": "name id",
    "Default": "is_default",
    "Type": "type",
    "Shortcode": "shortcode",
    "Account": "account_number",
}

TransactionId = Annotated[str, Argument(metavar="ID", help="The transaction's id.")]


def collect(
    options: AccountOptions,
    amount_: Annotated[Decimal, kes_option("--amount", "At least 1.", callback=checked("StkRequest.amount"))],
    phone: Annotated[
        str, request_option("StkRequest.phone", "PHONE", "The customer's: 07..., 01..., +254... or 254...")
    ],
    reference: Annotated[
        str | None,
        Argument(metavar="REFERENCE", callback=checked("OrderRequest.reference"), help="Your own, of the order."),
    ] = None,
    no_journal: Annotated[bool, flag("--no-journal", "Send one prompt each time, and record nothing.")] = False,
    description: Annotated[
        str | None,
        request_option("StkRequest.transaction_desc", "TEXT", "At most 13 characters; on the PIN prompt."),
    ] = None,
    callback_url: Annotated[
        str | None, request_option("StkRequest.callback_url", "URL", "Public HTTPS; gets the result.")
    ] = None,
    channel: Annotated[
        str | None, request_option("StkRequest.channel_id", "ID", "A channel other than the default.")
    ] = None,
    abandon_after: Annotated[
        float | None,
        request_option("OrderRequest.abandon_after", "SECONDS", "Prompt again although one is still open then."),
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
        momopay collect INV-43 --amount 100 --phone 0712345678 --journal payments.db
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
    # With a test key no money moves, so a single prompt needs no question.
    is_test = key_mode(key) == "test"
    confirmation = Confirmation(key, may_move=amount_, yes=is_test, confirm_live=confirm_live)
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
        # The first poll of a new prompt comes later than the others do, in the ratio of the library's defaults.
        first = every * momopay.PollSchedule.first / momopay.PollSchedule.every if is_new else 0.0
        try:
            ended = wait_for(client, prompt.transaction_id, first=first, timeout=timeout, every=every)
        except BaseException:
            # Also after an interrupt: the prompt can still be paid, so its id must not be lost.
            if output.as_json:
                show(output, prompt)
            output.note(f"The prompt may still be paid: momopay transactions wait {prompt.transaction_id}")
            raise
        if journal is not None:
            journal.settle(ended)
    return end_with(output, ended)


@command(app, "list")
def list_(
    options: ServiceOptions,
    status_: Annotated[
        Any, word_option("STATUS", lambda: momopay.TransactionStatus, "PENDING, SUCCESS, FAILED, ...", "--status")
    ] = None,
    type_: Annotated[Any, word_option("TYPE", lambda: momopay.TransactionType, "STK or B2C.", "--type")] = None,
    from_: Annotated[datetime | None, time_option("A date, or 2026-11-30T08:00.", "--from")] = None,
    to: Annotated[datetime | None, time_option("The same; the whole day of a date.", "--to", is_end=True)] = None,
    channel: Annotated[str | None, Option("--channel", metavar="ID", help="Through this channel.")] = None,
    amount_min: Annotated[Decimal | None, kes_option("--min", "This amount and more.")] = None,
    amount_max: Annotated[Decimal | None, kes_option("--max", "This amount and less.")] = None,
    q: Annotated[str | None, Option("--q", metavar="TEXT", help="Search text, as the service takes it.")] = None,
    limit: Annotated[int, Option(metavar="N", min=1, max=100, help="Transactions in a page.")] = 20,
    everything: Annotated[bool, flag("--all", "All pages, not one; 100 to a request.")] = False,
) -> None:
    """List transactions, newest first.

    With --json, one document for a page; with --all, one transaction a line.

    Examples:
        momopay transactions list --type STK --status SUCCESS
        momopay transactions list --from 2026-11-01 --to 2026-11-30 --all --json
    """
    output = options.output
    filters: dict[str, Any] = {
        "status": status_,
        "type": type_,
        "from_": from_,
        "to": to,
        "channel_id": channel,
        "amount_min": amount_min,
        "amount_max": amount_max,
        "q": q,
    }
    with options.client() as client:
        if everything:
            _show_all(output, client.transactions.iter(**filters))
            return
        page = client.transactions.list(limit=limit, **filters)
    if output.as_json:
        output.result(page)
        return
    _show_all(output, page.items, page.overview)
    if page.unread:
        output.result(None, f"Items that could not be read: {len(page.unread)}")
    if page.next_cursor:
        output.result(None, "More with --all")


@command(app)
def get(options: ServiceOptions, transaction_id: TransactionId) -> None:
    """Read one transaction.

    Examples:
        momopay transactions get 6f1f2a44-5f0c-4c8e-9f53-0d4b7c1c8a01
    """
    with options.client() as client:
        show(options.output, client.transactions.get(transaction_id))


@command(app)
def find(
    options: AccountOptions,
    wanted: Annotated[
        str | None, Argument(metavar="REFERENCE", callback=not_blank, help="That it was sent with.")
    ] = None,
    reference: Annotated[str | None, Option(metavar="TEXT", callback=not_blank, help="The same as REFERENCE.")] = None,
    phone: Annotated[
        str | None, Option(metavar="PHONE", callback=whole_phone, help="The customer's or the recipient's.")
    ] = None,
    receipt: Annotated[
        str | None,
        Option(metavar="TEXT", callback=not_blank, help="Of the provider, or the customer's message; needs --journal."),
    ] = None,
    since: Annotated[datetime | None, time_option("Only later ones. By default the last 30 days.")] = None,
) -> ExitCode:
    """Find transactions by reference, by phone, or by the receipt that a customer quotes.

    The service cannot search for a receipt: one is found through the journal that recorded it, in any case and however
    it is spaced. With --json, one transaction a line. Exits with 1 if there is none.

    Examples:
        momopay transactions find INV-42
        momopay transactions find --phone 0712345678
        momopay transactions find --receipt SBX1234567 --journal payments.db
    """
    output = options.output
    if wanted is not None and reference not in {None, wanted}:
        raise CommandError("REFERENCE and --reference are two references", remedy="give one of them")
    reference = wanted if reference is None else reference
    found: list[momopay.types.TransactionSummary] = []
    if receipt is not None:
        if not options.journal or reference is not None or phone is not None:
            raise CommandError("a receipt is found in the journal alone", remedy="give --receipt and --journal")
        found += _having_receipt(options, receipt)
    elif reference is None and phone is None:
        raise CommandError("nothing to look for", remedy="give a reference, --phone or --receipt")
    else:
        begin = since or datetime.now(UTC) - _LOOK_BACK
        searching = stderr().status("Searching the service's list")
        with options.client(deadline=SEARCH_DEADLINE) as client, searching:
            if reference is not None:
                found += client.transactions.find(reference=reference, phone=phone, since=begin)
            else:
                # Not with `from_`, which is no filter of every service.
                recent = takewhile(lambda each: each.created_at >= begin, client.transactions.iter())
                found += (each for each in recent if same_phone(phone or "", each.phone))
        # `find` searches from an earlier time, in case the clock of this machine is ahead.
        found = [each for each in found if each.created_at >= begin]
        if not found and since is None:
            output.note(f"Nothing since {moment(begin)}: --since searches further back.")
    if not found and receipt is not None:
        output.note(_NO_RECEIPT)
    _show_all(output, found)
    return ExitCode.OK if found else ExitCode.REFUSED


def _having_receipt(options: AccountOptions, text: str) -> list[momopay.types.TransactionSummary]:
    """Return the transaction with the receipt that a text has, read from the service."""
    from momopay.models.receipts import receipt_key, receipts_in

    with options.open_journal() as journal:
        entry = journal.by_receipt(text)
    keys = receipts_in(text)
    # The order may have other transactions, too.
    having = () if entry is None else [each for each in entry.transactions if receipt_key(each.receipt or "") in keys]
    if not having:
        return []
    with options.client() as client:
        return [client.transactions.get(each.transaction_id) for each in having]


@command(app)
def wait(
    options: ServiceOptions,
    transaction_id: TransactionId,
    until_settled: Annotated[bool, flag("--settled", "Of a payout: wait on from FAILED to REVERSED.")] = False,
    timeout: Timeout = 300,
    every: Every = 10,
) -> ExitCode:
    """Wait until a transaction has ended; one that has ended before is shown at once.

    Exits with 0 for SUCCESS, 1 for any other end, 6 if it has not ended in time.

    Examples:
        momopay transactions wait 6f1f2a44-5f0c-4c8e-9f53-0d4b7c1c8a01
    """
    until = momopay.settled if until_settled else momopay.terminal
    with options.client() as client:
        ended = wait_for(client, transaction_id, first=0, timeout=timeout, every=every, until=until)
    return end_with(options.output, ended)


def wait_for(
    client: momopay.Client, transaction_id: str, *, first: float, timeout: float, every: float, until: Any = None
) -> momopay.Transaction:
    """Wait for the end of a transaction; `first` is the seconds until the first poll."""
    schedule = momopay.PollSchedule(first=first, every=every, limit=timeout)
    with stderr().status("Waiting for the end"):
        return client.transactions.wait(transaction_id, until=until or momopay.terminal, schedule=schedule)


def end_with(output: Output, ended: momopay.Transaction | momopay.StkTransaction | momopay.Payment) -> ExitCode:
    """Show a transaction that has ended, and return 0 only if it succeeded."""
    show(output, ended)
    return ExitCode.OK if ended.status == momopay.TransactionStatus.SUCCESS else ExitCode.REFUSED


def show(
    output: Output, record: momopay.types.TransactionSummary | momopay.StkTransaction | momopay.Payout | momopay.Payment
) -> None:
    """Show one transaction."""
    seen: Any = getattr(record, "transaction", None)
    # The transaction of a Payment has more fields; there is none if no request was needed.
    document: dict[str, Any] = {} if seen is None else seen.model_dump()
    document |= record.model_dump(exclude={"transaction"})
    # While a prompt is PENDING, code 0 says that the provider accepted it. People would read it as a payment.
    results = () if record.status.is_terminal else ("result_code", "result_desc", "result_description")
    output.record(document, "currency", "kind", "is_new", *(("fee",) if seen is not None else ()), *results)


def _show_all(
    output: Output,
    found: Iterable[momopay.types.TransactionSummary],
    overview: momopay.types.TransactionOverview | None = None,
) -> None:
    count = output.rows(found, TRANSACTIONS)
    if overview is not None:
        ends = f"{overview.completed} completed, {overview.failed} failed, {overview.pending} pending"
        output.result(None, f"{overview.total} in all: {ends}")
    elif not output.as_json:
        output.result(None, f"{count} in all")


def balance(
    options: ServiceOptions,
    fail_below: Annotated[Decimal | None, kes_option("--fail-below", "Exit with 1 if less is available.")] = None,
) -> ExitCode:
    """Show the service wallet, from which fees are paid.

    The B2C wallet, from which payouts are paid, cannot be read over the API: see the account console. An empty wallet
    fails payments, so let cron or a monitor watch it with --fail-below.

    Examples:
        momopay balance
        momopay balance --fail-below 500
    """
    with options.client() as client:
        wallet = client.wallet.balance()
    options.output.record(wallet)
    if fail_below is None or wallet.available_balance >= fail_below:
        return ExitCode.OK
    options.output.note(f"The service wallet has less than KES {kes(fail_below)}: top it up")
    return ExitCode.REFUSED


def channels(options: ServiceOptions) -> None:
    """List the payment channels, the default one first.

    Examples:
        momopay channels --json
    """
    with options.client() as client:
        found = client.channels.list()
    nothing = "This account has no payment channel: an STK prompt would be refused."
    options.output.result({"items": found}, options.output.table(found, _CHANNELS) if found else nothing)
