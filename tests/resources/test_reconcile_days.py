"""A day of the sandbox against the journal and the orders: every difference is found, and agreement is none."""

from __future__ import annotations

import csv
import logging
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import momopay
from drivers import Driver
from journal.kit import PHONE, execute, found, lease_of, put
from momopay import (
    BookedOrder,
    DayReport,
    Journal,
    JournalState,
    OutcomeUnknownError,
    RequestValidationError,
)
from momopay.journal.evidence import report_of
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import accounts_of
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from resources.payout_service import pay


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> str:
    """The blocking client, unless a test asks for both."""
    return str(getattr(request, "param", "blocking"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'payouts.db'}"


@pytest.fixture(autouse=True)
def _no_limit(account: Account) -> None:
    account.rate_limit = None


on_both_clients = pytest.mark.parametrize("client_kind", ["blocking", "async"], indirect=True)


def today(sandbox: Sandbox) -> date:
    return (sandbox.now + timedelta(hours=3)).date()


def collect(sdk: Driver, journal: Journal, reference: str, amount: int = 500, phone: str = PHONE) -> str:
    """Prompt for an order that is in the journal; return the transaction's id."""
    rows = journal._collections
    with lease_of(journal) as lease:
        rows.begin(
            lease,
            reference=reference,
            amount=Decimal(amount),
            phone=PHONE,
            body_hash="hash",
            seconds=600,
            read=rows.get(reference),
            wire_reference=reference,
        )
        prompt = sdk(lambda client: client.stk.initiate(amount=amount, phone=phone, account_reference=reference))
        rows.accept(reference, report_of(prompt), lease=lease)
    return str(prompt.transaction_id)


def reconcile(sdk: Driver, sandbox: Sandbox, journal: Journal, **options: Any) -> DayReport:
    report = sdk(lambda client: client.transactions.reconcile(**{"journal": journal, "day": today(sandbox), **options}))
    assert isinstance(report, DayReport)
    return report


def remedies(report: DayReport) -> dict[str, str]:
    return {each.reference: each.remedy for each in report.differences}


def booked(**orders: str) -> list[BookedOrder]:
    return [BookedOrder(reference, Decimal(500), state) for reference, state in orders.items()]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@on_both_clients
def test_a_day_that_agrees_has_its_sums(sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal) -> None:
    account.fee = Decimal(3)
    collect(sdk, journal, "A")
    collect(sdk, journal, "B")
    sdk(pay(journal, reference="RENT", amount=900))
    sandbox.advance(600)
    assert reconcile(sdk, sandbox, journal).agrees  # records that A was paid
    sdk(lambda client: client.payouts.refund(journal=journal, of="A", amount=200))
    sandbox.advance(600)
    report = reconcile(sdk, sandbox, journal, orders=booked(A="PAID", B="PAID"))
    assert report.differences == ()
    assert (report.transactions, report.open) == (4, 0)
    sums = [report.collected, report.paid_out, report.refunded, report.came_back]
    assert sums == [1000, 900, 200, 0]
    assert report.fees == 12
    assert found(journal, "RENT").status == "SUCCESS"
    assert [each.path for each in sandbox.requests].count("/b2c/payouts") == 2


def test_every_difference_of_a_collection_is_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("GOOD", "LOST", "NO-ORDER"):
        collect(sdk, journal, reference)
    collect(sdk, journal, "GIFT", phone=phone_for(Outcome.cancelled))
    collect(sdk, journal, "CLOSE", phone=phone_for(Outcome.cancelled))
    collect(sdk, journal, "LATER", phone=phone_for(Outcome.never_answers))
    sdk(lambda client: client.stk.initiate(amount=5, phone=PHONE, account_reference="CHEAP"))
    for reference in ("STRAY", "TWICE", "TWICE"):
        sdk(partial(_prompt, reference=reference))
    sandbox.advance(120)
    orders = booked(
        GOOD="PAID", LOST="WAITING", GIFT="PAID", CLOSE="WAITING", LATER="WAITING", CHEAP="PAID", DREAM="PAID",
        TWICE="PAID", GONE="FAILED",
    )  # fmt: skip
    assert remedies(reconcile(sdk, sandbox, journal, orders=orders)) == {
        "LOST": "paid and not shipped: ship",
        "NO-ORDER": "nobody knows what was sold: find out, or refund",
        "GIFT": "shipped and not paid: ask the customer",
        "CLOSE": "never paid: close",
        "LATER": "check again tomorrow",
        "CHEAP": "another amount was paid: ask the customer, or refund",
        "STRAY": "nobody knows what was sold: find out, or refund",
        "DREAM": "shipped and not paid: ask the customer",
        "TWICE": "paid more than once: refund the rest",
    }
    without = remedies(reconcile(sdk, sandbox, journal))
    assert without.keys() == {"CHEAP", "STRAY", "TWICE"}


def test_an_order_that_was_paid_on_another_day_was_paid(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("SHIPPED", "FORGOTTEN"):
        collect(sdk, journal, reference)
    sandbox.advance(600)
    reconcile(sdk, sandbox, journal)
    orders = booked(SHIPPED="PAID", FORGOTTEN="WAITING")
    after = reconcile(sdk, sandbox, journal, day=today(sandbox) + timedelta(days=1), orders=orders)
    assert remedies(after) == {"FORGOTTEN": "paid and not shipped: ship"}


@pytest.mark.parametrize("state", ["PAID", "WAITING"])
def test_an_order_that_may_be_paid_is_not_given_up(sdk: Driver, sandbox: Sandbox, journal: Journal, state: str) -> None:
    collect(sdk, journal, "OPEN", phone=phone_for(Outcome.never_answers))
    collect(sdk, journal, "DOUBT", phone=phone_for(Outcome.cancelled))
    execute(journal, "UPDATE momopay_payments SET state = 'UNKNOWN' WHERE reference = 'DOUBT'")
    orders = booked(OPEN=state, DOUBT=state)
    report = reconcile(sdk, sandbox, journal, day=today(sandbox) + timedelta(days=1), orders=orders)
    assert [each.remedy for each in report.differences[:2]] == ["check again tomorrow"] * 2


def test_an_order_that_was_paid_back_is_not_to_be_shipped(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("PART", "WHOLE", "NO-ORDER"):
        collect(sdk, journal, reference)
    sandbox.advance(600)
    reconcile(sdk, sandbox, journal)
    for reference, amount in {"PART": 200, "WHOLE": None, "NO-ORDER": None}.items():
        sdk(partial(_refund, journal=journal, of=reference, amount=amount))
    sandbox.advance(600)
    report = reconcile(sdk, sandbox, journal, orders=booked(PART="FAILED", WHOLE="FAILED"))
    assert remedies(report) == {"PART": "paid and not shipped: ship"}


def _refund(client: Any, **arguments: Any) -> Any:
    return client.payouts.refund(**arguments)


def _prompt(client: Any, *, reference: str) -> Any:
    return client.stk.initiate(amount=500, phone=PHONE, account_reference=reference)


def test_an_order_that_was_paid_twice_is_a_difference_until_it_is_refunded(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    collect(sdk, journal, "A")
    sandbox.advance(120)
    execute(journal, "UPDATE momopay_payments SET state = 'NOT_SENT' WHERE reference = 'A'")
    collect(sdk, journal, "A")
    sandbox.advance(120)
    assert remedies(reconcile(sdk, sandbox, journal)) == {"A": "paid more than once: refund KES 500"}
    sdk(lambda client: client.payouts.refund(journal=journal, of="A"))
    sandbox.advance(600)
    report = reconcile(sdk, sandbox, journal)
    assert remedies(report) == {}
    assert [report.refunded, report.collected] == [500, 1000]


def test_every_difference_of_a_payout_is_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, reference="GOOD"))
    sdk(pay(journal, reference="BACK", phone=phone_for(Outcome.insufficient_funds)))
    sdk(lambda client: client.payouts.initiate(amount=10, phone=PHONE, reference="STRANGER"))
    sdk(pay(journal, reference="AGAIN"))
    sdk(lambda client: client.payouts.initiate(amount=77, phone=PHONE, reference="AGAIN"))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, reference="WATER"))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_before_read)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, reference="GAS"))
    sandbox.advance(1200)
    put(journal, "NEVER", JournalState.ACCEPTED, transaction_id="no-such-id")
    moment = sandbox.now.isoformat(timespec="microseconds")
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{moment}', created_at = '{moment}'")
    report = reconcile(sdk, sandbox, journal)
    assert {name: remedy.partition(":")[0] for name, remedy in remedies(report).items()} == {
        "BACK": "the money came back",
        "STRANGER": "not in our journal",
        "AGAIN": "not the payout that we sent under this reference",
        "WATER": "now ACCEPTED in the journal",
        "GAS": "it may have been paid",
        "NEVER": "the service does not have it",
    }
    assert report.came_back == 10
    assert found(journal, "WATER").state is JournalState.ACCEPTED
    assert "WATER" not in remedies(reconcile(sdk, sandbox, journal))


