"""What the service does where its description leaves it open, asked from a terminal or a nightly job."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table
from rich.text import Text

import momopay
from momopay._core.config import Account, hash_of
from momopay.cli.credentials import api_key, open_client, open_journal
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, ConfirmLive, Json, amount
from momopay.cli.output import Output, kes, plain, table
from momopay.cli.prompts import Confirmation, is_interactive

if TYPE_CHECKING:
    from momopay.probe import Change, Finding, Profile, Spend

_TERMINATED = 128 + signal.SIGTERM
_COSTS = {
    "READS": "no answer showed it",
    "WRITE": "needs --write",
    "RATE": "needs --rate",
    "SPEND": "needs --spend",
    "OUTSIDE": "cannot be found from outside",
}


def probe(
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write a profile: TOML.")] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="FILE", exists=True, dir_okay=False, help="Compare with an earlier profile."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Also create, change and delete a channel of its own.")
    ] = False,
    rate: Annotated[
        bool, typer.Option("--rate", help="Also use up a minute's requests, in three to six minutes.")
    ] = False,
    spend: Annotated[
        Decimal | None,
        typer.Option("--spend", metavar="KES", parser=amount, help="Also send a prompt for KES 1; with 2, two."),
    ] = None,
    phone: Annotated[str | None, typer.Option(metavar="PHONE", help="Whom to prompt, with --spend.")] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --spend: where the prompt is recorded; by default in your settings."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Before --spend: with a test key only.")] = False,
    confirm_live: ConfirmLive = None,
    base_url: BaseUrl = None,
    as_json: Json = False,
) -> None:
    """Find out what the service does where its description leaves it open.

    By default it only reads: about 40 of the 60 requests a minute. With --against, exits with 1 if something is
    answered in another way, and names it; what one of the two does not know is no change. What was found is written
    after each step. `momopay sandbox --profile FILE` behaves as the file says. With a live key, it asks before --write
    and --rate; before --spend it always asks.

    Examples:
        momopay probe --out service.toml
        momopay probe --write --rate --spend 1 --phone 0712345678 --out service.toml
        momopay probe --against service.toml
    """
    # Reading and writing TOML and HTTP: `momopay --help` waits for neither.
    from momopay.probe import Profile
    from momopay.probe import probe as ask

    output = Output(as_json)
    before = None if against is None else Profile.load(against)
    _check_options(out, spend, phone)
    key = api_key()
    with open_client(base_url, key=key) as client, ExitStack() as stack, _interrupted_by_sigterm():
        if (write or rate) and not key.startswith("pk_test_"):
            _agree(write=write, rate=rate, yes=yes)
        spending = None
        if spend is not None and phone is not None:
            spending = _spend(stack, key, client, spend, phone, journal, yes=yes, confirm_live=confirm_live)
        found: list[Profile] = []
        problems: list[OSError | None] = []

        def save(profile: Profile) -> None:
            found.append(profile)
            problems.append(_save(profile, out))

        try:
            ask(client, write=write, rate=rate, spend=spending, note=lambda text: output.note(plain(text)), save=save)
        finally:
            # Also after an error or Ctrl-C: it may have cost a shilling.
            changes = _show(output, found[-1], before) if found else []
    if problems[-1] is not None:
        remedy = "what was found is above; free the disk or name another file, then run the command again"
        problem = f"--out {out} cannot be written: {problems[-1]}"
        raise CommandError(problem, remedy=remedy, code=ExitCode.CONFIGURATION)
    if before is not None and not found[-1].compared(before):
        raise CommandError(
            "the service answered nothing that could be compared",
            remedy="`momopay doctor` shows how far a request gets",
            code=ExitCode.TRY_LATER,
        )
    raise typer.Exit(ExitCode.REFUSED if changes else ExitCode.OK)


def _check_options(out: Path | None, spend: Decimal | None, phone: str | None) -> None:
    """Refuse what cannot work before the first request."""
    remedy = "name a file in a folder of yours"
    try:
        if out is not None and not out.absolute().parent.is_dir():
            raise CommandError(f"there is no folder {out.absolute().parent}", remedy="check --out")
        if out is not None and (out.is_dir() or not os.access(out.absolute().parent, os.W_OK)):
            raise CommandError(f"--out {out} cannot be written", remedy=remedy)
    except OSError as error:  # such as a folder that may not be entered
        raise CommandError(f"--out {out} cannot be written: {error.strerror}", remedy=remedy) from error
    if (spend is None) != (phone is None):
        raise CommandError("--spend and --phone go together", remedy="give both, such as --spend 1 --phone 07...")
    if spend is not None and spend not in {1, 2}:
        raise CommandError(f"--spend {spend} is neither 1 nor 2", remedy="give 1 for one prompt, 2 for two")
    try:
        momopay.normalise_phone(phone or "0712345678")
    except ValueError as error:
        raise CommandError(f"--phone {error}", remedy="give it as 07..., 01..., +254... or 254...") from None


def _save(profile: Profile, out: Path | None) -> OSError | None:
    """Write the profile; return the error if that failed."""
    try:
        if out is not None:
            profile.save(out)
    except OSError as error:
        return error
    return None


def _agree(*, write: bool, rate: bool, yes: bool) -> None:
    output = Output(as_json=False)
    what = " and ".join(
        [*(["create and delete a channel"] if write else []), *(["use up a minute's requests"] if rate else [])]
    )
    output.note(f"This is a live key: the probe will {what}.")
    if yes or (is_interactive() and typer.confirm("Go on?", err=True)):
        return
    raise CommandError("not confirmed, nothing was sent", remedy="answer y, or give --yes", code=ExitCode.REFUSED)


def _spend(
    stack: ExitStack,
    key: str,
    client: momopay.Client,
    spend: Decimal,
    phone: str,
    journal: Path | None,
    *,
    yes: bool,
    confirm_live: Decimal | None,
) -> Spend:
    from momopay.probe import Spend

    confirmation = Confirmation(key, may_move=spend, yes=yes, confirm_live=confirm_live)
    prompts = "one prompt" if spend == 1 else "up to two prompts"
    confirmation.ask(f"Send {prompts}, for KES {kes(spend)} in all?", to_type="yes")
    if journal is None:
        # One for each key and address, so that a prompt of unknown outcome is found again wherever the command is run.
        name = hash_of(Account(key, client.base_url))[:16]
        journal = Path(typer.get_app_dir("momopay")) / f"probe-{name}.db"
        journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = stack.enter_context(open_journal(str(journal), "default", create=True))
    return Spend(spend, phone, opened)


@contextmanager
def _interrupted_by_sigterm() -> Generator[None]:
    """Have SIGTERM end the command as Ctrl-C does, so that what it created is deleted."""
    terminated: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        terminated.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if terminated:
            sys.stderr.write("Terminated.\n")
            raise typer.Exit(_TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(output: Output, profile: Profile, before: Profile | None) -> list[Change]:
    """Show a profile, or what has changed since an earlier one, and return the changes."""
    document: dict[str, object] = {
        "switches": profile.switches,
        "facts": profile.facts,
        "evidence": {
            name: {"sentence": each.sentence, "request_ids": each.request_ids, "unnamed": each.unnamed}
            for name, each in profile.findings.items()
        },
    }
    if before is None:
        output.result(document, *_tables(profile))
        return []
    if before.about["host"] != profile.about["host"]:
        output.note(f"The earlier profile is of another host, {plain(before.about['host'])}.")
    changes, missed = profile.changes_since(before), profile.not_compared(before)
    document |= {
        "changes": [{"name": each.name, "before": each.before, "now": each.now} for each in changes],
        "not_compared": missed,
    }
    shown: list[object] = ["Nothing has changed."]
    if changes:
        rows = [(each.name, _text(each.before), Text(_text(each.now), "bold red")) for each in changes]
        shown = [_named(table(("Changed", "Before", "Now"), rows))]
    if missed:
        shown.append(f"Not compared, because this run could not tell: {', '.join(map(plain, missed))}.")
    output.result(document, *shown)
    return changes


def _tables(profile: Profile) -> list[object]:
    from momopay.probe import ROWS, Cost

    switches = [(name, each) for name, each in profile.findings.items() if name in profile.switches]
    facts = [(name, each) for name, each in profile.findings.items() if name in profile.facts and each.is_known]
    rows = [(name, _seen(each), each.sentence) for name, each in switches]
    shown: list[object] = [
        _named(table(("Switch of the sandbox", "Seen", "Evidence"), rows)),
        "",
        _named(table(("Fact", "Seen"), [(name, _text(each.value)) for name, each in facts])),
        "",
    ]
    for cost in Cost:
        unknown = [row.name for row in ROWS if row.cost is cost and not profile.findings[row.name].is_known]
        if unknown:
            option = cost.value.removeprefix("--")
            why = _COSTS["READS" if option in profile.about["asked"] else cost.name]
            shown.append(Text.assemble((f"Unknown ({why}): ", "bold"), ", ".join(unknown)))
    return shown


def _named(made: Table) -> Table:
    made.columns[0].no_wrap = True  # the name is what a script searches for
    return made


def _seen(finding: Finding) -> Text:
    return Text(_text(finding.seen or finding.value), "green" if finding.is_known else "dim")


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return plain(", ".join(map(str, cast("list[object]", value)))) or "none"
        case _:
            return plain(value)
