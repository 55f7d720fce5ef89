"""Payouts in doubt: see them, search for them, and release what was not paid."""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import momopay
from momopay.cli.credentials import open_client, open_journal
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, JournalAccount, JournalAt, Json, ShowPhones, Utc
from momopay.cli.output import Output, kes, moment, plain, stderr, table
from momopay.cli.output import status as styled
from momopay.cli.payroll_file import PayrollFile, read_payroll
from momopay.cli.payroll_report import NOT_BEGUN, RELEASE_HINT
from momopay.cli.prompts import is_interactive
from momopay.errors import OutcomeUnknownError, RequestValidationError

# The service's list may not show a payout that is younger.
_FRESH = timedelta(minutes=10)
# Clocks and time zones may be off by so much: what has the reference and is that much older is shown too.
_BEFORE = timedelta(days=1)
# Seconds by which two clocks usually differ.
_USUAL_OFFSET = 60.0


def status(
    journal: JournalAt,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.csv", exists=True, dir_okay=False, help="Count its rows by state too."),
    ] = None,
    look: Annotated[bool, typer.Option("--look", help="Search for them in the service's list first.")] = False,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show which payouts are in doubt.

    Needs no key and sends nothing, except with --look, which also shows transactions that have the reference and
    another amount, phone, type or time. Exits with 4 if any payout is in doubt.

    Examples:
        momopay payouts status --journal shop.db --look
    """
    output = Output(as_json, show_phones)
    found: dict[str, list[momopay.TransactionSummary]] | None = None
    with open_journal(journal, account) as opened:
        if look:
            with open_client(base_url) as client:
                opened.reconcile_all(client)
                found = _find_by_reference(client, _payouts_in_doubt(opened))
        entries = _payouts_in_doubt(opened)
        counts = None if file is None else _count_by_state(read_payroll(file), opened)
    shown: list[object] = []
    if counts is not None:
        rows = [(styled(state), count) for state, count in counts.items()]
        shown.append(table(("State", "Rows"), rows, right=("Rows",), title="The file"))
    shown += _in_doubt(output, entries, found) if entries else ["Nothing is in doubt."]
    unresolved = [
        _as_document(entry) | {"near_matches": None if found is None else found.get(entry.reference, [])}
        for entry in entries
    ]
    output.result({"unresolved": unresolved, "file": counts}, *shown)
    raise typer.Exit(ExitCode.UNKNOWN if entries else ExitCode.OK)


def _payouts_in_doubt(journal: momopay.Journal) -> list[momopay.JournalEntry]:
    return [entry for entry in journal.unresolved() if entry.kind == momopay.EntryKind.PAYOUT]


def _find_by_reference(
    client: momopay.Client, entries: Sequence[momopay.JournalEntry]
) -> dict[str, list[momopay.TransactionSummary]]:
    """Return the transactions with the reference of each entry, whatever else they have; one walk for all."""
    from momopay.models.matching import comparable  # loads pydantic

    found: dict[str, list[momopay.TransactionSummary]] = {entry.reference: [] for entry in entries}
    if entries:
        oldest = min(entry.sent_at for entry in entries) - _BEFORE
        for item in client.transactions.iter():
            if item.created_at < oldest:
                break
            for reference, items in found.items():
                if comparable(reference) == comparable(item.account_reference):
                    items.append(item)
    return found


def _count_by_state(payroll: PayrollFile, journal: momopay.Journal) -> dict[str, int]:
    entries = [journal.get(row.reference) for row in payroll.rows]
    return Counter(NOT_BEGUN if entry is None else entry.state.value for entry in entries)


def _in_doubt(
    output: Output,
    entries: list[momopay.JournalEntry],
    found: dict[str, list[momopay.TransactionSummary]] | None,
) -> list[object]:
    rows = [
        (output.text(entry.reference), entry.amount, output.phone(entry.phone), entry.sent_at, entry.attempts)
        for entry in entries
    ]
    columns = ("Reference", "KES", "Phone", "Sent at", "Attempts")
    shown: list[object] = [table(columns, rows, right=("KES", "Attempts"), title="May or may not have been paid")]
    shown += [f"{output.text(entry.reference)}: {note}" for entry in entries for note in _notes(entry)]
    near = [item for entry in entries for item in (found or {}).get(entry.reference, [])]
    if near:
        shown += [_near_matches(output, near), "Compare them with the payouts by eye: one of them may be the payout."]
    elif found is not None:
        shown.append("The service's list does not show them, which proves nothing.")
    first = "Give --look to search for them in the service's list" if found is None else "Search again later"
    return [*shown, Text.assemble(("What to do: ", "bold"), f"{first}, then {RELEASE_HINT}.")]


def _notes(entry: momopay.JournalEntry) -> Iterator[str]:
    if entry.released_at is not None:
        yield f"released at {moment(entry.released_at)} by {plain(entry.released_by or 'somebody who gave no name')}"
    if abs(entry.clock_offset or 0.0) > _USUAL_OFFSET:
        seconds = entry.clock_offset or 0.0
        side = "ahead of" if seconds > 0 else "behind"
        yield f"the clock of its sender was {abs(seconds):.0f} s {side} the service's"


def _near_matches(output: Output, found: Sequence[momopay.TransactionSummary]) -> Table:
    rows = [
        (
            f"{item.transaction_id}\n{output.text(item.account_reference)}",
            f"{item.type}\n{item.status}",
            item.amount,
            f"{output.phone(item.phone)}\n{moment(item.created_at)}",
        )
        for item in found
    ]
    columns = ("Transaction", "Status", "KES", "Phone and time")
    return table(columns, rows, right=("KES",), title="Transactions with these references")


def release(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Of the payout that was not made.")],
    journal: JournalAt,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who decides; by default your login name.")
    ] = None,
    account: JournalAccount = "default",
    base_url: BaseUrl = None,
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Say that a payout in doubt was NOT made, so that it is sent again.

    If it was made after all, it is paid twice. Look into the account console first. This command asks you to type the
    reference; no option answers for you. Then it searches the service's whole list, and releases nothing if a
    transaction has the reference, whatever its amount, phone or time. The journal keeps who released it, and when.

    Examples:
        momopay payouts release SAL-2026-11-001 --journal shop.db
    """
    output = Output(as_json, show_phones)
    with open_journal(journal, account) as opened, open_client(base_url) as client:
        entry = opened.get(reference)
        if entry is None or entry.state != momopay.JournalState.UNKNOWN:
            known = "not in the journal" if entry is None else f"{entry.state} in the journal, not in doubt"
            raise CommandError(f"this reference is {known}", remedy="`momopay payouts status` lists what is in doubt")
        name = by or _login_name()
        _ask_for_release(output, entry)
        try:
            with stderr().status("Searching the service's list"):
                released = client.payouts.release(journal=opened, reference=reference, by=name)
        except OutcomeUnknownError as error:
            if not as_json:  # the error's line has their ids then
                output.note(_near_matches(output, [*error.matches, *error.near_matches]))
            raise
        except RequestValidationError as error:
            raise _refusal(error, opened.get(reference)) from error
    output.result(_as_document(released), f"Released: it is {released.state} now, and the next run pays it.")


