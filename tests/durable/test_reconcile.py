"""A day of the sandbox against the journal and the orders: every difference is found, and agreement is none."""

import csv
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import pytest

from durable.kit import (
    BY_HAND,
    CANCELLING,
    FAILING,
    PAYOUTS,
    Caller,
    Serve,
    Shop,
    ago,
    initiate,
    listed,
    over_both_clients,
    payout_record,
    requests,
)
from journal.constants import ACCEPTED, COLLECTION, PHONE, REFUSED, UNKNOWN
from journal.database_kit import execute
from journal.kit import fill, put, put_collection
from momopay import APIError, Journal, OutcomeUnknownError, RequestValidationError
from momopay.durable.reconcile import day_bounds
from momopay.sandbox import Fault
from momopay.types import BookedOrder, DayReport, Difference, FaultyFileError


def today(shop: Caller) -> date:
    now = shop.sandbox.now if isinstance(shop, Shop) else datetime.now(UTC)
    return (now + timedelta(hours=3)).date()


def order(shop: Shop, reference: str, phone: str = PHONE) -> str:
    """Prompt for an order of KES 500; return the transaction's id."""
    return str(shop.collect(reference, amount=500, phone=phone).transaction_id)


def stray(shop: Shop, reference: str, amount: int = 500, phone: str = PHONE) -> None:
    """Prompt without the journal."""
    shop(lambda client: client.stk.initiate(amount=amount, phone=phone, account_reference=reference))


def reconcile(shop: Caller, **options: Any) -> DayReport:
    if "day" not in options:  # also what was begun before midnight
        options |= {"day": today(shop) - timedelta(days=3), "last_day": today(shop)}
    report = shop(lambda client: client.transactions.reconcile(journal=shop.journal, **options))
    assert isinstance(report, DayReport)
    return report


def remedies(report: DayReport) -> dict[str, str]:
    return {each.reference: each.remedy for each in report.differences}


def booked(**orders: Any) -> list[BookedOrder]:
    return [BookedOrder(reference, 500, state) for reference, state in orders.items()]


@over_both_clients
def test_a_day_that_agrees_has_its_sums(shop: Shop) -> None:
    shop.account.fee = Decimal(3)
    references = ["A", "an order that goes out as a token"]
    for each in references:
        order(shop, each)
    shop.pay("RENT", amount=900)
    shop.later(600)
    assert reconcile(shop).differences == ()  # records that A was paid
    shop.refund("A", amount=200)
    shop.later(600)
    report = reconcile(shop, orders=booked(**dict.fromkeys(references, "PAID")))
    known = {"transactions": 4, "open": 0, "unread": 0, "without_fee": 0, "came_back": 0, "fees": 12}
    sums = {"collected": 1000, "paid_out": 900, "refunded": 200, "differences": ()}
    assert vars(report) == {"since": report.since, "until": report.since + timedelta(days=4)} | known | sums
    assert report.agrees
    assert [each.reference for each in reconcile(shop, orders=[]).differences] == references, "nobody ordered it"
    assert shop.entry("RENT").status == "SUCCESS"
    assert PAYOUTS.sent(shop.sandbox) == 2


