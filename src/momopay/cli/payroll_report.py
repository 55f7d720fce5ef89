"""Shows the faults, the plan, the progress and the end of a payroll; writes its report, a CSV file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

import momopay
from momopay.cli.exit_codes import CommandError, ExitCode, remedy_of
from momopay.cli.output import Output, kes, local, plain, private_file, status, stderr
from momopay.cli.payroll import NOT_BEGUN, PayrollRun, Plan, RowOutcome
from momopay.cli.payroll_file import people, possible_duplicates, total
from momopay.spreadsheets.faults import FaultyFileError, FileFault
from momopay.spreadsheets.writer import write_csv

if TYPE_CHECKING:
    from rich.progress import Progress

    from momopay.spreadsheets.rows import PayoutFile, PayoutRow

_LARGEST_SHOWN = 5
_REASON_WIDTH = 120
_BAR_FROM = 80  # columns; the numbers matter more
_BAR_WIDTH = 6  # makes the whole progress bar fit on 80 columns, even for 10,000 rows and KES 100,000,000
_PAYOUTS_A_MINUTE: Final = 58  # what a RateBudget uses of the 60 requests that the service allows
RELEASE_HINT = "look into the account console; only if it was certainly not paid, `momopay payouts release REFERENCE`"
# By state; members of JournalState are strings.
_TO_DO: Final = {
    "UNKNOWN": f"Run again: that searches for the payout first. If it stays so, {RELEASE_HINT}, then run again.",
    "SENDING": "Another process is sending it: run again when that has ended.",
    "REFUSED": "Fix the reason, then run again.",
    "NOT_SENT": "Run again.",
    NOT_BEGUN: "Run again.",
    "REVERSED": "The money came back. Pay it under a new reference, once the reason is fixed.",
    "FAILED": "The money is not back yet: run again with --wait. Then pay it under a new reference.",
    "CANCELLED": "It was not paid. Pay it under a new reference.",
    "EXPIRED": "Whether it was paid is not specified: pay it under a new reference only once it is REVERSED.",
}
_ROWS: Final = {"Line": "line", "Reference": "reference", "Phone": "phone", "KES": "amount"}
_FAULTS: Final = {
    "Line": "line",
    "Reference": "reference",
    "Column": "column",
    "Value": "value",
    "Problem": "problem",
    "What to do": "remedy",
}
_MOST_FAULTS: Final = 20
# What the exit status of a run means; with --wait, 0 means more.
_MEANINGS: Final[dict[int, str]] = {
    ExitCode.OK: "the service accepted every row",
    ExitCode.REFUSED: "a payout failed or was reversed",
    ExitCode.UNKNOWN: "rows are unresolved, and may have been paid",
    ExitCode.PARTIAL: "rows were not paid",
    ExitCode.TRY_LATER: "rows had not settled in time",
}
_FINE: Final = frozenset({"ACCEPTED", "SUCCESS"})  # rows that need no action


def show_faults(output: Output, error: FaultyFileError, option: str = "") -> CommandError:
    """Show what is wrong with a file; return the error with which the command ends, with the name of the option."""
    documents = [{**vars(fault), "value": _shown_value(output, fault)} for fault in error.faults]
    shown: list[object] = [output.table(documents[:_MOST_FAULTS], _FAULTS)]
    if len(documents) > _MOST_FAULTS:
        shown.append(f"And {len(documents) - _MOST_FAULTS:,} more faults: --json shows all of them.")
    output.result({"event": "faults", "faults": documents}, *shown)
    return CommandError(f"{option}{error.summary}", remedy=error.remedy)


def _shown_value(output: Output, fault: FileFault) -> str:
    return fault.value if output.show_phones else output.text(fault.masked_value)


def show_plan(output: Output, file: PayoutFile, plan: Plan, wallet: Decimal | None) -> None:
    """Show what would be paid. `wallet` is the balance of the service wallet, None if it was not read."""
    warnings = [
        f"lines {', '.join(map(str, lines))} pay the same amount to the same phone"
        for lines in possible_duplicates(file.rows)
    ]
    warnings += file.notes
    if file.ignored:
        warnings.append(f"columns that are not used: {', '.join(name or '(no name)' for name in file.ignored)}")
    document = {
        "event": "plan",
        "name": file.name,
        "sha256": file.sha256,
        "file": _count(file.rows),
        "to_pay": _count(plan.to_pay),
        "accepted_before": _count(plan.accepted),
        "unresolved": _count(plan.unresolved),
        "service_wallet": wallet,
        "warnings": warnings,
    }
    sums: list[tuple[object, Sequence[PayoutRow]]] = [
        ("In the file", file.rows),
        ("Accepted before", plan.accepted),
        (Text("Unresolved, not sent again", "bold red"), plan.unresolved),
        (Text("To pay now", "bold"), plan.to_pay),
    ]
    shown: list[object] = [f"File     {output.text(file.name)}: {people(file.rows)}", f"SHA-256  {file.sha256}", ""]
    shown += [_sums(output, [(label, rows) for label, rows in sums if rows or rows is sums[-1][1]]), ""]
    if plan.to_pay:
        # A mistyped amount does most harm, and is easiest to see, among the largest.
        largest = sorted(plan.to_pay, key=lambda row: row.amount, reverse=True)[:_LARGEST_SHOWN]
        shown += [output.table(largest, _ROWS, "The largest"), "", *_costs(plan, wallet)]
    elif len(plan.accepted) == len(file.rows):
        shown.append(f"Nothing to pay: all {len(file.rows)} were accepted before.")
    shown += [Text.assemble(("Warning: ", "bold yellow"), plain(warning)) for warning in warnings]
    output.result(document, *shown)


def _sums(
    output: Output, rows_by_label: Iterable[tuple[object, Sequence[PayoutRow]]], title: str | None = None
) -> Table:
    counts = [{"label": label, **_count(rows)} for label, rows in rows_by_label]
    return output.table(counts, {"": "label", "Rows": "rows", "KES": "total"}, title)


def _costs(plan: Plan, wallet: Decimal | None) -> Iterator[str]:
    if wallet is None:
        return
    if minutes := len(plan.to_pay) // _PAYOUTS_A_MINUTE:
        yield f"Pace: 60 requests a minute, so this takes about {minutes} min"
    yield f"B2C wallet: must hold KES {kes(total(plan.to_pay))}; its balance cannot be read over the API"
    yield f"Service wallet: KES {kes(wallet)}, from which a fee is taken for each payout"


def show_row(output: Output, event: str, outcome: RowOutcome) -> None:
    """Show a row that is done or settled, with --json; people see the progress bar instead."""
    if output.as_json:
        output.result({"event": event, **_as_document(outcome)})


def progress_bar(output: Output) -> Progress:
    """Return a bar that shows the rows, the amounts that were accepted, and the time that is left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            # A burst of payments says nothing about the pace of the rest, which the rate budget sets.
            paced = task.remaining // _PAYOUTS_A_MINUTE * 60 if task.description == "Paying" and task.remaining else 0
            seconds = max(task.time_remaining or 0, paced)
            known = task.time_remaining is not None or paced
            return Text(f"{timedelta(seconds=int(seconds))} left" if known else "-:--:-- left")

    console = stderr()
    is_hidden = output.as_json or not console.is_terminal
    amounts = TextColumn("KES {task.fields[paid]:,} of {task.fields[due]:,}")
    bar = [BarColumn(bar_width=_BAR_WIDTH)] if console.width >= _BAR_FROM else []
    columns = (*bar, MofNCompleteColumn(), amounts, Left())
    return Progress(TextColumn("{task.description}"), *columns, console=console, disable=is_hidden, transient=True)


