"""Pay salaries from a CSV (employee,phone,amount), each once, whatever happens on the way.

    python examples/payroll.py [salaries.csv] [--month 2026-11] [--folder payroll] [--yes]

Kill it at any moment and run the same command again: the journal in the folder knows who was paid, who was not, and
who may have been. At the end there is a report, and the exit status says how it stands: 0 all paid, 1 somebody was
not, 3 somebody may have been and a human must look. Without MOMOPAY_* settings it runs on the embedded sandbox.
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
    """One line of the file; the reference is the month and the employee, so nobody has two in a month."""

    reference: str
    phone: str
    amount: Decimal


def read_salaries(path: Path, month: str) -> list[Salary]:
    """Read the whole file before anybody is paid; every fault is told at once."""
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
                    raise ValueError("this employee stands in the file before")
            except (KeyError, TypeError, AttributeError, InvalidOperation):
                faults.append(f"line {line}: employee, phone and amount are wanted")
            except ValueError as fault:
                faults.append(f"line {line}: {fault}")
    if faults:
        sys.exit("Nobody was paid. Mend these first:\n" + "\n".join(faults))
    return list(salaries.values())


def pay(client: Client, journal: Journal, salaries: list[Salary], notes: dict[str, str]) -> None:
    """Send what was not sent yet. What it does not know, it leaves for a human."""
    journal.reconcile_all(client)  # what an earlier run left in doubt: one walk of the list
    for number, salary in enumerate(salaries, start=1):
        entry = journal.get(salary.reference)
        if (
            entry
            and entry.state is JournalState.ACCEPTED
            and (entry.amount, entry.phone) == (salary.amount, salary.phone)
        ):
            word = "was sent before"
        else:
            try:
                client.payouts.pay_once(
                    journal=journal, reference=salary.reference, amount=salary.amount, phone=salary.phone
                )
                word = "sent"
            except (
                OutcomeUnknownError,
                DuplicatePayoutError,
                InvalidPhoneError,
            ) as error:  # this one; on with the rest
                word = notes[salary.reference] = error.message
        print(f"[{number}/{len(salaries)}] {salary.reference}  KES {salary.amount}  {word}", flush=True)


def follow(client: Client, journal: Journal, salaries: list[Salary], schedule: PollSchedule) -> dict[str, str]:
    """Wait until the money is where it will stay; gives what became of each transaction id."""
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
    """Write what became of everybody; the exit status is the worst of it."""
    states: list[str] = []
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["reference", "amount", "state", "transaction_id", "note"])
        for salary in salaries:
            entry = journal.get(salary.reference)
            state = "NOT_SENT" if entry is None else str(entry.state)
            if entry and entry.state is JournalState.ACCEPTED:
                state = ends.get(entry.transaction_id or "", "ON_ITS_WAY")
            note = notes.get(salary.reference) or (entry and entry.code) or ""
            if state == "REVERSED":
                note = "the money came back: pay it as a line of its own, such as E09-again"
            lines.writerow([salary.reference, salary.amount, state, (entry and entry.transaction_id) or "", note])
            states.append(state)
    for state in sorted(set(states)):
        print(f"{states.count(state):>6}  {state}")
    print(f"Report: {path}")
    return 3 if {"UNKNOWN", "SENDING"} & set(states) else 0 if set(states) <= {"SUCCESS"} and not notes else 1


def run(salaries: list[Salary], folder: Path, schedule: PollSchedule) -> int:
    """Pay, follow, report; the report is written however far it came."""
    folder.mkdir(parents=True, exist_ok=True)
    notes: dict[str, str] = {}
    ends: dict[str, str] = {}
    with Client() as client, Journal(f"sqlite:///{folder / 'payouts.db'}") as journal:
        try:
            pay(client, journal, salaries, notes)
            ends = follow(client, journal, salaries, schedule)
        except MomoPayError as error:  # no funds, no KYC, no network: the rest would fare alike
            print(f"Stopped: {error}\nMend that and run the same command again; who was paid stays paid.")
        return report(folder / "report.csv", journal, salaries, ends, notes)


def main() -> int:
    """Read the arguments, ask, and run."""
    parser = argparse.ArgumentParser(description="Pay salaries from a CSV, each once.")
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).with_name("salaries.csv"))
    parser.add_argument("--month", default=f"{date.today():%Y-%m}")  # noqa: DTZ011  the month on the wall
    parser.add_argument("--folder", type=Path, help="where the journal and the report are kept")
    parser.add_argument("--every", type=float, help="seconds between looks; by default as the service advises")
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