def test_every_difference_of_a_collection_is_found(shop: Shop) -> None:
    for reference in ("GOOD", "LOST", "NO-ORDER", "PRICE"):
        order(shop, reference)
    order(shop, "GIFT", CANCELLING)
    order(shop, "CLOSE", CANCELLING)
    order(shop, "LATER", BY_HAND)
    stray(shop, "CHEAP", 5)
    stray(shop, "SOON", phone=BY_HAND)
    for reference in ("STRAY", "TWICE", "TWICE", "OTHER"):
        stray(shop, reference)
    shop.later(120)
    orders = booked(
        GOOD="PAID", LOST="WAITING", GIFT="PAID", CLOSE="WAITING", LATER="WAITING", CHEAP="PAID", DREAM="PAID",
        TWICE="PAID", SOON="PAID", GONE="FAILED", OTHER="WAITING",
    )  # fmt: skip
    report = reconcile(shop, orders=[*orders, BookedOrder("PRICE", Decimal(400), "PAID")])
    shown = {each.reference: each.theirs for each in report.differences}
    assert (shown["LOST"], shown["CHEAP"], shown["DREAM"]) == ("SUCCESS 500", "SUCCESS 5", "nothing")
    assert {each.ours for each in report.differences if each.reference in {"DREAM", "CHEAP"}} == {"PAID 500"}
    (twice,) = (each for each in report.differences if each.reference == "TWICE")
    assert (twice.theirs, len({UUID(each) for each in twice.transactions.split()})) == ("SUCCESS 500, SUCCESS 500", 2)
    assert remedies(report) == {
        "LOST": "paid and not shipped: ship",
        "OTHER": "paid and not shipped: ship",
        "NO-ORDER": "nobody knows what was sold: find out, or refund",
        "GIFT": "shipped and not paid: ask the customer",
        "CLOSE": "never paid: close",
        "LATER": "it may still be paid: check again tomorrow",
        "SOON": "it may still be paid: check again tomorrow",
        "CHEAP": "another amount was paid: ask the customer, or refund",
        "PRICE": "another amount was paid: ask the customer, or refund",
        "STRAY": "nobody knows what was sold: find out, or refund",
        "DREAM": "shipped and not paid: ask the customer",
        "TWICE": "paid more than once: refund the rest",
    }
    without = remedies(reconcile(shop))
    assert without.keys() == {"CHEAP", "STRAY", "TWICE", "OTHER"}


def test_what_was_paid_otherwise_than_the_journal_asked_is_found(shop: Shop) -> None:
    """From another phone under an order's reference, and by a prompt of which only the service knew."""
    put(shop.journal, "MINE", UNKNOWN, COLLECTION, amount=500)
    stray(shop, "MINE")
    order(shop, "THEIRS", BY_HAND)
    stray(shop, "THEIRS")
    put(shop.journal, "THEIRS", REFUSED)  # a payout, which is not asked about
    shop.later(120)
    orders = booked(MINE="PAID", THEIRS="PAID")
    assert {name: remedy.partition(":")[0] for name, remedy in remedies(reconcile(shop, orders=orders)).items()} == {
        "MINE": "now in the journal",
        "THEIRS": "paid from another phone than we asked, or not by our prompt",
    }
    assert shop.state("MINE") is ACCEPTED


def test_a_payment_that_another_entry_has_is_a_difference_of_its_own_reference(serve: Serve, journal: Journal) -> None:
    """After a broken response, an entry may have the id of another payment."""
    put(journal, "another", ACCEPTED, COLLECTION, transaction_id="t-1")
    put(journal, "r", REFUSED, COLLECTION)
    shop = serve(pages=[[listed(type="STK", status="SUCCESS")]])
    remedy = "paid from another phone than we asked, or not by our prompt: find out"
    assert remedies(reconcile(shop, orders=[BookedOrder("r", 10, "PAID")])) == {"r": remedy}


# Proposals: which unpaid order a payment that nobody knows may be of.

OTHER_PHONE = "254700000000"


def proposals(shop: Caller, *orders: BookedOrder) -> dict[str, str]:
    report = reconcile(shop, orders=orders or None)
    return {each.reference: each.proposal for each in report.differences if each.proposal}


