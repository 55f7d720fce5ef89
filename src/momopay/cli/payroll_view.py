"""How a payroll is shown: its faults, its plan, its rows and its end; and the report as CSV."""

from __future__ import annotations

import csv
import os
from decimal import Decimal
from pathlib import Path
from textwrap import shorten

from rich.table import Table
from rich.text import Text

from momopay._redaction import redact
from momopay.cli.exit_codes import CommandError, remedy_of
from momopay.cli.output import Output, kes, plain, status, table
from momopay.cli.payroll import Hints, Plan, Result
from momopay.cli.payroll_file import Fault, Row, Salaries, total
from momopay.errors import APIError, MomoPayError
from momopay.journal import JournalState

_LARGEST = 5
_REASON = 120
"""Characters of a reason that a table shows."""
_A_MINUTE = 58
_NOT_BEGUN = "NOT_BEGUN"
_TO_DO = {
    JournalState.UNKNOWN: "Run again: that looks for the payout first. If it stays so, look into the account console;"
    " only if it was surely not paid, `momopay payouts release REFERENCE`, then run again.",
    JournalState.SENDING: "Another process is sending it: run again when that has ended.",
    JournalState.REFUSED: "Mend the reason, then run again.",
    JournalState.NOT_SENT: "Run again.",
    _NOT_BEGUN: "Run again.",
}


def show_faults(output: Output, faults: list[Fault]) -> None:
    """Show what is wrong with a file."""
    if output.as_json:
        output.document({"event": "faults", "faults": [vars(fault) for fault in faults]})
        return
    shown = table("Line", "Column", "Problem", right=("Line",))
    for fault in faults:
        shown.add_row(str(fault.line), plain(fault.column), plain(fault.problem))
    output.people(shown)


def show_plan(output: Output, salaries: Salaries, made: Plan, known: Hints | None) -> None:
    """Show what would be paid, before anybody is asked."""
    accepted, in_doubt = ([row for row, _ in pairs] for pairs in (made.accepted, made.in_doubt))
    warnings = list(_warnings(salaries, made, known))
    if output.as_json:
        output.document(
            {
                "event": "plan",
                "file": _count(salaries.rows),
                "to_pay": _count(made.to_pay),
                "accepted_before": _count(accepted),
                "in_doubt": _count(in_doubt),
                "service_wallet": known and known.available,
                "fees_about": known and known.fees(len(made.to_pay)),
                "warnings": warnings,
            }
        )
        return
    shown = table("", "Rows", "KES", right=("Rows", "KES"))
    shown.add_row("In the file", str(len(salaries.rows)), kes(salaries.total))
    if accepted:
        shown.add_row("Accepted before", str(len(accepted)), kes(total(accepted)))
    if in_doubt:
        shown.add_row(Text("In doubt, not sent again", "bold red"), str(len(in_doubt)), kes(total(in_doubt)))
    shown.add_row("To pay now", str(len(made.to_pay)), kes(total(made.to_pay)), style="bold")
    output.people(shown, "")
    if made.to_pay:
        largest = sorted(made.to_pay, key=lambda row: row.amount, reverse=True)[:_LARGEST]
        some = table("Line", "Reference", "Phone", "KES", right=("Line", "KES"), title="The largest")
        for row in largest:
            some.add_row(str(row.line), output.text(row.reference), output.phone(row.phone), kes(row.amount))
        output.people(some, "")
    elif accepted and len(accepted) == len(salaries.rows):
        output.people(f"Nothing to pay: all {len(accepted)} were accepted before.")
    if known is not None and made.to_pay:
        output.people(*_costs(made, known))
    for warning in warnings:
        output.people(Text.assemble(("Warning: ", "bold yellow"), plain(warning)))


def _costs(made: Plan, known: Hints) -> list[str]:
    due, fees = total(made.to_pay), known.fees(len(made.to_pay))
    about = (
        "unknown: no payout has succeeded yet" if fees is None else f"about KES {kes(fees)}, going by the last payout"
    )
    minutes = len(made.to_pay) // _A_MINUTE
    pace = [f"Pace: 60 requests a minute, so this takes about {minutes} min"] if minutes else []
    return [
        *pace,
        f"B2C wallet: must hold KES {kes(due)}; its balance cannot be read over the API",
        f"Service wallet: KES {kes(known.available)} for fees; the fees are {about}",
    ]


def _warnings(salaries: Salaries, made: Plan, known: Hints | None) -> list[str]:
    found = [f"lines {', '.join(map(str, lines))} pay the same amount to the same phone" for lines in salaries.alike]
    if salaries.ignored:
        found.append(f"columns that mean nothing here: {', '.join(name or '(no name)' for name in salaries.ignored)}")
    fees = None if known is None else known.fees(len(made.to_pay))
    if known is not None and fees is not None and fees > known.available:
        found.append(f"the service wallet may not cover the fees: top it up by KES {kes(fees - known.available)}")
    return found


def show_row(output: Output, result: Result) -> None:
    """Tell a machine of a row as it is done."""
    if output.as_json:
        output.document({"event": "row", **_facts(result)})


