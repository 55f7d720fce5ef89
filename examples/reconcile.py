"""Compare our books for yesterday with the service's list, and write every difference to a CSV.

    python examples/reconcile.py orders.csv [--journal payouts.db] [--day 2026-11-03] [--out differences.csv]

`orders.csv` has the columns reference, amount and state (PAID, FAILED or WAITING); the journal is that of `pay_once`.
Run it every night. The exit status is 0 if the books agree and 1 if they differ, so that cron or a pipeline can alert.
Without MOMOPAY_* settings it first makes a day of payments with errors on the embedded sandbox.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from momopay import Client, Journal, JournalState, OutcomeUnknownError, TransactionSummary

NAIROBI = timezone(timedelta(hours=3))


class Order(NamedTuple):
    """One collection in our books."""

    amount: Decimal
    state: str


class Difference(NamedTuple):
    """One line of the report."""

    reference: str
    ours: str
    theirs: str
    remedy: str
    transactions: str


def transactions_of(client: Client, day: date) -> list[TransactionSummary]:
    """Return the transactions of a day in Nairobi. The formats of the filters are not specified, so check again."""
    begin = datetime.combine(day, time(), NAIROBI)
    end = begin + timedelta(days=1)
    listed = client.transactions.iter(from_=begin, to=end)
    return [transaction for transaction in listed if begin <= transaction.created_at < end]


def check_orders(orders: dict[str, Order], collections: Iterable[TransactionSummary]) -> Iterator[Difference]:
    """Compare our orders with the collections of the service, in both directions."""
    found: defaultdict[str, list[TransactionSummary]] = defaultdict(list)
    for transaction in collections:
        found[transaction.account_reference or ""].append(transaction)
    for reference in sorted(orders.keys() | found.keys()):
        order, theirs = orders.get(reference), found[reference]
        if remedy := remedy_for(order, theirs):
            ours = f"{order.state} {order.amount}" if order else "nothing"
            yield Difference(reference, ours, summary(theirs), remedy, ids(theirs))


def remedy_for(order: Order | None, theirs: list[TransactionSummary]) -> str:  # noqa: PLR0911  one for each remedy
    """Return what to do about one order, or nothing if the books agree."""
    paid = [transaction for transaction in theirs if transaction.status == "SUCCESS"]
    if order is None:
        return "find out what was sold, or refund" if paid else ""
    if len(paid) > 1:
        return "paid more than once: refund the rest"
    if paid and paid[0].amount != order.amount:
        return "another amount was paid: ask the customer, or refund"
    if paid and order.state != "PAID":
        return "paid and not shipped: ship"
    if not paid and order.state == "PAID":
        return "shipped and not paid: ask the customer"
    if order.state == "WAITING":
        return "never paid: close" if all(each.status.is_terminal for each in theirs) else "check again tomorrow"
    return ""


def check_payouts(journal: Journal, payouts: Iterable[TransactionSummary]) -> Iterator[Difference]:
    """Compare the journal with the service. Unknown outcomes that the service's record answers are resolved."""
    for payout in payouts:
        before = journal.get(payout.account_reference or "")
        after = journal.settle(payout)
        if before is None:
            remedy = "not in our journal: find out who sent it"
        elif after is None or after.transaction_id != payout.transaction_id:
            remedy = "not the payout that we sent under this reference: paid twice, or another amount"
        elif before.state is not JournalState.ACCEPTED:
            remedy = "now ACCEPTED in the journal: nothing to do"
        elif payout.status in {"FAILED", "REVERSED"}:
            remedy = "the money came back: pay under a new reference"
        else:
            continue
        ours = str(before.state) if before else "nothing"
        yield Difference(payout.account_reference or "", ours, summary([payout]), remedy, ids([payout]))
    for entry in journal.unresolved():
        remedy = "check the account console, then journal.release what was not paid"
        yield Difference(entry.reference, str(entry.state), "nothing", remedy, "")


def summary(theirs: list[TransactionSummary]) -> str:
    """Return what the service has."""
    return ", ".join(f"{each.status} {each.amount}" for each in theirs) or "nothing"


def ids(theirs: list[TransactionSummary]) -> str:
    """Return the transaction ids, for a search in the account console."""
    return " ".join(each.transaction_id for each in theirs)


def reconcile(client: Client, day: date, orders: dict[str, Order], journal: Journal | None, out: Path) -> int:
    """Write the differences of a day. Return 1 if there are any, else 0."""
    theirs = transactions_of(client, day)
    differences = list(check_orders(orders, [each for each in theirs if each.type == "STK"]))
    if journal is not None:
        differences += check_payouts(journal, [each for each in theirs if each.type == "B2C"])
    with out.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(Difference._fields)
        lines.writerows(differences)
    print(f"{day}: {len(theirs)} transactions, {len(orders)} orders, {len(differences)} differences in {out}")
    for each in differences:
        print(f"  {each.reference:<8} ours: {each.ours:<14} theirs: {each.theirs:<26} {each.remedy}")
    return 1 if differences else 0


def read_orders(path: Path) -> dict[str, Order]:
    """Return our orders by reference."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return {row["reference"]: Order(Decimal(row["amount"]), row["state"]) for row in csv.DictReader(file)}


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
    if options.orders is None:
        parser.error("on the real service, pass the file of orders")
    maybe_journal = Journal(f"sqlite:///{options.journal}") if options.journal else nullcontext()
    with Client() as client, maybe_journal as journal:
        return reconcile(client, options.day, read_orders(options.orders), journal, options.out)


def on_the_sandbox() -> int:
    """Make a day of payments: good ones, and one of each error."""
    from momopay.sandbox import Fault, Sandbox

    folder = Path(tempfile.mkdtemp(prefix="reconcile-"))
    books = {"GOOD": "PAID", "LOST": "WAITING", "GIFT": "PAID", "TWICE": "PAID", "CHEAP": "PAID", "DREAM": "PAID"}
    with (
        Sandbox(speed=0) as sandbox,
        Client("pk_test_books", base_url=sandbox.base_url) as client,
        Journal(f"sqlite:///{folder / 'payouts.db'}") as journal,
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
        client.payouts.pay_once(journal=journal, reference="RENT", amount=900, phone="0712345607")
        sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        try:
            client.payouts.pay_once(journal=journal, reference="WATER", amount=300, phone="0712345608")
        except OutcomeUnknownError as error:
            print(f"Outcome unknown: {error.reference}")
        sandbox.advance(120)
        orders = {reference: Order(Decimal(500), state) for reference, state in books.items()}
        return reconcile(client, day, orders, journal, folder / "differences.csv")


if __name__ == "__main__":
    sys.exit(main())