@over_both_clients
def test_a_payment_that_nobody_knows_and_an_unpaid_order_propose_each_other(shop: Shop) -> None:
    """A customer cancels the prompt and pays by a pay link. The order does not count as paid."""
    shop.sandbox.cancel(order(shop, "MINE", BY_HAND))
    stray(shop, "LINK", phone=PHONE)
    shop.later(120)
    for orders in (booked(MINE="WAITING"), None):
        report = reconcile(shop, orders=orders)
        found = {each.reference: (each.kind, each.proposal) for each in report.differences}
        assert found["LINK"] == ("unknown_payment", "perhaps of MINE: it has the same amount")
        assert orders is None or found["MINE"][0] == "never_paid"
        assert orders is None or "perhaps paid by " in found["MINE"][1]
    assert shop.entry("MINE").status == "CANCELLED"
    assert reconcile(shop, orders=booked(MINE="WAITING", LINK="PAID")).differences[0].proposal == "", "it is known"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "phone and amount"),
        ({"amount": 12}, "phone"),
        ({"phone": "2547*****678", "amount": 12}, "phone"),
        ({"phone": OTHER_PHONE}, "amount"),
        ({"phone": OTHER_PHONE, "amount": 12}, None),
        ({"age": timedelta(hours=23)}, "phone and amount"),
        ({"age": timedelta(hours=25)}, None),
        ({"status": "FAILED"}, None),
        ({"type": "WALLET_TOPUP"}, None),
    ],
)
def test_an_order_is_proposed_by_phone_or_amount_within_a_day(
    serve: Serve, journal: Journal, fields: dict[str, Any], why: str | None
) -> None:
    put(journal, "MINE", ACCEPTED, COLLECTION, transaction_id="t-2", status="CANCELLED")
    put(journal, "PAID", ACCEPTED, COLLECTION, transaction_id="t-3", status="SUCCESS")
    put(journal, "PAYOUT", REFUSED)
    stated: dict[str, Any] = {"type": "STK", "status": "SUCCESS"}
    found = proposals(serve(pages=[[listed("LINK", **stated | fields)]], read=listed("MINE")))
    assert found == ({} if why is None else {"LINK": f"perhaps of MINE: it has the same {why}"})


def test_the_orders_that_fit_best_are_proposed_and_not_all_that_cost_the_same(serve: Serve, journal: Journal) -> None:
    for number in range(5):
        put(journal, f"r{number}", REFUSED, COLLECTION)
        then = ago(timedelta(hours=5 - number))
        change = f"phone = '{OTHER_PHONE}', created_at = '{then}', sent_at = '{then}'"
        execute(journal, f"UPDATE momopay_payments SET {change} WHERE reference = 'r{number}'")
    shop = serve(pages=[[listed("LINK", type="STK", status="SUCCESS")]])
    nearest = [f"perhaps of r{number}: it has the same amount" for number in (4, 3, 2)]
    assert proposals(shop) == {"LINK": "; ".join(nearest)}
    put(journal, "same phone", REFUSED, COLLECTION)
    assert proposals(shop) == {"LINK": "perhaps of same phone: it has the same phone and amount"}


def test_the_books_alone_have_an_order_to_propose(serve: Serve, journal: Journal) -> None:
    put(journal, "MINE", REFUSED)  # a payout, which is not asked about
    orders = [BookedOrder("MINE", 10, "PAID"), BookedOrder("DEAR", 11, "PAID")]
    orders.append(BookedOrder("GIVEN-UP", Decimal("10.00"), "FAILED"))
    found = proposals(serve(pages=[[listed("LINK", type="STK", status="SUCCESS")]]), *orders)
    assert found["MINE"] == "perhaps paid by t-1: it has the same amount"
    fitting = [f"perhaps of {each}: it has the same amount" for each in ("GIVEN-UP", "MINE")]
    assert sorted(found["LINK"].split("; ")) == fitting
    found = proposals(serve(pages=[[listed(accountReference=None, type="STK", status="SUCCESS")]]), *orders)
    assert sorted(found[""].split("; ")) == fitting, "a payment without a reference"


def test_an_order_is_proposed_by_the_time_at_which_it_was_sent_last(serve: Serve, journal: Journal) -> None:
    """Though it was begun a week before, and unless it was paid."""
    shop = serve(pages=[[listed("LINK", type="STK", status="SUCCESS")]])
    assert proposals(shop) == {}
    put(journal, "PAID", ACCEPTED, COLLECTION, transaction_id="t-2", status="SUCCESS")
    execute(journal, f"UPDATE momopay_payments SET created_at = '{ago(timedelta(days=30))}'")
    assert proposals(shop, BookedOrder("PAID", 10, "PAID")) == {}
    put(journal, "AGAIN", REFUSED, COLLECTION)
    execute(journal, f"UPDATE momopay_payments SET created_at = '{ago(timedelta(days=10))}' WHERE reference = 'AGAIN'")
    assert proposals(shop) == {"LINK": "perhaps of AGAIN: it has the same phone and amount"}