@contextmanager
def shown_task(bar: Progress, what: str, rows: list[PayoutRow]) -> Generator[Callable[[RowOutcome], None]]:
    """Show the bar for these rows; yield a function to call with each outcome."""
    paid = Decimal(0)

    def advance(outcome: RowOutcome) -> None:
        nonlocal paid
        if outcome.state == momopay.JournalState.ACCEPTED and not outcome.has_failed:
            paid += outcome.row.amount
        bar.update(task, advance=1, paid=paid)

    task = bar.add_task(what, total=len(rows), paid=paid, due=total(rows))
    with bar:
        yield advance
    bar.remove_task(task)


def show_end(output: Output, run: PayrollRun, plan: Plan, code: int, *, followed: bool) -> None:
    """Show what happened to all rows, what to do about those that were not paid, and what the exit status means."""
    outcomes = list(run.outcomes.values())
    rows_by_state: dict[str, list[PayoutRow]] = {}
    rows_by_end: dict[str, list[PayoutRow]] = {}
    for each in outcomes:
        rows_by_state.setdefault(each.state, []).append(each.row)
        rows_by_end.setdefault(each.last, []).append(each.row)
    left = [each for each in outcomes if each.last not in _FINE and each.state != NOT_BEGUN]
    stopped = run.stopped_by
    document = {
        "event": "end",
        "rows": {state.lower(): _count(rows) for state, rows in rows_by_state.items()},
        "ends": {state.lower(): _count(rows) for state, rows in rows_by_end.items()},
        "left": list(map(_as_document, left)),
        "stopped_by": None if stopped is None else {"error": type(stopped).__name__, "message": str(stopped)},
        "interrupted": bool(run.signals),
        "exit_code": code,
    }
    shown: list[object] = []
    if len(plan.accepted) < len(outcomes) or "ACCEPTED" not in rows_by_end or left:
        title = "Interrupted" if run.signals else "Stopped" if stopped is not None else "Done"
        shown += [_sums(output, [(status(state), rows) for state, rows in rows_by_end.items()], title), ""]
    if left:
        shown += [_left(output, left), ""]
    if stopped is not None:
        shown.append(Text.assemble(("Stopped: ", "bold red"), plain(output.text(str(stopped)))))
        shown.append(Text.assemble(("What to do: ", "bold"), plain(remedy_of(stopped))))
    shown += [Text.assemble(status(state), ": ", _TO_DO[state]) for state in rows_by_end if state in _TO_DO]
    if "ACCEPTED" in rows_by_end:
        shown.append(
            "Accepted is not yet paid: the service may still reverse it. Run the same command with --wait to see how"
            " each one ends."
        )
    meaning = "interrupted; the same command continues" if run.signals else _MEANINGS[code]
    if followed and not code:
        meaning = "every row was paid"
    shown.append(f"Exit status {code}: {meaning}.")
    output.result(document, *shown)


