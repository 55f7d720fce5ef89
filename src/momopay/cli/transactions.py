"""Transactions: list them, read one, wait for one. Nothing here moves money."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table

import momopay
from momopay.cli.command import Command, Group
from momopay.cli.credentials import open_client, open_journal
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, Every, JournalAccount, Json, ShowPhones, Timeout, Utc, amount, whole_phone
from momopay.cli.output import Output, fields, kes, moment, plain, status, stderr, table
from momopay.cli.times import end_of, moment_of

app: typer.Typer = typer.Typer(cls=Group, help="List, read and wait for transactions.", no_args_is_help=True)

_LOOK_BACK = timedelta(days=30)
TransactionId = Annotated[str, typer.Argument(metavar="ID", help="The transaction's id.")]


@app.command("list", cls=Command)
def list_(
    status_: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="PENDING, SUCCESS, FAILED, ...")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="STK or B2C.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="A date, or 2026-11-30T08:00.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The same; the whole day of a date.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", metavar="ID", help="Through this channel.")] = None,
    amount_min: Annotated[
        Decimal | None, typer.Option("--min", metavar="KES", parser=amount, help="This amount and more.")
    ] = None,
    amount_max: Annotated[
        Decimal | None, typer.Option("--max", metavar="KES", parser=amount, help="This amount and less.")
    ] = None,
    q: Annotated[str | None, typer.Option("--q", metavar="TEXT", help="Search text, as the service takes it.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Transactions in a page.")] = 20,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="The next_cursor of the previous page.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All pages, not one; 100 to a request.")] = False,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """List transactions, newest first.

    With --json, one document for a page; with --all, one transaction a line.

    Examples:
        momopay transactions list --type STK --status SUCCESS
        momopay transactions list --from 2026-11-01 --to 2026-11-30 --all --json
    """
    output = Output(as_json, show_phones)
    filters: dict[str, Any] = {
        "status": None if status_ is None else _known("status", status_, momopay.TransactionStatus),
        "type": None if type_ is None else _known("type", type_, momopay.TransactionType),
        "from_": None if from_ is None else moment_of(from_, "--from"),
        "to": None if to is None else end_of(to, "--to"),
        "channel_id": channel,
        "amount_min": amount_min,
        "amount_max": amount_max,
        "q": q,
    }
    # A walk that began in the middle would look complete.
    if everything and cursor is not None:
        raise CommandError("--all begins at the newest", remedy="give --all or --cursor, not both")
    with open_client(base_url) as client:
        if everything:
            _show_all(output, client.transactions.iter(**filters))
            return
        page = client.transactions.list(limit=limit, cursor=cursor, **filters)
    counts = page.overview
    output.result(
        page,
        _table(output, page.items),
        f"{counts.total} in all: {counts.completed} completed, {counts.failed} failed, {counts.pending} pending",
        *([f"More with --cursor {plain(page.next_cursor)}, or all with --all"] if page.next_cursor else []),
    )


def _known(what: str, word: str, values: type[momopay.TransactionStatus | momopay.TransactionType]) -> str:
    # The library passes on any word, since the service may learn new ones; here it is most likely mistyped, and an
    # empty list would be taken for an answer. Whether the list can be filtered by EXPIRED, the service decides.
    known = [each.value for each in values]
    if word.upper() not in known:
        raise CommandError(
            f"--{what}: no {what} is called {plain(word) if word else repr(word)}",
            remedy=f"give one of {', '.join(known)}",
        )
    return word.upper()


@app.command(cls=Command)
def get(
    transaction_id: TransactionId,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Read one transaction.

    Examples:
        momopay transactions get 6f1f2a44-5f0c-4c8e-9f53-0d4b7c1c8a01
    """
    with open_client(base_url) as client:
        show(Output(as_json, show_phones), client.transactions.get(transaction_id))


