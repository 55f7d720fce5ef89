"""The journal: list it, show an entry, back it up, anonymise it, check it. Nothing here moves money."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.table import Table

import momopay
from momopay.cli.command import Command, Group
from momopay.cli.credentials import open_journal
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import JournalAccount, JournalAt, Json, ShowPhones, Utc
from momopay.cli.output import Output, fields, kes, moment, plain, status, table
from momopay.cli.prompts import is_interactive
from momopay.cli.times import moment_of

EnumT = TypeVar("EnumT", bound=Enum)

app: typer.Typer = typer.Typer(cls=Group, help="List, check, back up and anonymise a journal.", no_args_is_help=True)

_SECRET = "MOMOPAY_ANONYMISE_SECRET"  # noqa: S105  the name of a variable


def _one_of(enum: type[EnumT], text: str | None, option: str) -> EnumT | None:
    """Return the member for a word in any case, None for none; raise CommandError if there is no such member."""
    members = {str(each.value): each for each in enum}
    if text is not None and text.upper() not in members:
        raise CommandError(f"{option}: there is no {plain(text)}", remedy=f"give one of {', '.join(members)}")
    return None if text is None else members[text.upper()]


@app.command("list", cls=Command)
def list_(
    journal: JournalAt,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="PAYOUT or COLLECTION.")] = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="ACCEPTED, UNKNOWN, REFUSED, ...")] = None,
    status_: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="SUCCESS, FAILED, REVERSED, ...")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="First used then or later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="First used before.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="The newest so many.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    account: JournalAccount = "default",
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """List the entries, newest first.

    With --json, one entry a line.

    Examples:
        momopay journal list --journal shop.db --state UNKNOWN
        momopay journal list --journal shop.db --since 2026-11-01 --all
    """
    output = Output(as_json, show_phones)
    with open_journal(journal, account) as opened:
        found = opened.entries(
            kind=_one_of(momopay.EntryKind, kind, "--kind"),
            state=_one_of(momopay.JournalState, state, "--state"),
            status=_one_of(momopay.TransactionStatus, status_, "--status"),
            since=None if since is None else moment_of(since, "--since"),
            until=None if until is None else moment_of(until, "--until"),
        )
        entries = islice(found, None if everything else limit)
        if as_json:
            for entry in entries:
                output.result(as_document(entry))
            return
        output.result(None, _table(output, entries))


def _table(output: Output, entries: Iterable[momopay.JournalEntry]) -> Table:
    rows = (
        (
            f"{output.text(entry.reference)}\n{entry.kind}",
            status(entry.state),
            status(entry.status or "") if entry.status else "",
            kes(entry.amount) + ("" if entry.fee is None else f"\nfee {kes(entry.fee)}"),
            f"{output.phone(entry.phone)}\n{moment(entry.created_at)}",
            output.text(entry.receipt),
        )
        for entry in entries
    )
    return table(("Reference", "State", "Status", "KES", "Phone and time", "Receipt"), rows, right=("KES",))


@app.command(cls=Command)
def show(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Of a payout, or of a collection.")],
    journal: JournalAt,
    account: JournalAccount = "default",
    show_phones: ShowPhones = False,
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Show all that the journal has of a reference.

    A payout and a collection may have the same reference; then both are shown, with --json in two lines.

    Examples:
        momopay journal show INV-43 --journal shop.db
    """
    output = Output(as_json, show_phones)
    with open_journal(journal, account) as opened:
        entries = [entry for kind in momopay.EntryKind if (entry := opened.get(reference, kind)) is not None]
    if not entries:
        raise CommandError("this reference is not in the journal", remedy="check it, and --account")
    for entry in entries:
        output.result(as_document(entry), _fields(output, entry))


def _fields(output: Output, entry: momopay.JournalEntry) -> Table:
    prompts = [
        f"{each.transaction_id} {each.status or 'not ended'} {moment(each.sent_at)}"
        + ("" if each.receipt is None else f" receipt {output.text(each.receipt)}")
        for each in entry.prompts
    ]
    return fields(
        {
            "Reference": output.text(entry.reference),
            "Kind": entry.kind,
            "State": status(entry.state),
            "Code": entry.code,
            "Status": None if entry.status is None else status(entry.status),
            "Result": entry.result_code,
            "Amount": f"KES {kes(entry.amount)}",
            "Fee": None if entry.fee is None else f"KES {kes(entry.fee)}",
            "Phone": "removed" if not entry.phone else output.phone(entry.phone),
            "Receipt": output.text(entry.receipt) or None,
            "Transaction": entry.transaction_id,
            "Prompts": "\n".join(prompts) or None,
            "Paid twice": "yes: pay back all but one, with `momopay payouts refund`" if entry.paid_twice else None,
            "Refund of": output.text(entry.refund_of) or None,
            "Attempts": entry.attempts,
            "First used": entry.created_at,
            "Sent": entry.sent_at,
            "Ended": entry.ended_at,
            "Released": entry.released_at and f"{moment(entry.released_at)} by {output.text(entry.released_by) or '?'}",
            "Metadata": None if entry.metadata is None else output.text(json.dumps(entry.metadata)),
        }
    )


