"""What the service does where its description leaves it open, asked from a terminal or a nightly job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer
from rich.table import Table
from rich.text import Text

from momopay.cli.credentials import api_key, open_client
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import BaseUrl, Json
from momopay.cli.output import Output, plain, table
from momopay.probe import ROWS, Change, Cost, Finding, Profile
from momopay.probe import probe as ask

_COSTS = {
    Cost.READS: "nothing in the account shows it",
    Cost.WRITE: "needs --write",
    Cost.RATE: "needs --rate",
    Cost.SPEND: "needs --spend",
    Cost.OUTSIDE: "cannot be found from outside",
}


def probe(
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write a profile: TOML.")] = None,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="Compare with an earlier profile.")
    ] = None,
    base_url: BaseUrl = None,
    as_json: Json = False,
) -> None:
    """Find out what the service does where its description leaves it open.

    Only reads, about 30 of the 60 requests a minute. With --against, exits with 1 if something has changed, and names
    it; what one of the two does not know is no change. `momopay sandbox --profile FILE` behaves as the file says.
    """
    output = Output(as_json)
    before = None if against is None else Profile.load(against)
    _check_writable(out)
    with open_client(base_url, key=api_key()) as client:
        profile = ask(client)
    if out is not None:
        profile.save(out)
    if before is not None and before.host != profile.host:
        output.note(f"The earlier profile is of another host, {plain(before.host)}.")
    changes = [] if before is None else profile.changes_since(before)
    missed = [] if before is None else profile.not_compared(before)
    _show(output, profile, before, changes, missed)
    if before is not None and not any(each.is_known for each in profile.findings.values()):
        raise CommandError(
            "the service answered nothing that could be compared",
            remedy="`momopay doctor` shows how far a request gets",
            code=ExitCode.TRY_LATER,
        )
    raise typer.Exit(ExitCode.REFUSED if changes else ExitCode.OK)


def _check_writable(out: Path | None) -> None:
    # Before the first request: a minute of reads must not end in a missing folder.
    if out is not None and not out.absolute().parent.is_dir():
        raise CommandError(f"there is no folder {out.absolute().parent}", remedy="check --out")


def _show(output: Output, profile: Profile, before: Profile | None, changes: list[Change], missed: list[str]) -> None:
    document: dict[str, object] = {
        "switches": profile.switches,
        "facts": profile.facts,
        "evidence": {
            name: {"sentence": each.sentence, "request_ids": each.request_ids}
            for name, each in profile.findings.items()
        },
    }
    if before is None:
        output.result(document, *_tables(profile))
        return
    document |= {
        "changes": [{"name": each.name, "before": each.before, "now": each.now} for each in changes],
        "not_compared": missed,
    }
    shown: list[object] = []
    if changes:
        rows = [(each.name, _text(each.before), Text(_text(each.now), "bold red")) for each in changes]
        shown.append(_named(table(("Changed", "Before", "Now"), rows)))
    else:
        shown.append("Nothing has changed.")
    if missed:
        shown.append(f"Not compared, because this run could not tell: {', '.join(map(plain, missed))}.")
    output.result(document, *shown)


def _tables(profile: Profile) -> list[object]:
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
            shown.append(Text.assemble((f"Unknown ({_COSTS[cost]}): ", "bold"), ", ".join(unknown)))
    return shown


def _named(made: Table) -> Table:
    made.columns[0].no_wrap = True  # the name is what a script searches for
    return made


def _seen(finding: Finding) -> Text:
    return Text(_text(finding.value), "green" if finding.is_known else "dim")


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return plain(", ".join(map(str, cast("list[object]", value)))) or "none"
        case _:
            return plain(value)
