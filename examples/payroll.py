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

from momopay import Client, Journal, MomoPayError, PayoutItem, PollSchedule, normalise_phone, settled


@dataclass(frozen=True)
class Salary:
    """One line of the file. The reference is the month and the employee, so that nobody gets two in a month."""

    reference: str
    phone: str
    amount: Decimal


@dataclass
class Line:
    """What happened to one salary."""

    state: str
    transaction_id: str = ""
    note: str = ""


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


def pay(client: Client, journal: Journal, salaries: list[Salary], schedule: PollSchedule) -> dict[str, Line]:
    """Pay every salary that was not paid yet and follow all to their end. Return what is known of each reference."""
    journal.reconcile_all(client)  # resolves what an earlier run left unknown, in one pass over the list
    items = [PayoutItem(reference=each.reference, amount=each.amount, phone=each.phone) for each in salaries]
    lines: dict[str, Line] = {}
    waiting: dict[str, str] = {}
    for outcome in client.payouts.pay_all(items):
        line = lines[outcome.reference] = Line(str(outcome.state), note=outcome.error.message if outcome.error else "")
        if outcome.payment is not None:
            line.state, line.transaction_id = "PENDING", outcome.payment.transaction_id
            waiting[line.transaction_id] = outcome.reference
        sent = "sent" if outcome.payment is not None and outcome.payment.is_new else "was sent before"
        print(f"[{len(lines)}/{len(salaries)}] {outcome.reference}  {line.note or sent}", flush=True)
        if outcome.stops:
            print(f"Stopped: {line.note}\nFix that and run the same command again. Nobody is paid twice.")
    settled_now = 0
    try:
        for ended in client.transactions.wait_all(waiting, until=settled, schedule=schedule):
            journal.settle(ended)
            lines[waiting[ended.transaction_id]].state = str(ended.status)
            settled_now += 1
            print(f"{settled_now} of {len(waiting)} settled", flush=True)
    except MomoPayError as late:  # not settled in time, or no network
        print(f"{late} Run the same command again later.")
    return lines


def report(path: Path, salaries: list[Salary], lines: dict[str, Line]) -> int:
    """Write what happened to every salary. Return the exit status."""
    states: list[str] = []
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["reference", "amount", "state", "transaction_id", "note"])
        for salary in salaries:
            line = lines.get(salary.reference, Line("NOT_SENT"))
            note = line.note
            if line.state == "REVERSED":
                note = "the money came back: pay it with another line, such as E09-again"
            rows.writerow([salary.reference, salary.amount, line.state, line.transaction_id, note])
            states.append(line.state)
    for state in sorted(set(states)):
        print(f"{states.count(state):>6}  {state}")
    print(f"Report: {path}")
    return 3 if {"UNKNOWN", "SENDING"} & set(states) else 0 if set(states) <= {"SUCCESS"} else 1


def run(salaries: list[Salary], folder: Path, schedule: PollSchedule) -> int:
    """Pay, wait and report. The report is written even if the run stops."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, Line] = {}
    with Journal(f"sqlite:///{folder / 'payouts.db'}") as journal, Client(journal=journal) as client:
        try:
            lines = pay(client, journal, salaries, schedule)
        except MomoPayError as error:  # the search for what is unknown failed: nothing was sent
            print(f"Stopped: {error}\nRun the same command again.")
        return report(folder / "report.csv", salaries, lines)


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