def test_a_day_is_that_of_nairobi_unless_said_otherwise(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    # To half past one in the night of Nairobi, when it is still yesterday in UTC.
    hours = (22.5 - sandbox.now.hour - sandbox.now.minute / 60) % 24
    sandbox.advance(hours * 3600)
    sdk(pay(journal))
    sandbox.advance(60)
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{sandbox.now.isoformat(timespec='microseconds')}'")
    assert reconcile(sdk, sandbox, journal).transactions == 1
    assert reconcile(sdk, sandbox, journal, day=today(sandbox) - timedelta(days=1)).transactions == 0
    assert reconcile(sdk, sandbox, journal, utc=True).transactions == 0
    assert reconcile(sdk, sandbox, journal, utc=True, day=today(sandbox) - timedelta(days=1)).transactions == 1
    month = {"day": today(sandbox) - timedelta(days=20), "last_day": today(sandbox)}
    assert reconcile(sdk, sandbox, journal, **month).transactions == 1


@pytest.mark.parametrize("options", [{"day": "2026-11-20"}, {"last_day": date(2000, 1, 1)}, {"last_day": 5}])
def test_what_is_no_day_is_refused(sdk: Driver, sandbox: Sandbox, journal: Journal, options: dict[str, object]) -> None:
    with pytest.raises(RequestValidationError):
        reconcile(sdk, sandbox, journal, **options)
    assert sandbox.requests == []


def test_the_journal_of_another_account_is_refused(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    accounts_of(journal).check(KeyIdentity.of("pk_live_abc", sandbox.base_url))
    with pytest.raises(momopay.ConfigurationError):
        reconcile(sdk, sandbox, journal)
    assert sandbox.requests == []


def test_the_differences_are_written_as_csv(
    sdk: Driver, sandbox: Sandbox, journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    sdk(lambda client: client.payouts.initiate(amount=10, phone=PHONE, reference="=1+1"))
    path = tmp_path / "differences.csv"
    reconcile(sdk, sandbox, journal).write_csv(path)
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["reference"], row["theirs"]) == ("'=1+1", "PENDING 10")
    assert row.keys() == {"reference", "ours", "theirs", "remedy", "transactions"}


def test_orders_are_read_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("\ufeffreference,amount,state\nA, 500.50 ,paid\nB,5,WAITING\n", encoding="utf-8")
    assert BookedOrder.read_csv(path) == [
        BookedOrder("A", Decimal("500.50"), "PAID"),
        BookedOrder("B", Decimal(5), "WAITING"),
    ]
    for line in ("A,x,PAID", "A,5,SHIPPED", ",5,PAID", "B,5,PAID\nB,6,PAID", "A,nan,PAID", "A"):
        path.write_text(f"reference,amount,state\n{line}\n")
        with pytest.raises(RequestValidationError, match="line"):
            BookedOrder.read_csv(path)