def _left(output: Output, outcomes: list[RowOutcome]) -> Table:
    whys = [_in_short(output, each) if each.has_failed else each.code or _in_short(output, each) for each in outcomes]
    rows = [{**vars(each.row), "state": each.last, "why": why} for each, why in zip(outcomes, whys, strict=True)]
    return output.table(rows, {**_ROWS, "State": "state", "Why": "why"})


def _in_short(output: Output, outcome: RowOutcome) -> str:
    return shorten(output.text(outcome.why), _REASON_WIDTH, placeholder=" ...")


def _as_document(outcome: RowOutcome) -> dict[str, object]:
    return {
        "line": outcome.row.line,
        "reference": outcome.row.reference,
        "phone": outcome.row.phone,
        "amount": outcome.row.amount,
        "state": outcome.state,
        "status": None if outcome.payment is None else outcome.payment.status,
        "transaction_id": outcome.transaction_id,
        "code": outcome.code,
        "message": outcome.why,
    }


def _count(rows: Sequence[PayoutRow]) -> dict[str, int | Decimal]:
    return {"rows": len(rows), "total": total(rows)}


def write_report(output: Output, path: Path, run: PayrollRun) -> None:
    """Write what happened to every row, in any run, to a file that only its owner can read.

    Raises:
        OSError: The file cannot be written.
    """
    rows = [_as_report(output, each, run.entry(each.row)) for each in run.outcomes.values()]
    with private_file(path) as report:
        write_csv(report, rows[0], (each.values() for each in rows))


def _as_report(output: Output, outcome: RowOutcome, entry: momopay.JournalEntry | None) -> dict[str, object]:
    # The journal has what a callback brought, and what an earlier run knew.
    known = {name: getattr(entry, name, None) for name in ("receipt", "fee", "sent_at", "ended_at")}
    return {
        **_as_document(outcome),
        "phone": output.phone(outcome.row.phone),
        "message": _in_short(output, outcome),
        "what_to_do": _TO_DO.get(outcome.last),
        "description": output.text(outcome.row.description),
        "name": outcome.row.name,
        **{
            name: local(each).isoformat(sep=" ", timespec="seconds") if isinstance(each, datetime) else each
            for name, each in known.items()
        },
    }
