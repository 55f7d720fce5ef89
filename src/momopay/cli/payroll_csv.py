"""The report of a payroll: a CSV file with a line for each row, for its owner alone."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from momopay.cli.exit_codes import CommandError
from momopay.cli.output import Output
from momopay.cli.payroll import RowOutcome
from momopay.cli.payroll_file import PayrollFile
from momopay.cli.payroll_report import NOT_BEGUN, TO_DO, code_of, state_of, why_in_short

_COLUMNS = (
    "line",
    "reference",
    "phone",
    "amount",
    "state",
    "ended",
    "transaction_id",
    "code",
    "why",
    "what_to_do",
)


def write_report(output: Output, path: Path, file: PayrollFile, outcomes: dict[str, RowOutcome]) -> None:
    """Write what happened to every row, readable by its owner alone.

    Raises:
        CommandError: It cannot be written.
    """
    # Opened with its mode, since a file that is closed to others only later could be read in between.
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        remedy = "give a file that can be written"
        raise CommandError(f"--report {path.name}: {error.strerror}", remedy=remedy) from error
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as report:
        writer = csv.writer(report)
        writer.writerow(_COLUMNS)
        for row in file.rows:
            outcome = outcomes.get(row.reference)
            known = (
                (NOT_BEGUN, None, None, None, None)
                if outcome is None
                else (
                    outcome.state,
                    outcome.end,
                    outcome.transaction_id,
                    code_of(outcome),
                    why_in_short(output, outcome),
                )
            )
            phone = output.phone(row.phone)
            writer.writerow((row.line, row.reference, phone, row.amount, *known, TO_DO.get(state_of(outcome))))
