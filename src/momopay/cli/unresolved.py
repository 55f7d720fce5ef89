"""What a journal says: what may or may not have been paid, and the human's word that it was not."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from momopay.cli.credentials import journal_exists, open_client, open_journal
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, JournalAt, Json, ShowPhones
from momopay.cli.output import Output, kes, moment, plain, stderr, table
from momopay.cli.output import status as coloured
from momopay.cli.prompts import is_interactive

if TYPE_CHECKING:
    from momopay.journal import Journal, JournalEntry

_FRESH = timedelta(minutes=10)
"""The list may not show so young a payout yet."""


def status(
    journal: JournalAt,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.csv", exists=True, dir_okay=False, help="Count its rows by state too."),
    ] = None,
    look: Annotated[bool, typer.Option("--look", help="Look for them in the service's list first.")] = False,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Show which payouts are in doubt.

    Needs no key and sends nothing, except with --look. Exits with 4 if any is in doubt.
    """
    output = Output(as_json, show_phones)
    with _existing(journal) as book:
        if look:
            with open_client(base_url) as client:
                book.reconcile_all(client)
        entries = book.unresolved()
        counts = None if file is None else _count(file, book)
    if as_json:
        output.document({"unresolved": [_facts(entry) for entry in entries], "file": counts})
    else:
        _show(output, entries, counts, looked=look)
    raise typer.Exit(ExitCode.UNKNOWN if entries else ExitCode.OK)


def release(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Of the payout that was not made.")],
    journal: JournalAt,
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    as_json: Json = False,
) -> None:
    """Say that a payout in doubt was NOT made, so that it is sent again.

    If it was made after all, it is paid twice. Look into the account console first. This command looks for it in the
    service's list once more, and then asks you to type the reference; no option answers for you.
    """
    from momopay.journal import JournalState

    output = Output(as_json, show_phones)
    with _existing(journal) as book, open_client(base_url) as client:
        entry = book.get(reference)
        if entry is None or entry.state is not JournalState.UNKNOWN:
            known = "not in the journal" if entry is None else f"{entry.state} in the journal, not in doubt"
            raise CommandError(f"this reference is {known}", remedy="`momopay payouts status` lists what is in doubt")
        matches = client.transactions.find(
            reference=reference, since=entry.sent_at, amount=entry.amount, phone=entry.phone, type="B2C"
        )
        if matches:
            if len(matches) == 1:
                book.settle(matches[0])
            raise CommandError(
                f"the service has it, {len(matches)} times: {', '.join(each.transaction_id for each in matches)}",
                remedy="it was paid and must not be sent again",
                code=ExitCode.REFUSED,
            )
        _ask(output, entry)
        released = book.release(reference)
    if as_json:
        output.document(_facts(released))
    else:
        output.people(f"Released: it is {released.state} now, and the next run pays it.")


def _ask(output: Output, entry: JournalEntry) -> None:
    console = stderr()
    amount, phone = kes(entry.amount), output.phone(entry.phone)
    console.print(f"KES {amount} to {phone}, sent at {moment(entry.sent_at)}, may have been paid.")
    console.print("The service's list does not show it, which proves nothing.")
    if datetime.now(UTC) - entry.sent_at < _FRESH:
        console.print("It is younger than ten minutes: the list may not show it yet. Better wait.", style="bold red")
    console.print("If it was paid after all, releasing it pays it twice.", style="bold red")
    if not is_interactive():
        raise CommandError("releasing takes a person at a terminal", remedy="run it there; nothing was changed")
    if typer.prompt("Type the reference to release it", err=True).strip() != entry.reference:
        raise CommandError("not the same reference", remedy="nothing was changed", code=ExitCode.REFUSED)


def _existing(journal: str) -> Journal:
    if not journal_exists(journal):
        raise CommandError(f"there is no journal at {journal}", remedy="check --journal", code=ExitCode.CONFIGURATION)
    return open_journal(journal)


def _count(file: Path, book: Journal) -> dict[str, int]:
    from momopay.cli.payroll_file import FaultyFileError, read_salaries

    try:
        rows = read_salaries(file).rows
    except FaultyFileError as error:
        raise CommandError(
            f"{file.name}: {len(error.faults)} faults", remedy="`momopay payouts run --dry-run` lists them"
        ) from None
    entries = [book.get(row.reference) for row in rows]
    return dict(Counter("NOT_BEGUN" if entry is None else entry.state.value for entry in entries))


def _facts(entry: JournalEntry) -> dict[str, object]:
    return entry.model_dump(exclude={"body_hash"})


def _show(output: Output, entries: list[JournalEntry], counts: dict[str, int] | None, *, looked: bool) -> None:
    if counts is not None:
        shown = table("State", "Rows", right=("Rows",), title="The file")
        for state, rows in counts.items():
            shown.add_row(coloured(state), str(rows))
        output.people(shown)
    if not entries:
        output.people("Nothing is in doubt.")
        return
    shown = table("Reference", "KES", "Phone", "Sent at", right=("KES",), title="May or may not have been paid")
    for entry in entries:
        shown.add_row(
            plain(output.text(entry.reference)), kes(entry.amount), output.phone(entry.phone), moment(entry.sent_at)
        )
    output.people(shown)
    if looked:
        output.people("The service's list does not show them, which proves nothing.")
    first = "Look again later, then" if looked else "Give --look to look for them in the service's list, then look"
    output.people(
        Text.assemble(
            ("What to do: ", "bold"),
            f"{first} in the account console; only if one was surely not paid, `momopay payouts release REFERENCE`.",
        )
    )
