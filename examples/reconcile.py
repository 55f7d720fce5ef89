"""Compare our books for yesterday with the service's list, and write every difference to a CSV.

    python examples/reconcile.py orders.csv --journal payouts.db [--day 2026-11-03] [--out differences.csv]

`orders.csv` has the columns reference, amount and state (PAID, FAILED or WAITING); the journal is that of `pay_once`.
Run it every night. The exit status is 0 if the books agree and 1 if they differ, so that cron or a pipeline can alert.
Without MOMOPAY_* settings it first makes a day of payments with errors on the embedded sandbox.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Literal

from momopay import Client, Journal, OutcomeUnknownError
from momopay.types import BookedOrder

NAIROBI = timezone(timedelta(hours=3))


def reconcile(client: Client, day: date, orders: Sequence[BookedOrder], out: Path) -> int:
    """Write the differences of a day. Return 1 if there are any, else 0."""
    report = client.transactions.reconcile(day=day, orders=orders)
    report.write_csv(out)
    print(f"{day}: {report.transactions} transactions, {len(orders)} orders, {len(report.differences)} differences")
    print(
        f"KES {report.collected} collected, {report.paid_out} paid out, {report.refunded} refunded, {report.fees} fees"
    )
    for each in report.differences:
        print(f"  {each.reference:<8} ours: {each.ours:<14} theirs: {each.theirs:<26} {each.remedy}")
    return 0 if report.agrees else 1


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Compare our books with the service's list.")
    parser.add_argument("orders", type=Path, nargs="?")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--day", type=date.fromisoformat, default=datetime.now(NAIROBI).date() - timedelta(days=1))
    parser.add_argument("--out", type=Path, default=Path("differences.csv"))
    options = parser.parse_args()
    if "MOMOPAY_BASE_URL" not in os.environ:
        return on_the_sandbox()
    if options.orders is None or options.journal is None:
        parser.error("on the real service, pass the file of orders and --journal")
    with Journal(f"sqlite:///{options.journal}", create=False) as journal, Client(journal=journal) as client:
        return reconcile(client, options.day, BookedOrder.read(options.orders), options.out)


def on_the_sandbox() -> int:
    """Make a day of payments: good ones, and one of each error."""
    from momopay.sandbox import Fault, Sandbox

    folder = Path(tempfile.mkdtemp(prefix="reconcile-"))
    books: dict[str, Literal["PAID", "WAITING"]] = {
        "GOOD": "PAID",
        "LOST": "WAITING",
        "GIFT": "PAID",
        "TWICE": "PAID",
        "CHEAP": "PAID",
        "DREAM": "PAID",
    }
    with (
        Sandbox(speed=0) as sandbox,
        Client("pk_test_books", base_url=sandbox.base_url, journal=f"sqlite:///{folder / 'payouts.db'}") as client,
    ):
        day = sandbox.now.astimezone(NAIROBI).date()
        for reference, phone, amount in [
            ("GOOD", "0712345601", 500),
            ("LOST", "0712345602", 500),  # its callback was lost
            ("GIFT", "0712349932", 500),  # cancelled, but shipped
            ("TWICE", "0712345604", 500),
            ("TWICE", "0712345604", 500),
            ("CHEAP", "0712345605", 5),
            ("STRAY", "0712345606", 500),
        ]:
            client.stk.initiate(amount=amount, phone=phone, account_reference=reference)
        client.payouts.pay_once(reference="RENT", amount=900, phone="0712345607")
        sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        try:
            client.payouts.pay_once(reference="WATER", amount=300, phone="0712345608")
        except OutcomeUnknownError as error:
            print(f"Outcome unknown: {error.reference}")
        sandbox.advance(120)
        orders = [BookedOrder(reference, Decimal(500), state) for reference, state in books.items()]
        return reconcile(client, day, orders, folder / "differences.csv")


if __name__ == "__main__":
    sys.exit(main())
