"""``momopay report``: what the journal collected, paid out, refunded and failed each day, as one HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from typer import Option

import momopay
from momopay.cli.options import JournalOptions, check_writable
from momopay.cli.output import kes, moment, plain, private_file, zone

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --page: #fff; --line: #d5dae0; --faint: #5a646e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --page: #14171a; --line: #363d44; --faint: #a5afb9; } }
html { color: var(--text); background: var(--page); }
body { max-width: 70rem; margin: 0 auto; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; }
svg { display: block; width: 100%; } .wide { display: none; }
@media (min-width: 48rem) { .wide { display: block; } .narrow { display: none; } }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
small { color: var(--faint); }
"""


def report(
    options: JournalOptions,
    html: Annotated[Path, Option("--html", metavar="FILE", help="Where to write the page.")],
    days: Annotated[int, Option(metavar="N", min=1, max=366, help="Today and the days before it.")] = 30,
) -> None:
    """Write a page on what was collected, paid out, refunded, reversed and failed each day.

    The page is one file, for any browser; only its owner may read it. Needs no key. The chart has the success rate that
    the service judges: below 30% of the last 100 prompts, it refuses new ones for half an hour. With --json, the same
    numbers.

    Examples:
        momopay report --html report.html --journal payments.db
    """
    check_writable(html, "--html")
    with options.open_journal() as journal:
        found = journal.activity(days, zone=zone())
    sums = _sums(found)
    with private_file(html) as file:
        file.write(_page(found, sums))
    document = {"file": str(html), "days": list(map(asdict, found))}
    rows = [{"name": name, "rows": each.count, "total": each.amount} for name, each in sums.items()]
    shown = options.output.table(rows, {"": "name", "Rows": "rows", "KES": "total"}, f"The last {days} days")
    options.output.result(document, shown, f"Written to {plain(html)}")


def _sums(days: Sequence[momopay.types.ActivityDay]) -> dict[str, momopay.types.ActivitySum]:
    """Return the sums of all days, by their headings."""
    from momopay.journal.activity import ActivitySum

    names = ("collected", "paid_out", "refunded", "reversed", "failed")
    return {
        name.replace("_", " ").capitalize(): sum((getattr(day, name) for day in days), ActivitySum()) for name in names
    }


def _page(days: Sequence[momopay.types.ActivityDay], sums: Mapping[str, momopay.types.ActivitySum]) -> str:
    """Return the page. It has no text from outside."""
    from momopay.journal.activity import JUDGED, LEAST_RATE, chart

    title = f"Payments, {days[0].date:%d %b %Y} to {days[-1].date:%d %b %Y}"
    rows = [(name, kes(each.amount), f"{each.count:,}") for name, each in sums.items()]
    rate = days[-1].success_rate
    last = "No prompt has ended" if rate is None else f"Of the last {days[-1].judged} prompts, {rate:.0%} were paid"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>{_STYLE}</style></head><body>
<h1>{title}</h1>
<div class="narrow">{chart(days, width=340)}</div><div class="wide">{chart(days, width=1000)}</div>
<p>{last}. If fewer than {LEAST_RATE:.0%} of the last {JUDGED} were paid, the service refuses prompts for half an hour.
It also counts those of other programs. Failed are prompts that were not paid: another one of the same order may have
been. Reversed are payouts and refunds whose money came back.</p>
<table>{_row(("Sum", "KES", "Transactions"), "th")}{"".join(_row(cells, "td") for cells in rows)}</table>
<p><small>Made at {moment(datetime.now(UTC))}.</small></p>
</body></html>
"""


def _row(cells: Iterable[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
