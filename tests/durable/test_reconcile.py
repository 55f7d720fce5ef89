"""A day of the sandbox against the journal and the orders: every difference is found, and agreement is none."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import momopay
from drivers import Driver
from durable.kit import BY_HAND, CANCELLING, FAILING, PAYOUTS, collect, initiate, over_both_clients, pay, refund
from journal.kit import ACCEPTED, PHONE, UNKNOWN, execute, found, put, state_of
from momopay import Journal, OutcomeUnknownError, RequestValidationError
from momopay.durable.reconcile import Difference, day_bounds
from momopay.sandbox import Account, Fault, Sandbox
from momopay.types import BookedOrder, DayReport


def today(sandbox: Sandbox) -> date:
    return (sandbox.now + timedelta(hours=3)).date()


def order(sdk: Driver, journal: Journal, reference: str, phone: str = PHONE) -> str:
    """Prompt for an order of KES 500; return the transaction's id."""
    return str(sdk(collect(journal, reference, amount=500, phone=phone)).transaction_id)


def stray(sdk: Driver, reference: str, amount: int = 500) -> None:
    """Prompt without the journal."""
    sdk(lambda client: client.stk.initiate(amount=amount, phone=PHONE, account_reference=reference))


def reconcile(sdk: Driver, sandbox: Sandbox, journal: Journal, **options: Any) -> DayReport:
    report = sdk(lambda client: client.transactions.reconcile(**{"journal": journal, "day": today(sandbox), **options}))
    assert isinstance(report, DayReport)
    return report


def remedies(report: DayReport) -> dict[str, str]:
    return {each.reference: each.remedy for each in report.differences}


def named(report: DayReport, names: str) -> dict[str, Any]:
    """Return some figures of a report, each with its name."""
    return {name: getattr(report, name) for name in names.split()}


def booked(**orders: Any) -> list[BookedOrder]:
    return [BookedOrder(reference, Decimal(500), state) for reference, state in orders.items()]


@over_both_clients
def test_a_day_that_agrees_has_its_sums(sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal) -> None:
    account.fee = Decimal(3)
    order(sdk, journal, "A")
    order(sdk, journal, "B")
    sdk(pay(journal, "RENT", amount=900))
    sandbox.advance(600)
    assert reconcile(sdk, sandbox, journal).differences == ()  # records that A was paid
    sdk(refund(journal, "A", amount=200))
    sandbox.advance(600)
    report = reconcile(sdk, sandbox, journal, orders=booked(A="PAID", B="PAID"))
    assert report.agrees
    assert named(report, "transactions open") == {"transactions": 4, "open": 0}
    sums = named(report, "collected paid_out refunded came_back fees")
    assert sums == {"collected": 1000, "paid_out": 900, "refunded": 200, "came_back": 0, "fees": 12}
    assert found(journal, "RENT").status == "SUCCESS"
    assert PAYOUTS.sent(sandbox) == 2


def test_every_difference_of_a_collection_is_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("GOOD", "LOST", "NO-ORDER"):
        order(sdk, journal, reference)
    order(sdk, journal, "GIFT", CANCELLING)
    order(sdk, journal, "CLOSE", CANCELLING)
    order(sdk, journal, "LATER", BY_HAND)
    stray(sdk, "CHEAP", 5)
    for reference in ("STRAY", "TWICE", "TWICE"):
        stray(sdk, reference)
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