@app.command(cls=Command)
def find(
    reference: Annotated[str | None, typer.Option(metavar="TEXT", help="That it was sent with.")] = None,
    phone: Annotated[str | None, typer.Option(metavar="PHONE", help="The customer's or the recipient's.")] = None,
    receipt: Annotated[str | None, typer.Option(metavar="TEXT", help="Of the provider; needs --journal.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only later ones. By default the last 30 days.")
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(metavar="FILE|URL", envvar="MOMOPAY_JOURNAL", help="Which keeps the receipts of callbacks."),
    ] = None,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Find transactions by reference, by phone, or by the receipt that a customer quotes.

    The service's list has no receipts: one is found through the journal that recorded the callback. With --json, one
    transaction a line. Exits with 1 if there is none.

    Examples:
        momopay transactions find --reference INV-42
        momopay transactions find --receipt SBX1234567 --journal shop.db
    """
    output = Output(as_json, show_phones)
    if receipt is not None:
        if journal is None or reference is not None or phone is not None:
            raise CommandError("a receipt is found in the journal alone", remedy="give --receipt and --journal")
        with open_journal(journal, account) as opened:
            entry = opened.by_receipt(receipt)
        prompts = () if entry is None else entry.prompts
        wanted = next(
            (each.transaction_id for each in prompts if each.receipt == receipt), entry and entry.transaction_id
        )
        with open_client(base_url) as client:
            found: list[momopay.TransactionSummary] = [client.transactions.get(wanted)] if wanted else []
    elif reference is None and phone is None:
        raise CommandError("nothing to look for", remedy="give --reference, --phone or --receipt")
    else:
        begin = datetime.now(UTC) - _LOOK_BACK if since is None else moment_of(since, "--since")
        phone = phone if phone is None else whole_phone(phone)
        with open_client(base_url) as client, stderr().status("Searching the service's list"):
            found = list(_matching(client, begin, reference, phone))
    for item in found if as_json else []:
        output.result(item)
    if not as_json:
        output.result(None, _table(output, found), f"{len(found)} in all")
    raise typer.Exit(ExitCode.OK if found else ExitCode.REFUSED)


def _matching(
    client: momopay.Client, since: datetime, reference: str | None, phone: str | None
) -> Iterable[momopay.TransactionSummary]:
    from momopay.phones import same_phone

    if reference is not None:
        # The search begins earlier, in case the clock of this machine is ahead.
        found = client.transactions.find(reference=reference, phone=phone, since=since)
        yield from (each for each in found if each.created_at >= since)
        return
    for item in client.transactions.iter():
        if item.created_at < since:
            return
        if same_phone(phone or "", item.phone):
            yield item


@app.command(cls=Command)
def wait(
    transaction_id: TransactionId,
    until_settled: Annotated[
        bool, typer.Option("--settled", help="For payouts: wait on from FAILED until REVERSED.")
    ] = False,
    timeout: Timeout = 300,
    every: Every = 10,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Wait until a transaction has ended; one that has ended before is shown at once.

    Exits with 0 for SUCCESS, 1 for any other end, 6 if it has not ended in time.

    Examples:
        momopay transactions wait 6f1f2a44-5f0c-4c8e-9f53-0d4b7c1c8a01
    """
    with open_client(base_url) as client:
        ended = wait_for(client, transaction_id, first=0, timeout=timeout, every=every, until_settled=until_settled)
    end_with(Output(as_json, show_phones), ended)


def wait_for(
    client: momopay.Client,
    transaction: str | momopay.StkTransaction,
    *,
    first: float,
    timeout: float,
    every: float,
    until_settled: bool = False,
) -> momopay.Transaction:
    """Wait for the end of a transaction; `first` is the seconds until the first poll."""
    schedule = momopay.PollSchedule(first=first, every=every, limit=timeout)
    until = momopay.settled if until_settled else momopay.terminal
    with stderr().status("Waiting for the end"):
        return client.transactions.wait(transaction, until=until, schedule=schedule)


def end_with(output: Output, ended: momopay.Transaction) -> NoReturn:
    """Show a transaction that has ended, and exit with 0 only if it succeeded."""
    show(output, ended)
    raise typer.Exit(ExitCode.OK if ended.status == momopay.TransactionStatus.SUCCESS else ExitCode.REFUSED)


def show(output: Output, record: momopay.TransactionSummary | momopay.StkTransaction | momopay.Payout) -> None:
    """Show one transaction."""
    reference = record.reference if isinstance(record, momopay.Payout) else record.account_reference
    description = getattr(record, "result_desc", None) or getattr(record, "result_description", None)
    # While a prompt is PENDING, code 0 says that the provider accepted it. People would read it as a payment.
    code = getattr(record, "result_code", None) if record.status.is_terminal else None
    fee = record.transaction_fee
    output.result(
        record,
        fields(
            {
                "Transaction": record.transaction_id,
                "Type": record.type,
                "Status": status(record.status),
                "Amount": f"{record.currency} {kes(record.amount)}",
                "Fee": None if fee is None else f"{record.currency} {kes(fee)}",
                "Phone": output.phone(record.phone),
                "Reference": output.text(reference) or None,
                "Result": None if code is None else f"{code} {output.text(description)}".strip(),
                "Created": record.created_at,
                "Updated": record.updated_at,
            }
        ),
    )


def _show_all(output: Output, found: Iterable[momopay.TransactionSummary]) -> None:
    if output.as_json:
        for item in found:
            output.result(item)
        return
    items = list(found)
    output.result(None, _table(output, items), f"{len(items)} in all")


def _table(output: Output, items: Iterable[momopay.TransactionSummary]) -> Table:
    # Two lines for each transaction, so that ids stay whole on 80 columns.
    rows = (
        (
            f"{item.transaction_id}\n{moment(item.created_at)} {item.type}",
            status(item.status),
            kes(item.amount) + ("" if item.transaction_fee is None else f"\nfee {kes(item.transaction_fee)}"),
            f"{output.phone(item.phone)}\n{output.text(item.account_reference)}",
        )
        for item in items
    )
    return table(("Transaction", "Status", "KES", "Phone and reference"), rows, right=("KES",))