def _refusal(error: RequestValidationError, entry: momopay.JournalEntry | None) -> CommandError:
    """Return why nothing was released."""
    if entry is not None and entry.state == momopay.JournalState.UNKNOWN:  # its sender may be frozen
        remedy = "wait until then; nothing was changed"
        return CommandError(str(error), remedy=remedy, code=ExitCode.TRY_LATER)
    return CommandError(str(error), remedy="it was paid and must not be sent again", code=ExitCode.REFUSED)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError) as error:  # an id without a name, as in a container
        raise CommandError("your login name is not known", remedy="give --by NAME; nothing was changed") from error


def _ask_for_release(output: Output, entry: momopay.JournalEntry) -> None:
    console = stderr()
    phone = plain(output.phone(entry.phone))
    console.print(f"KES {kes(entry.amount)} to {phone}, sent at {moment(entry.sent_at)}, may have been paid.")
    for note in _notes(entry):
        console.print(f"Note: {note}.")
    console.print("The service's list is searched for it next. That it is not there proves nothing.")
    if datetime.now(UTC) - entry.sent_at < _FRESH:
        console.print("It is younger than ten minutes: the list may not show it yet. Better wait.", style="bold red")
    console.print("If it was paid after all, releasing it pays it twice.", style="bold red")
    # A pipe cannot have looked into the account console, so it cannot vouch for it.
    if not is_interactive():
        raise CommandError("releasing takes a person at a terminal", remedy="run it there; nothing was changed")
    if typer.prompt("Type the reference to release it", err=True).strip() != entry.reference.strip():
        raise CommandError("not the same reference", remedy="nothing was changed", code=ExitCode.REFUSED)


def _as_document(entry: momopay.JournalEntry) -> dict[str, object]:
    return entry.model_dump(exclude={"body_hash", "claim"})