def test_what_was_paid_otherwise_than_the_journal_asked_is_found(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    """From another phone under an order's reference, and by a prompt of which only the service knew."""
    put(journal, "MINE", UNKNOWN, momopay.EntryKind.COLLECTION, amount=500)
    stray(sdk, "MINE")
    order(sdk, journal, "THEIRS", BY_HAND)
    stray(sdk, "THEIRS")
    sandbox.advance(120)
    orders = booked(MINE="PAID", THEIRS="PAID")
    assert {
        name: remedy.partition(":")[0]
        for name, remedy in remedies(reconcile(sdk, sandbox, journal, orders=orders)).items()
    } == {
        "MINE": "now in the journal",
        "THEIRS": "paid from another phone than we asked, or not by our prompt",
    }
    assert state_of(journal, "MINE") is ACCEPTED


def test_an_order_that_was_paid_on_another_day_was_paid(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("SHIPPED", "FORGOTTEN"):
        order(sdk, journal, reference)
    sandbox.advance(600)
    reconcile(sdk, sandbox, journal)
    orders = booked(SHIPPED="PAID", FORGOTTEN="WAITING")
    after = reconcile(sdk, sandbox, journal, day=today(sandbox) + timedelta(days=1), orders=orders)
    assert remedies(after) == {"FORGOTTEN": "paid and not shipped: ship"}


@pytest.mark.parametrize("state", ["PAID", "WAITING"])
def test_an_order_that_may_be_paid_is_not_given_up(sdk: Driver, sandbox: Sandbox, journal: Journal, state: str) -> None:
    order(sdk, journal, "OPEN", BY_HAND)
    put(journal, "UNKNOWN", UNKNOWN, momopay.EntryKind.COLLECTION, amount=500)
    orders = booked(OPEN=state, UNKNOWN=state)
    report = reconcile(sdk, sandbox, journal, day=today(sandbox) + timedelta(days=1), orders=orders)
    assert [each.remedy for each in report.differences[:2]] == ["check again tomorrow"] * 2


def test_an_order_that_was_paid_back_is_not_to_be_shipped(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("PART", "WHOLE", "NO-ORDER"):
        order(sdk, journal, reference)
    sandbox.advance(600)
    reconcile(sdk, sandbox, journal)
    for of, amount in {"PART": 200, "WHOLE": None, "NO-ORDER": None}.items():
        sdk(refund(journal, of, amount=amount))
    sandbox.advance(600)
    report = reconcile(sdk, sandbox, journal, orders=booked(PART="FAILED", WHOLE="FAILED"))
    assert remedies(report) == {"PART": "paid and not shipped: ship"}


def test_an_order_that_was_paid_twice_is_a_difference_until_it_is_refunded(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    prompts = [sdk(collect(journal, "A", amount=500, abandon_after=each)) for each in (None, 0.001)]
    for prompt in prompts:
        sandbox.enter_pin(prompt)
    sandbox.advance(120)
    assert remedies(reconcile(sdk, sandbox, journal)) == {"A": "paid more than once: refund KES 500"}
    sdk(refund(journal, "A"))
    sandbox.advance(600)
    report = reconcile(sdk, sandbox, journal)
    assert remedies(report) == {}
    assert named(report, "refunded collected") == {"refunded": 500, "collected": 1000}


def test_every_difference_of_a_payout_is_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, "GOOD"))
    sdk(pay(journal, "BACK", phone=FAILING))
    sdk(pay(journal, "AGAIN"))
    for reference, amount in (("STRANGER", 10), ("AGAIN", 77)):
        sdk(initiate(reference, amount))
    for reference, fault in (("WATER", Fault.reset_after_commit), ("GAS", Fault.reset_before_read)):
        PAYOUTS.fail_next(sandbox, fault)
        with pytest.raises(OutcomeUnknownError):
            sdk(pay(journal, reference))
    sandbox.advance(1200)
    put(journal, "NEVER", ACCEPTED, transaction_id="no-such-id")
    moment = sandbox.now.isoformat(timespec="microseconds")
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{moment}', created_at = '{moment}'")
    execute(journal, f"UPDATE momopay_transactions SET sent_at = '{moment}'")
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
    assert not report.agrees
    assert state_of(journal, "WATER") is ACCEPTED
    assert "WATER" not in remedies(reconcile(sdk, sandbox, journal))


def test_what_the_service_does_not_have_is_of_the_day_on_which_it_was_sent(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    """A day begins at its midnight and ends before the next one, by the journal's times too."""
    day, one = today(sandbox), timedelta(days=1)
    begin = datetime(day.year, day.month, day.day, tzinfo=timezone(timedelta(hours=3)))
    moments = {
        "BEFORE": begin - timedelta.resolution,
        "FIRST": begin,
        "LAST": begin + one - timedelta.resolution,
        "AFTER": begin + one,
    }
    for reference, moment in moments.items():
        put(journal, reference, ACCEPTED, transaction_id=f"no-such-{reference}")
        created, sent = (
            each.astimezone(UTC).isoformat(timespec="microseconds") for each in (moment - timedelta(hours=1), moment)
        )
        where = f"WHERE reference = '{reference}'"
        execute(journal, f"UPDATE momopay_payments SET sent_at = '{sent}', created_at = '{created}' {where}")
        execute(journal, f"UPDATE momopay_transactions SET sent_at = '{sent}' {where}")
    missing = {
        each: sorted(remedies(reconcile(sdk, sandbox, journal, day=each))) for each in (day - one, day, day + one)
    }
    assert missing == {day - one: ["BEFORE"], day: ["FIRST", "LAST"], day + one: ["AFTER"]}


def test_a_day_is_that_of_nairobi_unless_said_otherwise(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    # To half past one in the night of Nairobi, when it is still yesterday in UTC.
    hours = (22.5 - sandbox.now.hour - sandbox.now.minute / 60) % 24
    sandbox.advance(hours * 3600)
    sdk(pay(journal))
    sandbox.advance(60)
    for table in ("payments", "transactions"):
        execute(journal, f"UPDATE momopay_{table} SET sent_at = '{sandbox.now.isoformat(timespec='microseconds')}'")
    yesterday = today(sandbox) - timedelta(days=1)
    month = {"day": today(sandbox) - timedelta(days=20), "last_day": today(sandbox)}
    for options, expected in (
        ({}, 1),
        ({"day": yesterday}, 0),
        ({"utc": True}, 0),
        ({"utc": True, "day": yesterday}, 1),
        (month, 1),
    ):
        assert reconcile(sdk, sandbox, journal, **options).transactions == expected, options


# The orders that it takes, the report that it returns, and which days it is about.

DAY = date(2026, 11, 20)
ZERO = Decimal(0)


def report(*differences: Difference) -> DayReport:
    since, until = day_bounds(DAY, None, utc=False)
    return DayReport(since, until, 1, ZERO, ZERO, ZERO, ZERO, ZERO, 0, differences)


@pytest.mark.parametrize("reference", ["=1+1", "+1", "-1", "@sum", "\tx"])
def test_the_differences_are_written_as_csv_without_formulas(tmp_path: Path, reference: str) -> None:
    path = tmp_path / "differences.csv"
    report(Difference(reference, "nothing", "PENDING 10", "find out", "t-1 t-2")).write_csv(path)
    with path.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["reference"], row["theirs"], row["transactions"]) == (f"'{reference}", "PENDING 10", "t-1 t-2")
    assert list(row) == ["reference", "ours", "theirs", "remedy", "transactions"]


def test_orders_are_read_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("\ufeffreference,amount,state\nA, 500.50 ,paid\nB,5,WAITING\n", encoding="utf-8")
    assert BookedOrder.read_csv(path) == [
        BookedOrder("A", Decimal("500.50"), "PAID"),
        BookedOrder("B", Decimal(5), "WAITING"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        *((each, "line 2") for each in (b"A,x,PAID", b"A,5,SHIPPED", b",5,PAID", b"A,nan,PAID", b"A")),
        (b"B,5,PAID\nB,6,PAID", "line 3"),
        (b"\xff,5,PAID", "UTF-8"),
    ],
)
def test_a_line_that_is_no_order_is_named(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(b"reference,amount,state\n" + line)
    with pytest.raises(RequestValidationError, match=problem):
        BookedOrder.read_csv(path)


@pytest.mark.parametrize(
    ("day", "last_day", "at_fault"),
    [
        ("2026-11-20", None, {"day"}),
        (datetime(2026, 11, 20, tzinfo=UTC), DAY, {"day"}),
        (DAY, 5, {"last_day"}),
        (DAY, DAY - timedelta(days=1), {"last_day"}),
        (date(1969, 12, 31), None, {"day"}),
        (DAY, date.max, {"last_day"}),
    ],
)
def test_what_is_no_day_is_refused(day: Any, last_day: Any, at_fault: set[str]) -> None:
    with pytest.raises(RequestValidationError) as caught:
        day_bounds(day, last_day, utc=False)
    assert caught.value.fields.keys() == at_fault
