"""``momopay probe``: finds out what the service does where its description leaves it open."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table
from rich.text import Text
from typer import Option

import momopay
from momopay._core.config import Account
from momopay._redaction import key_mode
from momopay.cli.command import on_signals
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import (
    Confirmation,
    ConfirmLive,
    JournalOptions,
    ServiceOptions,
    api_key,
    check_writable,
    file_option,
    flag,
    is_interactive,
    kes_option,
    whole_phone,
)
from momopay.cli.output import Columns, Output, kes, plain

if TYPE_CHECKING:
    from momopay.probe import Change, Profile, Spend


_PAYOUT_TWICE = 20  # KES


def probe(
    options: ServiceOptions,
    out: Annotated[Path | None, Option(metavar="FILE", help="Write a profile: TOML.")] = None,
    against: Annotated[Path | None, file_option("Compare with an earlier profile.")] = None,
    write: Annotated[bool, flag("--write", "Also create, change and delete a channel of its own.")] = False,
    rate: Annotated[bool, flag("--rate", "Also use up a minute's requests, in three to six minutes.")] = False,
    spend: Annotated[
        Decimal | None,
        kes_option("--spend", "1: also send a prompt for KES 1; 2: two; 20: a payout of KES 10, twice; 21, 22: both."),
    ] = None,
    phone: Annotated[
        str | None, Option(metavar="PHONE", callback=whole_phone, help="Whom to prompt and to pay, with --spend.")
    ] = None,
    journal: Annotated[
        str | None,
        Option(
            metavar="FILE|URL",
            help="With --spend: a journal of its own, by default in your settings. MOMOPAY_JOURNAL is not used, because"
            " your application would handle the end of a payment that it does not know.",
        ),
    ] = None,
    yes: Annotated[bool, flag("--yes", "Do not ask. Before --spend: with a test key only.")] = False,
    confirm_live: ConfirmLive = None,
) -> ExitCode:
    """Find out what the service does where its description leaves it open.

    By default it only reads: about 20 of the 60 requests a minute. With --against, exits with 1 if something is
    answered in another way, and names it; what one of the two does not know is no change. What was found is written
    after each step. `momopay sandbox --profile FILE` behaves as the file says. With a live key, it asks before --write
    and --rate; before --spend it always asks. With --spend 20, the payout is sent again with its Idempotency-Key, at
    once and after 15 minutes: KES 10 are paid, or KES 20 if the service does not honour the key for so long.

    Examples:
        momopay probe --out service.toml
        momopay probe --write --rate --spend 1 --phone 0712345678 --out service.toml
        momopay probe --against service.toml
    """
    # Loads TOML and HTTP, which `momopay --help` does not need.
    from momopay.probe import Profile
    from momopay.probe import probe as ask

    output = options.output
    before = None if against is None else Profile.load(against)
    check_writable(out, "--out", against, None if journal is None else Path(journal))
    _check_options(spend, phone)
    key = api_key()
    with (
        options.client(key=key) as client,
        ExitStack() as stack,
        on_signals(_terminate, signal.SIGTERM),
    ):
        if (write or rate) and key_mode(key) != "test":
            _agree(write=write, rate=rate, yes=yes)
        spending = None
        if spend is not None and phone is not None:
            spending = _spend(stack, key, client, spend, phone, journal, yes=yes, confirm_live=confirm_live)
        found: list[Profile] = []

        def save(profile: Profile) -> None:
            found.append(profile)
            if out is not None:
                profile.save(out)

        try:
            ask(client, write=write, rate=rate, spend=spending, note=lambda text: output.note(plain(text)), save=save)
        finally:
            # Also after an error, such as a full disk, or Ctrl-C: the findings so far may have cost a shilling.
            changes = _show(output, found[-1], before) if found else []
    if before is not None and not found[-1].compared(before):
        raise CommandError(
            "the service answered nothing that could be compared",
            remedy="`momopay doctor` shows how far a request gets",
            code=ExitCode.TRY_LATER,
        )
    return ExitCode.REFUSED if changes else ExitCode.OK


def _check_options(spend: Decimal | None, phone: str | None) -> None:
    """Refuse what cannot work before the first request."""
    if (spend is None) != (phone is None):
        raise CommandError("--spend and --phone go together", remedy="give both, such as --spend 1 --phone 07...")
    if spend is not None and spend not in {1, 2, 20, 21, 22}:
        remedy = "give 1 for one prompt, 2 for two, 20 for a payout, or 21 or 22 for both"
        raise CommandError(f"--spend {spend} is none of 1, 2, 20, 21 and 22", remedy=remedy)


def _agree(*, write: bool, rate: bool, yes: bool) -> None:
    wanted = {"create and delete a channel": write, "use up a minute's requests": rate}
    what = " and ".join(text for text, is_wanted in wanted.items() if is_wanted)
    Output(as_json=False).note(f"This is a live key: the probe will {what}.")
    if yes or (is_interactive() and typer.confirm("Go on?", err=True)):
        return
    raise CommandError("not confirmed, nothing was sent", remedy="answer y, or give --yes", code=ExitCode.REFUSED)


def _spend(
    stack: ExitStack,
    key: str,
    client: momopay.Client,
    spend: Decimal,
    phone: str,
    journal: str | None,
    *,
    yes: bool,
    confirm_live: Decimal | None,
) -> Spend:
    from momopay.probe import Spend

    confirmation = Confirmation(key, may_move=spend, yes=yes, confirm_live=confirm_live)
    prompts = ("", "one prompt", "up to two prompts")[int(spend) % 10]
    payout = "a payout of KES 10, again with its key" if spend >= _PAYOUT_TWICE else ""
    what = " and ".join(filter(None, (prompts, payout)))
    confirmation.ask(f"Send {what}, for at most KES {kes(spend)} in all, and the service's fees?", to_type="yes")
    if journal is None:
        # One for each key and address, so that a prompt of unknown outcome is found again from any folder.
        name = Account(key, client.base_url).hash[:16]
        path = Path(typer.get_app_dir("momopay")) / f"probe-{name}.db"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = str(path)
    opened = stack.enter_context(JournalOptions(journal=journal).open_journal(create=True))
    return Spend(spend, phone, opened)


def _terminate(number: int, _frame: FrameType | None) -> None:
    """Exit by an exception, as Ctrl-C does, so that the probe deletes the channel that it created."""
    typer.echo("Terminated.", err=True)
    sys.exit(128 + number)


def _show(output: Output, profile: Profile, before: Profile | None) -> list[Change]:
    """Show a profile, or what has changed since an earlier one; return the changes."""
    document: dict[str, object] = {
        "switches": profile.switches,
        "facts": profile.facts,
        "evidence": {
            name: {"sentence": each.sentence, "request_ids": each.request_ids, "unnamed": each.unnamed}
            for name, each in profile.findings.items()
        },
    }
    unusable = [Text(f"momopay cannot use {plain(each)}", "bold red") for each in _unusable(profile)]
    if before is None:
        output.result(document, *unusable, *_tables(output, profile))
        return []
    if before.about["host"] != profile.about["host"]:
        output.note(f"The earlier profile is of another host, {plain(before.about['host'])}.")
    changes, missed = profile.changes_since(before), profile.not_compared(before)
    document |= {
        "changes": [{"name": each.name, "before": each.before, "now": each.now} for each in changes],
        "not_compared": missed,
    }
    shown: list[object] = [*unusable, "Nothing has changed."]
    if changes:
        rows = [
            {"name": each.name, "before": _text(each.before), "now": Text(_text(each.now), "bold red")}
            for each in changes
        ]
        shown = [*unusable, _table(output, rows, {"Changed": "name", "Before": "before", "Now": "now"})]
    if missed:
        shown.append(f"Not compared, because this run could not tell: {', '.join(map(plain, missed))}.")
    output.result(document, *shown)
    return changes


def _unusable(profile: Profile) -> list[str]:
    found = profile.findings["unusable"].seen
    return found if isinstance(found, list) else []


def _tables(output: Output, profile: Profile) -> list[object]:
    found = profile.findings.items()
    rows = [{"name": name, "seen": _text(each.seen)} for name, each in found if each.seen is not None]
    unknown = ", ".join(name for name, each in found if each.seen is None)
    why = f"Unknown: {unknown}. With --out, the file says for each what would show it, and for the others what did."
    return [_table(output, rows, {"Found": "name", "Seen": "seen"}), "", why]


def _table(output: Output, rows: Iterable[object], columns: Columns) -> Table:
    made = output.table(rows, columns)
    made.columns[0].no_wrap = True  # the name is what a script searches for
    return made


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return plain(", ".join(map(str, cast("list[object]", value)))) or "none"
        case _:
            return plain(value)
