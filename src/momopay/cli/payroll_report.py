"""What a payroll shows: its faults, its plan, its rows and its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from textwrap import shorten

from rich.table import Table
from rich.text import Text

from momopay.cli.exit_codes import remedy_of
from momopay.cli.output import Output, kes, plain, status, table
from momopay.cli.payroll import Plan, RowOutcome, Wallet
from momopay.cli.payroll_file import Fault, PayrollFile, Row, people, total
from momopay.errors import APIError, MomoPayError

_LARGEST_SHOWN = 5
_REASON_WIDTH = 120
_PAYOUTS_A_MINUTE = 58  # as a RateBudget has it, of the 60 requests that the service allows
# The state of a row that is not in the journal.
NOT_BEGUN = "NOT_BEGUN"
RELEASE_HINT = "look into the account console; only if it was certainly not paid, `momopay payouts release REFERENCE`"
# By state: members of JournalState are their names.
TO_DO = {
    "UNKNOWN": f"Run again: that searches for the payout first. If it stays so, {RELEASE_HINT}, then run again.",
    "SENDING": "Another process is sending it: run again when that has ended.",
    "REFUSED": "Fix the reason, then run again.",
    "NOT_SENT": "Run again.",
    NOT_BEGUN: "Run again.",
    "REVERSED": "The money came back. Pay it under a new reference, once the reason is fixed.",
    "FAILED": "The money is not back yet: run again with --wait. Then pay it under a new reference.",
    "CANCELLED": "It was not paid. Pay it under a new reference.",
    "EXPIRED": "It was not paid. Pay it under a new reference.",
}
# Rows about which there is nothing to do.
_FINE = {"ACCEPTED", "SUCCESS"}


def show_faults(output: Output, faults: list[Fault]) -> None:
    """Show what is wrong with a file."""
    rows = [(fault.line, fault.column, fault.problem) for fault in faults]
    document = {"event": "faults", "faults": [vars(fault) for fault in faults]}
    output.result(document, table(("Line", "Column", "Problem"), rows, right=("Line",)))


def show_plan(output: Output, file: PayrollFile, plan: Plan, wallet: Wallet | None) -> None:
    """Show what would be paid, before anybody is asked; without a wallet, nothing was read from the service."""
    accepted, in_doubt = [each.row for each in plan.accepted], [each.row for each in plan.in_doubt]
    warnings = list(_warnings(file, plan, wallet))
    document = {
        "event": "plan",
        "name": file.name,
        "sha256": file.sha256,
        "file": _count(file.rows),
        "to_pay": _count(plan.to_pay),
        "accepted_before": _count(accepted),
        "in_doubt": _count(in_doubt),
        "service_wallet": wallet and wallet.available,
        "fees_about": wallet and wallet.estimated_fees(len(plan.to_pay)),
        "warnings": warnings,
    }
    sums = [
        ("In the file", file.rows),
        ("Accepted before", accepted),
        (Text("In doubt, not sent again", "bold red"), in_doubt),
        (Text("To pay now", "bold"), plan.to_pay),
    ]
    shown: list[object] = [f"File     {output.text(file.name)}: {people(file.rows)}", f"SHA-256  {file.sha256}", ""]
    shown += [_sums([(label, rows) for label, rows in sums if rows or rows is plan.to_pay]), ""]
    if plan.to_pay:
        shown += [_largest(output, plan.to_pay), "", *_costs(plan, wallet)]
    elif accepted and len(accepted) == len(file.rows):
        shown.append(f"Nothing to pay: all {len(accepted)} were accepted before.")
    shown += [Text.assemble(("Warning: ", "bold yellow"), plain(warning)) for warning in warnings]
    output.result(document, *shown)


def _sums(rows_by_label: Sequence[tuple[object, list[Row]]], title: str | None = None) -> Table:
    rows = [(label, len(some), total(some)) for label, some in rows_by_label]
    return table(("", "Rows", "KES"), rows, right=("Rows", "KES"), title=title)


def _largest(output: Output, rows: list[Row]) -> Table:
    # A mistyped amount is most dangerous, and easiest to see, among these.
    largest = sorted(rows, key=lambda row: row.amount, reverse=True)[:_LARGEST_SHOWN]
    cells = [(row.line, output.text(row.reference), output.phone(row.phone), row.amount) for row in largest]
    return table(("Line", "Reference", "Phone", "KES"), cells, right=("Line", "KES"), title="The largest")


def _costs(plan: Plan, wallet: Wallet | None) -> Iterator[str]:
    if wallet is None:
        return
    fees = wallet.estimated_fees(len(plan.to_pay))
    about = "unknown: no payout has succeeded yet" if fees is None else f"about KES {kes(fees)}, by the last payout"
    if minutes := len(plan.to_pay) // _PAYOUTS_A_MINUTE:
        yield f"Pace: 60 requests a minute, so this takes about {minutes} min"
    yield f"B2C wallet: must hold KES {kes(total(plan.to_pay))}; its balance cannot be read over the API"
    yield f"Service wallet: KES {kes(wallet.available)} for fees; the fees are {about}"


def _warnings(file: PayrollFile, plan: Plan, wallet: Wallet | None) -> Iterator[str]:
    for lines in file.possible_duplicates:
        yield f"lines {', '.join(map(str, lines))} pay the same amount to the same phone"
    for fault in plan.similar:
        yield f"the reference on line {fault.line} {fault.problem}"
    if file.ignored:
        yield f"columns that are not used: {', '.join(name or '(no name)' for name in file.ignored)}"
    fees = None if wallet is None else wallet.estimated_fees(len(plan.to_pay))
    if wallet is not None and fees is not None and fees > wallet.available:
        yield f"the service wallet may not cover the fees: top it up by KES {kes(fees - wallet.available)}"


def show_row(output: Output, event: str, outcome: RowOutcome) -> None:
    """Show a row that is done, or has settled; people see the progress bar instead."""
    if output.as_json:
        output.result({"event": event, **_as_document(outcome)})


def show_end(
    output: Output,
    file: PayrollFile,
    outcomes: dict[str, RowOutcome],
    *,
    accepted_before: frozenset[str],
    stopped_by: MomoPayError | None,
    interrupted: bool,
    code: int,
) -> None:
    """Show what happened to all rows, and what to do about those that were not paid.

    Args:
        output: Where to show it.
        file: The file.
        outcomes: By reference.
        accepted_before: The references that were accepted before this run, which moved no money of theirs.
        stopped_by: The error that stopped the run, if one did.
        interrupted: Whether a signal did.
        code: The exit status.
    """
    rows_by_state: dict[str, list[Row]] = {}
    rows_by_end: dict[str, list[Row]] = {}
    for row in file.rows:
        outcome = outcomes.get(row.reference)
        rows_by_state.setdefault(NOT_BEGUN if outcome is None else outcome.state, []).append(row)
        rows_by_end.setdefault(state_of(outcome), []).append(row)
    known = [outcomes[row.reference] for row in file.rows if row.reference in outcomes]
    left = [outcome for outcome in known if state_of(outcome) not in _FINE]
    document = {
        "event": "end",
        "rows": {state.lower(): _count(rows) for state, rows in rows_by_state.items()},
        "ends": {state.lower(): _count(rows) for state, rows in rows_by_end.items()},
        "left": list(map(_as_document, left)),
        "stopped_by": stopped_by and {"error": type(stopped_by).__name__, "message": str(stopped_by)},
        "interrupted": interrupted,
        "exit_code": code,
    }
    shown: list[object] = []
    if len(accepted_before) < len(file.rows) or "ACCEPTED" not in rows_by_end or left:
        title = "Interrupted" if interrupted else "Stopped" if stopped_by is not None else "Done"
        shown += [_sums(list(_labelled(rows_by_end, accepted_before)), title), ""]
    if left:
        shown += [_left(output, left), ""]
    if stopped_by is not None:
        shown.append(Text.assemble(("Stopped: ", "bold red"), plain(output.text(str(stopped_by)))))
        shown.append(Text.assemble(("What to do: ", "bold"), plain(remedy_of(stopped_by))))
    shown += [Text.assemble(status(state), ": ", TO_DO[state]) for state in rows_by_end if state in TO_DO]
    if "ACCEPTED" in rows_by_end:
        shown.append(
            "Accepted is not yet paid: the service may still reverse it. Run the same command with --wait to see how"
            " each one ends."
        )
    output.result(document, *shown)


def _labelled(by_end: dict[str, list[Row]], accepted_before: frozenset[str]) -> Iterator[tuple[Text, list[Row]]]:
    """Yield the rows of each state with its label; accepted ones apart, as this run moved no money of the old ones."""
    for state, rows in by_end.items():
        if state != "ACCEPTED":
            yield status(state, "Paid" if state == "SUCCESS" else None), rows
            continue
        for label, was_before in (("Accepted before", True), ("Accepted now", False)):
            if some := [row for row in rows if (row.reference in accepted_before) == was_before]:
                yield status(state, label), some


def _left(output: Output, outcomes: list[RowOutcome]) -> Table:
    rows = [
        (
            outcome.row.line,
            output.text(outcome.row.reference),
            output.phone(outcome.row.phone),
            outcome.row.amount,
            status(state_of(outcome)),
            (why_in_short if outcome.has_failed else _code_or_why)(output, outcome),
        )
        for outcome in outcomes
    ]
    return table(("Line", "Reference", "Phone", "KES", "State", "Why"), rows, right=("Line", "KES"))


def state_of(outcome: RowOutcome | None) -> str:
    """Return how a row ended, or how far it came."""
    return NOT_BEGUN if outcome is None else outcome.end or outcome.state


def _as_document(outcome: RowOutcome) -> dict[str, object]:
    return {
        "line": outcome.row.line,
        "reference": outcome.row.reference,
        "phone": outcome.row.phone,
        "amount": outcome.row.amount,
        "state": outcome.state,
        "status": outcome.last and outcome.last.status,
        "transaction_id": outcome.transaction_id,
        "code": code_of(outcome),
        "message": why(outcome),
    }


def code_of(outcome: RowOutcome) -> str | None:
    """Return the code of a refusal, or of an end without success."""
    if outcome.has_failed:
        return getattr(outcome.last, "result_code", None)
    reason = _reason(outcome)
    return reason.code if isinstance(reason, APIError) else None


def why(outcome: RowOutcome) -> str | None:
    """Return why a row was not paid; None if it was, or is under way."""
    if outcome.has_failed:
        return getattr(outcome.last, "result_desc", None)
    return None if outcome.error is None else str(outcome.error)


def why_in_short(output: Output, outcome: RowOutcome) -> str | None:
    """Return the reason in a few words; None if the row was accepted and has not failed."""
    if outcome.has_failed:
        text = why(outcome) or f"result code {code_of(outcome) or 'unknown'}"
    elif outcome.state == "ACCEPTED":
        return None
    else:
        reason = _reason(outcome)
        text = reason.message if isinstance(reason, APIError) else str(reason or "not known to have ended")
    return shorten(output.text(text), _REASON_WIDTH, placeholder=" ...")


def _code_or_why(output: Output, outcome: RowOutcome) -> str | None:
    return code_of(outcome) or why_in_short(output, outcome)


def _reason(outcome: RowOutcome) -> BaseException | None:
    """Return the cause of an unknown outcome, whose own words are the same for every row; or else the error."""
    error = outcome.error
    return error.__cause__ if error is not None and isinstance(error.__cause__, MomoPayError) else error


def _count(rows: list[Row]) -> dict[str, int | Decimal]:
    return {"rows": len(rows), "total": total(rows)}