def test_fees_that_the_service_does_not_show_are_counted(shop: Shop) -> None:
    """The wallet pays the fee of a payment that fails, too."""
    shop.account.fee = Decimal(3)
    before = shop.account.service_balance
    order(shop, "A")
    order(shop, "B", CANCELLING)
    shop.pay("RENT", phone=FAILING)
    shop.later(1200)
    report = reconcile(shop)
    assert (report.fees, before - shop.account.service_balance) == (Decimal(3), Decimal(9))
    assert report.without_fee == 2


def test_a_payment_from_before_an_order_is_not_its_own(shop: Shop) -> None:
    put(shop.journal, "METER", UNKNOWN, COLLECTION, amount=500)
    stray(shop, "METER")
    shop.later(120)
    later = (shop.sandbox.now + timedelta(minutes=10)).isoformat(timespec="microseconds")
    execute(shop.journal, f"UPDATE momopay_payments SET sent_at = '{later}', created_at = '{later}'")
    days = {"day": today(shop) - timedelta(days=1), "last_day": today(shop) + timedelta(days=1)}  # as at midnight
    difference, unresolved = reconcile(shop, orders=booked(METER="PAID"), **days).differences
    assert difference.remedy == "paid from another phone than we asked, or not by our prompt: find out"
    assert unresolved.remedy.startswith("it may have been paid")
    assert shop.state("METER") is UNKNOWN


def test_the_services_clock_counts(serve: Serve, journal: Journal) -> None:
    """An order was sent by a machine that was ten minutes ahead; that is no older payment."""
    put(journal, "o", UNKNOWN, COLLECTION)
    put(journal, "p", transaction_id="t-2")
    age = timedelta(minutes=10)
    rows = [listed("o", type="STK", status="SUCCESS", age=age), listed("p", transactionId="t-2", status="PROCESSING")]
    shop = serve(pages=[rows], ahead=-age)
    for _ in range(2):
        report = reconcile(shop)
        assert (report.transactions, report.open, report.without_fee) == (2, 1, 0)
    assert shop.seen.changes() == ["-> ACCEPTED SUCCESS", "ACCEPTED -> ACCEPTED PROCESSING"]
    assert shop.state("o", COLLECTION) is ACCEPTED


def test_what_became_of_an_order_on_another_day_counts(shop: Shop) -> None:
    """One that was paid, one that is open, and one that may have been paid."""
    for reference in ("SHIPPED", "FORGOTTEN"):
        order(shop, reference)
    shop.later(600)
    reconcile(shop)
    order(shop, "OPEN", BY_HAND)
    put(shop.journal, "UNKNOWN", UNKNOWN, COLLECTION, amount=500)
    put(shop.journal, "OPEN", REFUSED)  # a payout, which is not asked about
    for state in ("PAID", "WAITING"):
        orders = booked(SHIPPED="PAID", FORGOTTEN="WAITING", OPEN=state, UNKNOWN=state)
        *open_orders, unresolved = reconcile(shop, day=today(shop) + timedelta(days=1), orders=orders).differences
        assert {each.reference: each.remedy for each in open_orders} == {
            "FORGOTTEN": "paid and not shipped: ship",
            "OPEN": "it may still be paid: check again tomorrow",
            "UNKNOWN": "it may still be paid: check again tomorrow",
        }
        remedy = "it may have been paid: look into the account console, then release what was not paid"
        assert unresolved == Difference("UNKNOWN", "UNKNOWN 500", "nothing", remedy, "", "unresolved")


def test_an_order_that_was_paid_back_is_not_to_be_shipped(shop: Shop) -> None:
    for reference in ("PART", "WHOLE", "NO-ORDER"):
        order(shop, reference)
    shop.later(600)
    reconcile(shop)
    for of, amount in {"PART": 200, "WHOLE": None, "NO-ORDER": None}.items():
        shop.refund(of, amount=amount)
    shop.later(600)
    report = reconcile(shop, orders=booked(PART="FAILED", WHOLE="FAILED"))
    assert remedies(report) == {"PART": "paid and not shipped: ship"}


def test_an_order_that_was_paid_twice_is_a_difference_until_it_is_refunded(shop: Shop) -> None:
    prompts = [shop.collect("A", amount=500, abandon_after=each) for each in (None, 0)]
    for prompt in prompts:
        shop.sandbox.enter_pin(prompt)
    shop.later(120)
    assert remedies(reconcile(shop)) == {"A": "paid more than once: refund KES 500"}
    assert reconcile(shop, day=today(shop) + timedelta(days=1), orders=booked(A="PAID")).agrees, "of another day"
    shop.refund("A")
    shop.later(600)
    report: Any = reconcile(shop)
    assert remedies(report) == {}
    assert (report.refunded, report.collected) == (500, 1000)