def show_end(
    output: Output,
    salaries: Salaries,
    results: dict[str, Result],
    *,
    before: frozenset[str],
    stopped_by: MomoPayError | None,
    interrupted: bool,
    code: int,
) -> None:
    """Show what became of all rows, and what to do about those that were not accepted.

    Args:
        output: Where to show it.
        salaries: The file.
        results: By reference.
        before: The references that were accepted before this run, which moved no money of theirs.
        stopped_by: The error that stopped it, if one did.
        interrupted: Whether a signal did.
        code: The exit status.
    """
    by_state: dict[str, list[Row]] = {}
    for row in salaries.rows:
        by_state.setdefault(_state(row, results), []).append(row)
    left = [row for row in salaries.rows if _state(row, results) not in {JournalState.ACCEPTED, _NOT_BEGUN}]
    if output.as_json:
        output.document(
            {
                "event": "end",
                "rows": {state.lower(): _count(rows) for state, rows in by_state.items()},
                "left": [_facts(results[row.reference]) for row in left],
                "stopped_by": stopped_by and {"error": type(stopped_by).__name__, "message": str(stopped_by)},
                "interrupted": interrupted,
                "exit_code": code,
            }
        )
        return
    if len(before) < len(salaries.rows):
        title = "Interrupted" if interrupted else "Stopped" if stopped_by is not None else "Done"
        output.people(_sums(by_state, before, title), "")
    if left:
        _show_left(output, [results[row.reference] for row in left])
    if stopped_by is not None:
        output.people(Text.assemble(("Stopped: ", "bold red"), output.text(str(stopped_by))))
        output.people(Text.assemble(("What to do: ", "bold"), plain(remedy_of(stopped_by) or "run again")))
    for state in by_state:
        if state in _TO_DO:
            output.people(Text.assemble(status(state), ": ", _TO_DO[state]))
    if set(by_state) == {JournalState.ACCEPTED}:
        output.people("The service has accepted all; `momopay transactions list --type B2C` shows how each one ends.")


def _sums(by_state: dict[str, list[Row]], before: frozenset[str], title: str) -> Table:
    shown = table("", "Rows", "KES", right=("Rows", "KES"), title=title)
    for state, rows in by_state.items():
        if state == JournalState.ACCEPTED:
            parts = {
                "Accepted before": [row for row in rows if row.reference in before],
                "Accepted now": [row for row in rows if row.reference not in before],
            }
        else:
            parts = {state: rows}
        for name, some in parts.items():
            if some:
                shown.add_row(Text(name, status(state).style), str(len(some)), kes(total(some)))
    return shown


def _show_left(output: Output, results: list[Result]) -> None:
    shown = table("Line", "Reference", "Phone", "KES", "State", "Why", right=("Line", "KES"))
    for result in results:
        row = result.row
        phone = output.phone(row.phone)
        shown.add_row(
            str(row.line),
            output.text(row.reference),
            phone,
            kes(row.amount),
            status(result.state),
            _code(result) or _why(output, result),
        )
    output.people(shown, "")


def write_report(output: Output, path: Path, salaries: Salaries, results: dict[str, Result]) -> None:
    """Write what became of every row, readable by its owner alone.

    Raises:
        CommandError: It cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise CommandError(
            f"--report {path.name}: {error.strerror}", remedy="give a file that can be written"
        ) from None
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("line", "reference", "phone", "amount", "state", "transaction_id", "code", "why", "what_to_do")
        )
        for row in salaries.rows:
            state, result = _state(row, results), results.get(row.reference)
            known = (result.transaction_id, _code(result), _why(output, result)) if result else (None, None, None)
            writer.writerow(
                (row.line, row.reference, output.phone(row.phone), row.amount, state, *known, _TO_DO.get(state))
            )


def _state(row: Row, results: dict[str, Result]) -> str:
    result = results.get(row.reference)
    return _NOT_BEGUN if result is None else result.state


def _facts(result: Result) -> dict[str, object]:
    row, error = result.row, result.error
    return {
        "line": row.line,
        "reference": row.reference,
        "phone": row.phone,
        "amount": row.amount,
        "state": result.state,
        "transaction_id": result.transaction_id,
        "code": _code(result),
        "message": None if error is None else str(error),
    }


def _code(result: Result) -> str | None:
    reason = _reason(result)
    return reason.code if isinstance(reason, APIError) else None


def _why(output: Output, result: Result) -> str | None:
    """Give the reason in short."""
    if result.state is JournalState.ACCEPTED:
        return None
    reason = _reason(result)
    told = reason.message if isinstance(reason, APIError) else reason or "not known to have ended"
    return shorten(output.text(redact(str(told))), _REASON, placeholder=" ...")


def _reason(result: Result) -> BaseException | None:
    """Give what an unknown outcome comes from, which differs, where its own words are the same for every row."""
    error = result.error
    return error.__cause__ if error is not None and isinstance(error.__cause__, MomoPayError) else error


def _count(rows: list[Row]) -> dict[str, int | Decimal]:
    return {"rows": len(rows), "total": total(rows)}
