"""Transactions: listed, read and waited for. Nothing here moves money."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from momopay.cli.command import Command
from momopay.cli.credentials import open_client
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, Every, Json, ShowPhones, Timeout, amount
from momopay.cli.output import Output, kes, moment, plain, status, stderr, table

if TYPE_CHECKING:
    from momopay.client import Client
    from momopay.models.stk import StkTransaction
    from momopay.models.transactions import Transaction, TransactionSummary

app: typer.Typer = typer.Typer(help="List, read and wait for transactions.", no_args_is_help=True)

TransactionId = Annotated[str, typer.Argument(metavar="ID", help="The transaction's id.")]


@app.command("list", cls=Command)
def list_(
    status_: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="PENDING, SUCCESS, FAILED, ...")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="STK or B2C.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="ISO 8601 date or time.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="ISO 8601 date or time.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", metavar="ID", help="Through this channel.")] = None,
    amount_min: Annotated[
        Decimal | None, typer.Option("--min", metavar="KES", parser=amount, help="This amount and more.")
    ] = None,
    amount_max: Annotated[
        Decimal | None, typer.Option("--max", metavar="KES", parser=amount, help="This amount and less.")
    ] = None,
    q: Annotated[str | None, typer.Option("--q", metavar="TEXT", help="What the service finds by this.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="How many to a page.")] = 20,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="The next_cursor of the page before.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All pages, not one; 100 to a request.")] = False,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """List transactions, newest first.

    With --json, one document for a page; with --all, one transaction a line.
    """
    output = Output(as_json, show_phones)
    filters = {
        "status": status_ and _known_status(status_.upper()),
        "type": type_ and type_.upper(),
        "from_": from_,
        "to": to,
        "channel_id": channel,
        "amount_min": amount_min,
        "amount_max": amount_max,
        "q": q,
    }
    with open_client(base_url) as client:
        if everything:
            if cursor is not None:
                raise CommandError("--all begins at the newest", remedy="give --all or --cursor, not both")
            _show_all(output, client.transactions.iter(**filters))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  names and types are those above
            return
        page = client.transactions.list(limit=limit, cursor=cursor, **filters)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  as above
    if as_json:
        output.document(page)
        return
    counts = page.overview
    output.people(
        _table(output, page.items),
        f"{counts.total} in all: {counts.completed} completed, {counts.failed} failed, {counts.pending} pending",
    )
    if page.next_cursor:
        output.people(f"More with --cursor {plain(page.next_cursor)}, or all with --all")


def _known_status(word: str) -> str:
    """Refuse a word that is no status. Whether its list can be filtered by EXPIRED is for the service to say."""
    from momopay.models.enums import TransactionStatus

    known = [each.value for each in TransactionStatus]
    if word not in known:
        raise CommandError(f"no status is called {plain(word)}", remedy=f"give one of {', '.join(known)}")
    return word


@app.command(cls=Command)
def get(
    transaction_id: TransactionId,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Read one transaction."""
    output = Output(as_json, show_phones)
    with open_client(base_url) as client:
        show(output, client.transactions.get(transaction_id))


@app.command(cls=Command)
def wait(
    transaction_id: TransactionId,
    to_settle: Annotated[
        bool, typer.Option("--settled", help="For payouts: wait on from FAILED until REVERSED.")
    ] = False,
    timeout: Timeout = 300,
    every: Every = 10,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Wait until a transaction has ended; one that has ended before is shown at once.

    Exits with 0 for SUCCESS, 1 for any other end, 6 if it has not ended in time.
    """
    output = Output(as_json, show_phones)
    with open_client(base_url) as client:
        ended = wait_for(client, transaction_id, first=0, timeout=timeout, every=every, to_settle=to_settle)
    show(output, ended)
    raise typer.Exit(exit_code_of_end(ended))


def wait_for(
    client: Client,
    transaction: str | StkTransaction,
    *,
    first: float,
    timeout: float,
    every: float,
    to_settle: bool = False,
) -> Transaction:
    """Wait; `first` is the seconds until the first look."""
    from momopay._polling.schedule import PollSchedule, settled, terminal

    schedule = PollSchedule(first=first, every=every, limit=timeout)
    with stderr().status("Waiting for the end"):
        return client.transactions.wait(transaction, until=settled if to_settle else terminal, schedule=schedule)


def exit_code_of_end(ended: Transaction) -> ExitCode:
    """Give the exit status for a transaction that has ended."""
    return ExitCode.OK if ended.status == "SUCCESS" else ExitCode.REFUSED


def show(output: Output, record: TransactionSummary | StkTransaction) -> None:
    """Show one transaction."""
    if output.as_json:
        output.document(record)
        return
    description = getattr(record, "result_desc", None) or getattr(record, "result_description", None)
    code = getattr(record, "result_code", None) if record.status.is_terminal else None  # 0 beside PENDING is no payment
    facts: dict[str, str | Text | None] = {
        "Transaction": plain(record.transaction_id),
        "Type": plain(record.type),
        "Status": status(record.status),
        "Amount": f"{plain(record.currency)} {kes(record.amount)}",
        "Fee": None if record.transaction_fee is None else f"{plain(record.currency)} {kes(record.transaction_fee)}",
        "Phone": output.phone(record.phone),
        "Reference": output.text(record.account_reference) or None,
        "Result": None if code is None else f"{plain(code)} {output.text(description)}".strip(),
        "Created": moment(record.created_at),
        "Updated": moment(record.updated_at),
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, fact in facts.items():
        if fact is not None:
            grid.add_row(name, fact)
    output.people(grid)


def _show_all(output: Output, found: Iterable[TransactionSummary]) -> None:
    if output.as_json:
        for item in found:
            output.document(item)
        return
    items = list(found)
    output.people(_table(output, items), f"{len(items)} in all")


def _table(output: Output, items: Iterable[TransactionSummary]) -> Table:
    """Two lines for each, so that ids stay whole on 80 columns."""
    shown = table("Transaction", "Status", "KES", "Phone and reference", right=("KES",))
    for item in items:
        fee = "" if item.transaction_fee is None else f"\nfee {kes(item.transaction_fee)}"
        shown.add_row(
            f"{plain(item.transaction_id)}\n{moment(item.created_at)} {plain(item.type)}",
            status(item.status),
            kes(item.amount) + fee,
            f"{output.phone(item.phone)}\n{output.text(item.account_reference)}",
        )
    return shown