def test_every_difference_of_a_payout_is_found(shop: Shop) -> None:
    shop.pay("GOOD")
    shop.pay("BACK", phone=FAILING)
    shop.pay("AGAIN")
    shop.pay("TWICE")
    shop.sandbox.end_next("insufficient_funds", kind="payout")
    shop.pay("MADE")
    for reference, amount in (("STRANGER", 10), ("AGAIN", 77), ("TWICE", 10), ("MADE", 10)):
        shop(initiate(reference, amount))
    shop.later(1200)
    for reference, fault in (("WATER", Fault.reset_after_commit), ("GAS", Fault.reset_before_read)):
        PAYOUTS.fail_next(shop.sandbox, fault)
        with pytest.raises(OutcomeUnknownError):
            shop.pay(reference)
    put(shop.journal, "NEVER", ACCEPTED, transaction_id="no-such-id")
    moment = (shop.sandbox.now - timedelta(seconds=1200)).isoformat(timespec="microseconds")
    execute(shop.journal, f"UPDATE momopay_payments SET sent_at = '{moment}', created_at = '{moment}'")
    execute(shop.journal, f"UPDATE momopay_transactions SET sent_at = '{moment}'")
    report = reconcile(shop)
    assert {name: remedy.partition(":")[0] for name, remedy in remedies(report).items()} == {
        "BACK": "the money came back",
        "STRANGER": "not in our journal",
        "AGAIN": "not the payout that we sent under this reference",
        "TWICE": "paid more than once",
        "MADE": "now ACCEPTED in the journal",  # and not: pay it, because the first attempt came back
        "WATER": "now ACCEPTED in the journal",
        "GAS": "it may have been paid",
        "NEVER": "the service does not have it",
    }
    assert remedies(report)["BACK"].endswith("came back: pay under a new reference")
    ours = {each.reference: each.ours for each in report.differences}
    assert (ours["BACK"], ours["GAS"], ours["STRANGER"]) == ("REVERSED 10", "UNKNOWN 10", "nothing")
    assert ours["AGAIN"] == "PENDING 10", "as it was when its stranger was looked up"
    assert report.came_back == 20
    assert report.fees == 8
    assert not report.agrees
    assert shop.state("WATER") is ACCEPTED
    assert "WATER" not in remedies(reconcile(shop))
    empty = reconcile(shop, day=today(shop) - timedelta(days=9))
    assert empty.agrees, "what is unresolved began later"
    assert {repr(each) for each in (empty.collected, empty.fees)} == {"Decimal('0')"}


@pytest.mark.parametrize(("refund_of", "what"), [(None, "pay"), ("o", "refund")])
def test_a_payout_that_failed_is_to_be_paid_again_only_once_its_money_is_back(
    serve: Serve, journal: Journal, refund_of: str | None, what: str
) -> None:
    put_collection(journal, amount=10)
    put(journal, refund_of=refund_of, transaction_id="t-1")
    report = reconcile(serve(pages=[[listed(status="FAILED")]]))
    assert remedies(report) == {"r": f"it failed: once it is REVERSED, {what} under a new reference"}


@pytest.mark.parametrize(("status", "why"), [("CANCELLED", "it was cancelled:"), ("REVERSED", "the money came back:")])
def test_a_refund_that_was_not_paid_is_a_difference_until_it_is_paid(
    serve: Serve, journal: Journal, status: str, why: str
) -> None:
    put_collection(journal, amount=10)
    shop = serve(pages=[[listed(transactionId="t-r", status=status)]])
    remedy = f"{why} refund under a new reference"
    for reference, amount, expected in (("r", 10, [remedy]), ("r-2", 9, [remedy]), ("r-3", 1, [])):
        put(journal, reference, amount=amount, refund_of="o", transaction_id=f"t-{reference}")
        assert [each.remedy for each in reconcile(shop).differences if each.reference == "r"] == expected


