"""What `momopay probe` shows: all that was found, or what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.table import Table
from rich.text import Text

from momopay.cli.output import Output, plain, table

if TYPE_CHECKING:
    from momopay.probe import Change, Finding, Profile

_COSTS = {
    "READS": "no answer showed it",
    "WRITE": "needs --write",
    "RATE": "needs --rate",
    "SPEND": "needs --spend",
    "OUTSIDE": "cannot be found from outside",
}


def show(output: Output, profile: Profile, before: Profile | None) -> list[Change]:
    """Show a profile, or what has changed since an earlier one, and return the changes."""
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
        return []
    if before.host != profile.host:
        output.note(f"The earlier profile is of another host, {plain(before.host)}.")
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
            why = _COSTS["READS" if option in profile.asked else cost.name]
            shown.append(Text.assemble((f"Unknown ({why}): ", "bold"), ", ".join(unknown)))
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