def as_document(entry: momopay.JournalEntry) -> dict[str, object]:
    """Return an entry for JSON, without what only the library needs."""
    return {**entry.model_dump(exclude={"body_hash", "claim"}), "paid_twice": entry.paid_twice}


@app.command(cls=Command)
def backup(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where nothing is yet.")],
    journal: JournalAt,
    account: JournalAccount = "default",
    as_json: Json = False,
) -> None:
    """Copy the whole journal into a new SQLite file, while others write to it.

    Only its owner may read the file. It has all accounts, and whole phones. Overwrites nothing.

    Examples:
        momopay journal backup backup-2026-11-30.db --journal shop.db
    """
    with open_journal(journal, account) as opened:
        folder = path.absolute().parent
        # `is_dir` raises in a folder that may not be entered.
        if not (os.access(folder, os.W_OK) and folder.is_dir()):
            problem = f"FILE: there is no folder {plain(folder)} that can be written to"
            raise CommandError(problem, remedy="create it, or give another FILE")
        opened.backup(path)
    Output(as_json).result({"file": str(path)}, f"Copied to {plain(path)}")


@app.command(cls=Command)
def anonymise(
    before: Annotated[str, typer.Option(metavar="DATE", help="What ended before this.")],
    journal: JournalAt,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    account: JournalAccount = "default",
    _utc: Utc = False,
    as_json: Json = False,
) -> None:
    """Remove phones and metadata of all that ended before a date. It cannot be undone.

    With MOMOPAY_ANONYMISE_SECRET in the environment, each phone is replaced by a hash that is keyed with it. What is
    open or in doubt stays whole. References stay used, so nothing is paid again.

    Examples:
        momopay journal anonymise --before 2025-11-30 --journal shop.db
    """
    when = moment_of(before, "--before")
    secret = os.environ.get(_SECRET) or None
    with open_journal(journal, account) as opened:
        what = "replaced by keyed hashes" if secret else "removed"
        if not yes:
            if not is_interactive():
                raise CommandError("nobody is there to answer", remedy="give --yes; nothing was changed")
            question = f"Phones and metadata of what ended before {moment(when)} will be {what} for ever. Go on?"
            if not typer.confirm(question, err=True):
                raise CommandError("not confirmed, nothing was changed", remedy="", code=ExitCode.REFUSED)
        changed = opened.anonymise(before=when, secret=secret)
    Output(as_json).result({"changed": changed}, f"{changed} entries changed: phones {what}, metadata removed")


@app.command(cls=Command)
def check(journal: JournalAt, account: JournalAccount = "default", as_json: Json = False) -> None:
    """Check the whole journal: the file, what it belongs to, and what needs a person.

    Exits with 1 if something does: a payment in doubt, or an order that was paid twice and not paid back.

    Examples:
        momopay journal check --journal shop.db
    """
    output = Output(as_json)
    with open_journal(journal, account) as opened:
        found = opened.check()
    counts = {f"{kind} {state}": count for (kind, state), count in sorted(found.counts.items())}
    document = {**asdict(found), "counts": counts, "needs_attention": found.needs_attention}
    bound = f"{found.mode} keys of {found.host}" if found.mode else "nothing yet"
    output.result(
        document,
        fields(
            {
                "Account": plain(found.account),
                "Belongs to": bound + ("" if found.tenant_id is None else f", tenant {plain(found.tenant_id)}"),
                "Version": found.version,
                **counts,
                "Not settled": found.not_settled,
                "In doubt": "\n".join(map(output.text, found.unresolved)) or "nothing",
                "Paid twice": "\n".join(map(output.text, found.paid_twice)) or "nothing",
            }
        ),
    )
    if found.unresolved:
        output.note("What to do: `momopay payouts status --look` searches for what is in doubt")
    if found.paid_twice:
        output.note("What to do: `momopay payouts refund REFERENCE` pays back what was paid twice")
    raise typer.Exit(ExitCode.REFUSED if found.needs_attention else ExitCode.OK)