def test_what_the_service_does_not_have_is_of_the_day_on_which_it_was_sent(shop: Shop) -> None:
    """A day begins at its midnight and ends before the next one, by the journal's times too."""
    day, one, tick = today(shop), timedelta(days=1), timedelta.resolution
    begin = datetime(day.year, day.month, day.day, tzinfo=timezone(timedelta(hours=3)))
    moments = {"BEFORE": begin - tick, "FIRST": begin, "LAST": begin + one - tick, "AFTER": begin + one}
    for reference, moment in moments.items():
        put(shop.journal, reference, ACCEPTED, transaction_id=f"no-such-{reference}")
        created, sent = (
            each.astimezone(UTC).isoformat(timespec="microseconds") for each in (moment - timedelta(hours=1), moment)
        )
        where = f"WHERE reference = '{reference}'"
        execute(shop.journal, f"UPDATE momopay_payments SET sent_at = '{sent}', created_at = '{created}' {where}")
        execute(shop.journal, f"UPDATE momopay_transactions SET sent_at = '{sent}' {where}")
    missing = {each: sorted(remedies(reconcile(shop, day=each))) for each in (day - one, day, day + one)}
    assert missing == {day - one: ["BEFORE"], day: ["FIRST", "LAST"], day + one: ["AFTER"]}


@pytest.mark.usefixtures("no_backoff")
def test_a_record_that_cannot_be_read_is_a_difference(shop: Shop) -> None:
    for identity, status in (("unreadable", "FAILED"), ("another", None)):
        put(shop.journal, "r", ACCEPTED, COLLECTION, transaction_id=identity, status=status)
    shop.sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit, times=4)
    remedy = "the service's record of it cannot be read: look into the account console"
    first, second = reconcile(shop).differences
    assert first == Difference("r", "ACCEPTED 10", "nothing", remedy, "unreadable another", "unreadable")
    assert second.transactions == "unreadable another"


def test_all_that_the_list_does_not_show_is_read(shop: Shop) -> None:
    fill(shop.journal, 120)
    execute(shop.journal, "UPDATE momopay_accounts SET sequence = -1")  # it may have gone back in time
    reconcile(shop, day=date(2026, 11, 20))
    assert len(requests(shop.sandbox)) == 1 + 120
    (query,) = (parse_qs(each.query) for each in shop.sandbox.requests if each.path == "/transactions")
    assert query == {"limit": ["100"], "from": ["2026-11-20T00:00:00+03:00"], "to": ["2026-11-21T00:00:00+03:00"]}


@pytest.mark.parametrize(("time", "transactions"), [("21T00:00:00", 1), ("22T00:00:00", 0)])
def test_an_item_that_cannot_be_read_is_read_by_its_id(
    serve: Serve, journal: Journal, time: str, transactions: int
) -> None:
    """The service's record has the time, and the journal has the type."""
    put(journal, "r", ACCEPTED, transaction_id="t-1")
    execute(journal, "UPDATE momopay_payments SET sent_at = '2026-11-21T10:00', created_at = '2026-11-21T10:00'")
    execute(journal, "UPDATE momopay_transactions SET sent_at = '2026-11-21T10:00'")
    record = payout_record(status="SUCCESS", type=None, createdAt=f"2026-11-{time}+03:00")
    report = reconcile(serve(pages=[[listed(amount="?")]], read=record), day=date(2026, 11, 21))
    assert (report.transactions, report.unread) == (transactions, 0)
    assert report.paid_out == 10 * transactions


def test_each_item_that_cannot_be_read_is_a_difference(serve: Serve) -> None:
    """Of two pages, of which the second shows one of the first again."""
    bad, nameless = listed("bad", amount="?"), listed("", transactionId=7, phone=None)
    report = reconcile(serve(pages=[[bad, nameless], [bad, nameless, nameless]]))
    assert (report.transactions, report.unread) == (0, 4)
    amount = "cannot be read (amount: Input should be a valid decimal): look into the account console"
    string = "Input should be a valid string"
    others = f"cannot be read (transactionId: {string}; phone: {string}): look into the account console"
    assert report.differences == (
        Difference("bad", "nothing", "an item of the list", amount, "t-1", "unread_item"),
        *[Difference("", "nothing", "an item of the list", others, "", "unread_item")] * 3,
    )


