"""Pay salaries from a CSV (employee,phone,amount), each once, whatever fails meanwhile.

    python examples/payroll.py [salaries.csv] [--month 2026-11] [--folder payroll] [--yes]

Kill it at any moment and run the same command again: the journal in the folder has who was paid, who was not, and who
may have been. At the end it writes a report. The exit status is 0 if all were paid, 1 if somebody was not, and 3 if
somebody may have been paid and a person must check. Without MOMOPAY_* settings it runs on the embedded sandbox.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path

from momopay import (
    Client,
    DuplicatePayoutError,
    InvalidPhoneError,
    Journal,
    JournalState,
    MomoPayError,
    OutcomeUnknownError,
    PollSchedule,
    WaitTimeoutError,
    normalise_phone,
    settled,
)


@dataclass(frozen=True)
class Salary:
    """One line of the file. The reference is the month and the employee, so that nobody gets two in a month."""

    reference: str
    phone: str
    amount: Decimal


def read_salaries(path: Path, month: str) -> list[Salary]:
    """Read the whole file before anybody is paid. Exit with a list of all faults, if there are any."""
    salaries: dict[str, Salary] = {}
    faults: list[str] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                reference = f"SALARY-{month}-{row['employee'].strip()}"
                salary = Salary(reference, normalise_phone(row["phone"].strip()), Decimal(row["amount"]))
                if not (salary.amount.is_finite() and salary.amount >= 10 and salary.amount == round(salary.amount, 2)):  # noqa: PLR2004  KES 10 is the service's own minimum
                    raise ValueError("the amount must be KES 10 or more, in whole cents")
                if salaries.setdefault(reference, salary) is not salary:
                    raise ValueError("this employee is in the file twice")
            except (KeyError, TypeError, AttributeError, InvalidOperation):
                faults.append(f"line {line}: needs employee, phone and amount")
            except ValueError as fault:
                faults.append(f"line {line}: {fault}")
    if faults:
        sys.exit("Nobody was paid. Fix these first:\n" + "\n".join(faults))
    return list(salaries.values())


def pay(client: Client, journal: Journal, salaries: list[Salary], notes: dict[str, str]) -> None:
    """Send every salary that was not sent yet. Unknown outcomes are left for a person."""
    journal.reconcile_all(client)  # resolves what an earlier run left unknown, in one pass over the list
    for number, salary in enumerate(salaries, start=1):
        entry = journal.get(salary.reference)
        if (
            entry
            and entry.state is JournalState.ACCEPTED
            and (entry.amount, entry.phone) == (salary.amount, salary.phone)
        ):
            outcome = "was sent before"
        else:
            try:
                client.payouts.pay_once(
                    journal=journal, reference=salary.reference, amount=salary.amount, phone=salary.phone
                )
                outcome = "sent"
            except (
                OutcomeUnknownError,
                DuplicatePayoutError,
                InvalidPhoneError,
            ) as error:  # only this one; continue with the rest
                outcome = notes[salary.reference] = error.message
        print(f"[{number}/{len(salaries)}] {salary.reference}  KES {salary.amount}  {outcome}", flush=True)


def follow(client: Client, journal: Journal, salaries: list[Salary], schedule: PollSchedule) -> dict[str, str]:
    """Wait until every payout is settled. Return the final status of each transaction id."""
    entries = [journal.get(salary.reference) for salary in salaries]
    waiting = [entry.transaction_id for entry in entries if entry and entry.transaction_id]
    ends: dict[str, str] = {}
    try:
        for ended in client.transactions.wait_all(waiting, until=settled, schedule=schedule):
            ends[ended.transaction_id] = str(ended.status)
            print(f"{len(ends)} of {len(waiting)} settled", flush=True)
    except WaitTimeoutError as late:
        print(f"{late} Run the same command again later.")
    return ends


def report(path: Path, journal: Journal, salaries: list[Salary], ends: dict[str, str], notes: dict[str, str]) -> int:
    """Write the outcome of every salary. Return the exit status."""
    states: list[str] = []
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["reference", "amount", "state", "transaction_id", "note"])
        for salary in salaries:
            entry = journal.get(salary.reference)
            state = "NOT_SENT" if entry is None else str(entry.state)
            if entry and entry.state is JournalState.ACCEPTED:
                state = ends.get(entry.transaction_id or "", "PENDING")
            note = notes.get(salary.reference) or (entry and entry.code) or ""
            if state == "REVERSED":
                note = "the money came back: pay it with another line, such as E09-again"
            lines.writerow([salary.reference, salary.amount, state, (entry and entry.transaction_id) or "", note])
            states.append(state)
    for state in sorted(set(states)):
        print(f"{states.count(state):>6}  {state}")
    print(f"Report: {path}")
    return 3 if {"UNKNOWN", "SENDING"} & set(states) else 0 if set(states) <= {"SUCCESS"} and not notes else 1


def run(salaries: list[Salary], folder: Path, schedule: PollSchedule) -> int:
    """Pay, wait and report. The report is written even if the run stops."""
    folder.mkdir(parents=True, exist_ok=True)
    notes: dict[str, str] = {}
    ends: dict[str, str] = {}
    with Client() as client, Journal(f"sqlite:///{folder / 'payouts.db'}") as journal:
        try:
            pay(client, journal, salaries, notes)
            ends = follow(client, journal, salaries, schedule)
        except MomoPayError as error:  # no funds, no KYC, no network: the rest would fail too
            print(f"Stopped: {error}\nFix that and run the same command again. Nobody is paid twice.")
        return report(folder / "report.csv", journal, salaries, ends, notes)


def main() -> int:
    """Read the arguments, ask, and run."""
    parser = argparse.ArgumentParser(description="Pay salaries from a CSV, each once.")
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).with_name("salaries.csv"))
    parser.add_argument("--month", default=f"{date.today():%Y-%m}")  # noqa: DTZ011  the local month
    parser.add_argument("--folder", type=Path, help="where the journal and the report are stored")
    parser.add_argument("--every", type=float, help="seconds between polls; by default as the service recommends")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options = parser.parse_args()
    salaries = read_salaries(options.file, options.month)
    total = sum(salary.amount for salary in salaries)
    print(f"{len(salaries)} salaries for {options.month}, KES {total:,} in all")
    if "MOMOPAY_BASE_URL" in os.environ:
        if not options.yes and input("Pay them? Type yes: ").strip() != "yes":
            sys.exit("Stopped; nothing was sent.")
        schedule = PollSchedule(first=options.every, every=options.every) if options.every else PollSchedule()
        return run(salaries, options.folder or Path("payroll"), schedule)
    from momopay.sandbox import Sandbox

    with Sandbox(speed=50) as sandbox:
        os.environ |= {"MOMOPAY_API_KEY": "pk_test_payroll", "MOMOPAY_BASE_URL": sandbox.base_url}
        folder = options.folder or Path(tempfile.mkdtemp(prefix="payroll-"))
        return run(salaries, folder, PollSchedule(first=0.5, every=0.5, limit=60))


if __name__ == "__main__":
    sys.exit(main())
