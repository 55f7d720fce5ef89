"""Transactions: list them, read one, find them, wait for one. Nothing here moves money."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, TypeVar

import typer
from typer import Argument, Option

import momopay
from momopay.cli.command import Group, command
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import AccountOptions, Every, ServiceOptions, Timeout, amount, whole_phone
from momopay.cli.output import Output, plain, stderr
from momopay.cli.times import end_of, moment_of

app: typer.Typer = typer.Typer(cls=Group, help="List, read, find and wait for transactions.", no_args_is_help=True)

_LOOK_BACK = timedelta(days=30)
# Two lines for each transaction, so that ids stay whole on 80 columns.
TRANSACTIONS = {
    "Transaction": "transaction_id created_at",
    "Status": "status type",
    "KES": "amount transaction_fee",
    "Phone and reference": "phone account_reference",
}

EnumT = TypeVar("EnumT", bound=Enum)
TransactionId = Annotated[str, Argument(metavar="ID", help="The transaction's id.")]


def one_of(values: type[EnumT], word: str | None, option: str) -> EnumT | None:
    """Return the member for a word in any case, None for none, or raise CommandError: there is no such member."""
    # The library passes on any word, since the service may learn new ones; here it is most likely mistyped, and an
    # empty list would be taken for an answer. Whether the list can be filtered by EXPIRED, the service decides.
    members = {str(each.value): each for each in values}
    if word is None or word.upper() in members:
        return None if word is None else members[word.upper()]
    raise CommandError(
        f"{option}: there is no {plain(word) if word else repr(word)}", remedy=f"give one of {', '.join(members)}"
    )


@command(app, "list")
def list_(
    options: ServiceOptions,
    status_: Annotated[str | None, Option("--status", metavar="STATUS", help="PENDING, SUCCESS, FAILED, ...")] = None,
    type_: Annotated[str | None, Option("--type", metavar="TYPE", help="STK or B2C.")] = None,
    from_: Annotated[str | None, Option("--from", metavar="TIME", help="A date, or 2026-11-30T08:00.")] = None,
    to: Annotated[str | None, Option("--to", metavar="TIME", help="The same; the whole day of a date.")] = None,
    channel: Annotated[str | None, Option("--channel", metavar="ID", help="Through this channel.")] = None,
    amount_min: Annotated[
        Decimal | None, Option("--min", metavar="KES", parser=amount, help="This amount and more.")
    ] = None,
    amount_max: Annotated[
        Decimal | None, Option("--max", metavar="KES", parser=amount, help="This amount and less.")
    ] = None,
    q: Annotated[str | None, Option("--q", metavar="TEXT", help="Search text, as the service takes it.")] = None,
    limit: Annotated[int, Option(metavar="N", min=1, max=100, help="Transactions in a page.")] = 20,
    cursor: Annotated[str | None, Option(metavar="CURSOR", help="The next_cursor of the previous page.")] = None,
    everything: Annotated[bool, Option("--all", help="All pages, not one; 100 to a request.")] = False,
) -> None:
    """List transactions, newest first.

    With --json, one document for a page; with --all, one transaction a line.

    Examples:
        momopay transactions list --type STK --status SUCCESS
        momopay transactions list --from 2026-11-01 --to 2026-11-30 --all --json
    """
    output = options.output
    filters: dict[str, Any] = {
        "status": one_of(momopay.TransactionStatus, status_, "--status"),
        "type": one_of(momopay.TransactionType, type_, "--type"),
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
    with options.client() as client:
        if everything:
            _show_all(output, client.transactions.iter(**filters))
            return
        page = client.transactions.list(limit=limit, cursor=cursor, **filters)
    if output.as_json:
        output.result(page)
        return
    _show_all(output, page.items, page.overview)
    if page.next_cursor:
        output.result(None, f"More with --cursor {plain(page.next_cursor)}, or all with --all")


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
    reference: Annotated[str | None, Option(metavar="TEXT", help="That it was sent with.")] = None,
    phone: Annotated[str | None, Option(metavar="PHONE", help="The customer's or the recipient's.")] = None,
    receipt: Annotated[str | None, Option(metavar="TEXT", help="Of the provider; needs --journal.")] = None,
    since: Annotated[str | None, Option(metavar="TIME", help="Only later ones. By default the last 30 days.")] = None,
) -> ExitCode:
    """Find transactions by reference, by phone, or by the receipt that a customer quotes.

    The service's list has no receipts: one is found through the journal that recorded the callback. With --json, one
    transaction a line. Exits with 1 if there is none.

    Examples:
        momopay transactions find --reference INV-42
        momopay transactions find --receipt SBX1234567 --journal shop.db
    """
    output = options.output
    found: list[momopay.TransactionSummary] = []
    if receipt is not None:
        if not options.journal or reference is not None or phone is not None:
            raise CommandError("a receipt is found in the journal alone", remedy="give --receipt and --journal")
        with options.open_journal() as journal:
            entry = journal.by_receipt(receipt)
        # An order may have other transactions.
        having = () if entry is None else [each for each in entry.transactions if each.receipt == receipt]
        with options.client() as client:
            found += [client.transactions.get(each.transaction_id) for each in having]
    elif reference is None and phone is None:
        raise CommandError("nothing to look for", remedy="give --reference, --phone or --receipt")
    else:
        begin = datetime.now(UTC) - _LOOK_BACK if since is None else moment_of(since, "--since")
        phone = phone if phone is None else whole_phone(phone)
        with options.client() as client, stderr().status("Searching the service's list"):
            found += _matching(client, begin, reference, phone)
    _show_all(output, found)
    return ExitCode.OK if found else ExitCode.REFUSED


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


@command(app)
def wait(
    options: ServiceOptions,
    transaction_id: TransactionId,
    until_settled: Annotated[
        bool, Option("--settled", help="For payouts: wait on from FAILED until REVERSED.")
    ] = False,
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
    output: Output, record: momopay.TransactionSummary | momopay.StkTransaction | momopay.Payout | momopay.Payment
) -> None:
    """Show one transaction."""
    seen: Any = getattr(record, "transaction", None)
    # Of a payment, its transaction says more, unless no request was needed.
    document: dict[str, Any] = {} if seen is None else seen.model_dump()
    document |= record.model_dump(exclude={"transaction"})
    # While a prompt is PENDING, code 0 says that the provider accepted it. People would read it as a payment.
    results = () if record.status.is_terminal else ("result_code", "result_desc", "result_description")
    output.record(document, "currency", "kind", "is_new", *(("fee",) if seen is not None else ()), *results)


def _show_all(
    output: Output, found: Iterable[momopay.TransactionSummary], overview: momopay.TransactionOverview | None = None
) -> None:
    count = output.rows(found, TRANSACTIONS)
    if overview is not None:
        ends = f"{overview.completed} completed, {overview.failed} failed, {overview.pending} pending"
        output.result(None, f"{overview.total} in all: {ends}")
    elif not output.as_json:
        output.result(None, f"{count} in all")