def test_a_day_is_that_of_nairobi_unless_said_otherwise(shop: Shop) -> None:
    # To half past one in the night of Nairobi, when it is still yesterday in UTC.
    hours = (22.5 - shop.sandbox.now.hour - shop.sandbox.now.minute / 60) % 24
    shop.later(hours * 3600)
    shop.pay()
    shop.later(60)
    for table in ("payments", "transactions"):
        execute(
            shop.journal,
            f"UPDATE momopay_{table} SET sent_at = '{shop.sandbox.now.isoformat(timespec='microseconds')}'",
        )
    yesterday = today(shop) - timedelta(days=1)
    month = {"day": today(shop) - timedelta(days=20), "last_day": today(shop)}
    for options, expected in (
        ({"day": today(shop)}, 1),
        ({"day": yesterday}, 0),
        ({"day": today(shop), "utc": True}, 0),
        ({"utc": True, "day": yesterday}, 1),
        (month, 1),
    ):
        assert reconcile(shop, **options).transactions == expected, options
    before = (shop.sandbox.now - timedelta(hours=3)).isoformat(timespec="microseconds")
    execute(shop.journal, f"UPDATE momopay_transactions SET sent_at = '{before}'")
    shop.account.switches.minimal_answers = False  # or else its read has no time
    assert reconcile(shop, day=yesterday).transactions == 0, "the service has it on the next day"


# The orders that it takes, the report that it returns, and which days it is about.

DAY = date(2026, 11, 20)


@pytest.mark.parametrize("reference", ["=1+1", "+1", "-1", "@sum", "\tx"])
def test_the_differences_are_written_as_csv_without_formulas(tmp_path: Path, reference: str) -> None:
    path = tmp_path / "differences.csv"
    difference, no = Difference(reference, "nothing", "PENDING 10", "find out", "t-1 t-2"), Decimal(0)
    DayReport(*day_bounds(DAY, None), 1, no, no, no, no, no, 0, 0, (difference,)).write_csv(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        (row,) = csv.DictReader(file)
    assert (row["reference"], row["theirs"], row["transactions"]) == (f"'{reference}", "PENDING 10", "t-1 t-2")
    assert list(row) == ["reference", "ours", "theirs", "remedy", "transactions", "kind", "proposal"]


def test_orders_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    for end in ("\n", "\r\n", "\r"):
        path.write_bytes(end.join(["\ufeffreference,amount,state", "A, 500.50 ,paid", "B,5,WAITING", ""]).encode())
        wanted = [BookedOrder("A", Decimal("500.50"), "PAID"), BookedOrder("B", 5, "WAITING")]
        assert BookedOrder.read_csv(path) == BookedOrder.read(path) == wanted


def test_a_faulty_file_is_no_orders(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("reference,amount,state\nA,x,PAID\nB,1,250\n")
    for read in (BookedOrder.read_csv, BookedOrder.read):
        with pytest.raises(FaultyFileError) as caught:
            read(path)
        assert [(each.line, each.column) for each in caught.value.faults] == [
            (2, "amount"),
            (3, "amount"),
            (3, "state"),
        ]


@pytest.mark.parametrize(
    ("day", "last_day", "problems"),
    [
        ("2026-11-20", None, {"day": "must be a date without a time"}),
        (datetime(2026, 11, 20, tzinfo=UTC), DAY, {"day": "must be a date without a time"}),
        (DAY, 5, {"last_day": "must be a date without a time"}),
        (DAY, DAY - timedelta(days=1), {"last_day": "is before the first day"}),
        (date(1969, 12, 31), None, {"day": "must be in the years 1970 to 9998"}),
        (DAY, date.max, {"last_day": "must be in the years 1970 to 9998"}),
    ],
)
def test_what_is_no_day_is_refused(day: Any, last_day: Any, problems: dict[str, str]) -> None:
    with pytest.raises(RequestValidationError) as caught:
        day_bounds(day, last_day)
    assert caught.value.fields == problems


def test_a_day_may_be_the_first_and_the_last() -> None:
    assert day_bounds(DAY, DAY, UTC) == day_bounds(DAY, None, UTC)


@pytest.mark.parametrize("missing", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
def test_a_missing_time_at_the_end_of_a_page_ends_no_walk(serve: Serve, missing: str) -> None:
    assert reconcile(serve(pages=[[listed("another", createdAt=missing)], [listed()]])).transactions == 1


@pytest.mark.parametrize(("day", "transactions", "pages_read"), [(20, 1, 4), (21, 2, 3)])
def test_midnight_is_of_the_day_that_begins(serve: Serve, day: int, transactions: int, pages_read: int) -> None:
    """And the walk ends with the first page that shows something older than the day."""
    times = ["21T12:00:00", "21T00:00:00", "20T23:59:59", "19T12:00:00", "18T12:00:00"]
    shop = serve(pages=[[listed(createdAt=f"2026-11-{each}+03:00", transactionId=each)] for each in times])
    assert reconcile(shop, day=date(2026, 11, day)).transactions == transactions
    assert len(shop.requests) == pages_read


@pytest.mark.parametrize(
    ("amount", "state"), [(4500.0, "PAID"), ("4500", "PAID"), (True, "PAID"), (-1, "PAID"), (4500, "paid"), (4500, "")]
)
def test_what_is_no_order_is_refused(amount: Any, state: Any) -> None:
    """Its amount would differ from every payment, or its state be taken for another one."""
    with pytest.raises(RequestValidationError) as caught:
        BookedOrder("A", amount, state)
    assert caught.value.fields.keys() == {"amount" if state == "PAID" else "state"}
    assert "None" not in str(caught.value)
    assert BookedOrder("A", 0, "PAID").amount == 0


@over_both_clients
def test_where_the_service_does_not_filter_by_time_the_reconciliation_does(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.account.rate_limit = None
    days = {"day": today(shop) + timedelta(days=10), "last_day": today(shop) + timedelta(days=12)}
    for number in range(3):  # before the days, on them, and after them
        stray(shop, f"lost-{number}")
        shop.pay(f"RENT-{number}", amount=900 + number)
        spoiled = order(shop, f"bad-{number}")
        shop.sandbox.spoil(spoiled, "phone")
        shop.later(11 * 86_400 if number == 0 else 9 * 86_400)
    expected = reconcile(shop, **days)
    shop.account.switches.time_filters = False
    before = len(shop.sandbox.requests)
    report = reconcile(shop, **days)
    asked = [parse_qs(each.query) for each in shop.sandbox.requests[before:] if each.path == "/transactions"]
    assert [sorted(each) for each in asked] == [["from", "limit", "to"], ["limit"]]
    assert (report.transactions, int(report.paid_out)) == (expected.transactions, int(expected.paid_out))
    assert remedies(report) == remedies(expected)
    assert "lost-1" in remedies(report)
    assert not {"lost-0", "lost-2"} & set(remedies(report))
    assert caplog.text.count("the service does not filter by time") == 1


@over_both_clients
@pytest.mark.parametrize(("status", "code", "asked"), [(400, "HTTP_400", 2), (403, "INSUFFICIENT_SCOPE", 1)])
def test_another_refusal_of_the_list_is_an_error(shop: Shop, status: int, code: str, asked: int) -> None:
    shop.pay()
    before = len(shop.sandbox.requests)
    shop.sandbox.fail_next("GET", "/transactions", Fault.refused_before_commit, times=9, status=status, code=code)
    with pytest.raises(APIError, match=code):
        reconcile(shop)
    shop.sandbox.clear_planned()
    assert len([each for each in shop.sandbox.requests[before:] if each.path == "/transactions"]) == asked


@over_both_clients
def test_the_walk_without_filters_ends_at_the_days(shop: Shop) -> None:
    shop.account.rate_limit, shop.account.switches.time_filters = None, False
    for number in range(110):
        stray(shop, f"old-{number}", amount=1)
    shop.later(5 * 86_400)
    stray(shop, "new")
    before = len(shop.sandbox.requests)
    report = reconcile(shop, day=today(shop), last_day=today(shop))
    assert report.transactions == 1
    asked = [each for each in shop.sandbox.requests[before:] if each.path == "/transactions"]
    assert len(asked) == 2  # with filters, and the first page of two
