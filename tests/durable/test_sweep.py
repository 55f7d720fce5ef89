"""A sweep reaches every end, records it, and stays within its requests."""

import logging
import random
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from bodies import refusal
from drivers import Drive
from durable.kit import (
    CANCELLING,
    FAILING,
    ORDERS,
    PAYOUTS,
    Handler,
    Lanes,
    Service,
    Shop,
    ago,
    collect,
    initiate,
    listed,
    over_both_clients,
    pay,
    requests,
    sweep,
)
from events_kit import Watcher
from in_turn import some_by_default
from journal.constants import ACCEPTED, COLLECTION, PAYOUT, PHONE, UNKNOWN
from journal.database_kit import execute
from journal.kit import begin, fill, found, lease_of, put, record, state_of
from journal.records import payout
from models.kit import parse
from momopay import (
    CallbackError,
    CallbackMismatchError,
    ConfigurationError,
    EntryKind,
    Journal,
    JournalState,
    MomoPayError,
    OutcomeUnknownError,
    Payment,
    Transaction,
)
from momopay.probe.channels import random_letters
from momopay.sandbox import Fault
from momopay.types import Lane, SweepReport

HOUR = 3600.0


@over_both_clients
def test_all_ends_are_recorded_by_one_request(shop: Shop) -> None:
    assert (shop.sweep(Handler()), requests(shop.sandbox)) == (SweepReport(), [])  # an empty journal costs nothing
    shop.pay("a")
    shop.collect("b", phone=PHONE)
    shop.collect("c", phone=CANCELLING)
    assert shop.sweep() == SweepReport(open=3)
    shop.later(600)
    before = len(shop.sandbox.requests)
    assert shop.sweep() == SweepReport(settled=3)
    # A page does not show why the prompt was cancelled.
    cancelled = f"GET /transactions/{shop.entry('c').transaction_id}"
    assert requests(shop.sandbox)[before - len(shop.sandbox.requests) :] == ["GET /transactions", cancelled]
    assert [shop.entry(each).status for each in "abc"] == ["SUCCESS", "SUCCESS", "CANCELLED"]
    entry = shop.entry("c")
    assert (entry.result_code, entry.has_settled, entry.ended_at is not None) == ("1032", True, True)
    assert shop.journal.open() == []
    shop.sweep()
    assert requests(shop.sandbox)[-2:] == [cancelled, "GET /transactions"]  # it is known why


def test_a_lost_answer_and_a_lost_callback_are_found(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    long = "ORDER-1 of a long name"
    for calls, call in ((PAYOUTS, pay(shop.journal)), (ORDERS, collect(shop.journal, long, phone=PHONE))):
        calls.fail_next(shop.sandbox, Fault.error_after_commit)
        with pytest.raises(OutcomeUnknownError):
            shop(call)
    put(shop.journal, "never made", UNKNOWN)
    shop.later(HOUR)
    assert shop.sweep(Handler()) == SweepReport(settled=2, unknown=1, handled=2)
    assert [shop.entry(each).state for each in ("r", long, "never made")] == [ACCEPTED, ACCEPTED, UNKNOWN]
    assert [shop.entry(each).status for each in ("r", long)] == ["SUCCESS", "SUCCESS"]
    assert "never made" not in caplog.text  # it is normal, so no warning


def test_items_that_cannot_be_read_are_counted_once(drive: Drive, journal: Journal) -> None:
    for each in "pqrs":
        put(journal, each)
    broken = ["no item", "no item", {"transactionId": "x", "amount": "?"}]
    p, q, r, s = (listed(each, transactionId=f"t-{each}") for each in "pqrs")
    service = Service(pages=[[p, q, *broken], [r, s, *broken]])
    assert drive(transport=service.transport)(sweep(journal)) == SweepReport(open=4, unread=5)


def test_a_prompt_is_read_once_more_by_the_services_clock(drive: Drive, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="CANCELLED")
    earlier = ago(timedelta(minutes=11))
    execute(journal, f"UPDATE momopay_transactions SET learned_at_service = '{earlier}', ended_at = '{earlier}'")
    service = Service(read=listed(type="STK", status="CANCELLED", age=timedelta(minutes=11)), ahead=timedelta(0))
    drive(transport=service.transport)(sweep(journal))
    assert service.requests == ["GET /transactions", "GET /transactions/t-1"]


# How many requests a pass makes.


@pytest.mark.parametrize(("other", "pages"), some_by_default([(98, 11), (0, 10), (99, 4)]))
def test_a_thousand_open_payments_cost_a_page_for_each_hundred(
    drive: Drive, journal: Journal, other: int, pages: int
) -> None:
    """Also if they are not the newest of the list, unless a page shows too little of them."""
    fill(journal, 999)
    execute(journal, "UPDATE momopay_transactions SET status = 'PENDING'")
    rows = [listed(each.reference, transactionId=each.transaction_id) for each in journal.entries()]
    rows[300:300] = [listed(f"other {each}", transactionId=f"o{each}") for each in range(other)]
    service = Service(pages=[rows[start : start + 100] for start in range(0, len(rows), 100)], read=rows[-1])
    lanes = Lanes()
    assert drive(transport=service.transport, budget=lanes)(sweep(journal)).open == 1000
    assert len(service.requests) <= 14
    assert lanes.taken == [Lane.PAYMENT, *[Lane.POLL] * len(service.requests)], "it waits for every payment"
    assert service.requests.count("GET /transactions") == pages


@pytest.mark.parametrize(
    ("age", "state", "pages"),
    [(timedelta(days=1), UNKNOWN, 12), (timedelta(minutes=14.4), ACCEPTED, 12), (timedelta(minutes=1), UNKNOWN, 4)],
)
def test_what_is_unresolved_is_searched_for_as_far_as_a_pass_reaches(
    drive: Drive, journal: Journal, age: timedelta, state: JournalState, pages: int
) -> None:
    """A page shows a minute and a half, so twelve pages show eighteen minutes. Clocks differ by up to five minutes."""
    put(journal, "r", UNKNOWN, clock_offset=0.0)
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{ago(age)}'")
    rows = [listed("other", transactionId=f"o{each}", age=timedelta(seconds=each)) for each in range(1300)]
    rows[900] = listed("r", transactionId="r-1", age=timedelta(minutes=15))
    service = Service(pages=[rows[start : start + 100] for start in range(0, 1300, 100)])
    drive(transport=service.transport)(sweep(journal))
    assert state_of(journal) is state
    assert service.requests == ["GET /transactions"] * pages


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_a_text_that_no_index_takes_stops_no_end(drive: Drive, journal: Journal) -> None:
    put(journal, transaction_id="t-r")
    put(journal, "s", transaction_id="t-s")
    rows = [listed(each, transactionId=f"t-{each}", status="SUCCESS") for each in "rs"]
    rows[0]["momo_receipt"] = random.Random(1).randbytes(4000).hex()
    report = drive(transport=Service(pages=[rows]).transport)(sweep(journal, Handler()))
    assert report == SweepReport(settled=2, handled=2)
    assert found(journal).receipt is None


def test_what_was_released_takes_no_others(drive: Drive, journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """Two orders share a reference. What only looks like a released one is a warning."""
    for reference, state in (("r", JournalState.NOT_SENT), ("s", UNKNOWN), ("looks alike", JournalState.NOT_SENT)):
        put(journal, reference, state, COLLECTION)
    execute(journal, "UPDATE momopay_payments SET search_after = 0 WHERE state = 'NOT_SENT'")
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'METER' WHERE reference IN ('r', 's')")
    rows = [listed("METER", type="STK"), listed("looks alike", type="STK", amount=11, transactionId="t-2")]
    drive(transport=Service(pages=[rows]).transport)(sweep(journal))
    assert [found(journal, each).transaction_ids for each in ("r", "s", "looks alike")] == [(), ("t-1",), ()]
    assert "'looks alike' was released, and may have been made: a transaction has its reference" in caplog.text


def test_the_transaction_of_another_order_is_no_match(
    drive: Drive, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """Two orders share a reference."""
    put(journal, "s", ACCEPTED, COLLECTION, transaction_id="t-1", status="SUCCESS")
    put(journal, "r", UNKNOWN, COLLECTION)
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'METER'")
    with caplog.at_level(logging.INFO):
        drive(transport=Service(pages=[[listed("METER", type="STK", status="SUCCESS")]]).transport)(sweep(journal))
    assert [found(journal, each).transaction_ids for each in "rs"] == [(), ("t-1",)]
    assert "transactions fit" not in caplog.text


def test_a_released_payment_is_searched_for_until_its_time_by_the_services_clock(
    drive: Drive, journal: Journal
) -> None:
    put(journal, "r", JournalState.NOT_SENT)
    after = (datetime.now(UTC) - timedelta(minutes=1)).timestamp()
    execute(journal, f"UPDATE momopay_payments SET search_after = {after}")
    for ahead, is_left in ((timedelta(hours=-1), True), (timedelta(0), False)):
        drive(transport=Service(ahead=ahead).transport)(sweep(journal))
        ((left,),) = execute(journal, "SELECT search_after FROM momopay_payments")
        assert (left is not None) is is_left


def test_an_item_that_cannot_be_read_is_read_by_id_whatever_else_is_searched_for(
    drive: Drive, journal: Journal
) -> None:
    for each in "qrs":
        put(journal, each, UNKNOWN)
    service = Service(pages=[[listed(transactionId="t-9", phone=None)]], read=listed(transactionId="t-9"))
    drive(transport=service.transport)(sweep(journal))
    assert [state_of(journal, each) for each in "qrs"] == [UNKNOWN, ACCEPTED, UNKNOWN]


def test_a_lost_prompt_that_failed_is_read_by_id_for_the_reason(
    drive: Drive, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    put(journal, "r", UNKNOWN, COLLECTION)
    put(journal, "never made", JournalState.NOT_SENT, COLLECTION)
    execute(journal, "UPDATE momopay_payments SET search_after = 0 WHERE state = 'NOT_SENT'")
    shown = listed(type="STK", status="CANCELLED")
    service, seen, handler = Service(pages=[[shown]], read={**shown, "resultCode": "1032"}), Watcher(), Handler()
    with caplog.at_level(logging.INFO):
        drive(transport=service.transport, on_event=seen)(sweep(journal, handler))
    assert service.requests == ["GET /transactions", "GET /transactions/t-1"]
    assert (seen.changes(), handler.ends) == (["UNKNOWN -> ACCEPTED CANCELLED"], [("r", "CANCELLED")])
    assert "stays unknown" not in caplog.text
    assert "was released" not in caplog.text
    assert (found(journal).result_code, handler.payments[0].result_code) == ("1032", "1032")


# Records that are not what they seem.


def test_the_record_of_another_payment_is_not_this_ones_end(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    other = shop(initiate("other"))
    put(shop.journal, "r", ACCEPTED, transaction_id=other.transaction_id)
    shop.later(HOUR)
    handler = Handler()
    assert shop.sweep(handler) == SweepReport(unknown=1)
    assert (handler.ends, shop.entry().state) == ([], UNKNOWN)
    assert "the service's record has another reference" in caplog.text


def test_a_late_end_with_another_amount_is_not_that_of_a_prompt(drive: Drive, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="CANCELLED")
    execute(journal, "UPDATE momopay_transactions SET learned_at = learned_at - 3600")
    other, seen = listed(type="STK", status="SUCCESS", amount=11), Watcher()
    sdk = drive(transport=Service(pages=[[other]], read=other).transport, on_event=seen)
    assert sdk(sweep(journal)) == SweepReport(unknown=1)
    assert (found(journal).transactions, seen.changes()) == ((), ["ACCEPTED -> UNKNOWN SUCCESS"])


def test_what_a_page_shows_with_the_fee_in_its_amount_is_read_by_id(shop: Shop) -> None:
    shop.account.switches.list_amount = "with_fee"
    shop.pay()
    shop.collect("s", phone=PHONE)
    shop.later(HOUR)
    handler = Handler()
    assert shop.sweep(handler) == SweepReport(settled=2, handled=2)
    assert (shop.entry().status, shop.entry("s").status) == ("SUCCESS", "SUCCESS")
    assert [each.amount for each in handler.payments] == [10, 10]


def test_what_the_service_does_not_know_stops_nothing(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    put(shop.journal, "lost", ACCEPTED, transaction_id="no-such-id")
    put(shop.journal, "paid", ACCEPTED, transaction_id="nor-this", status="SUCCESS")
    shop.pay()
    shop.later(HOUR)
    with caplog.at_level(logging.WARNING):
        assert shop.sweep(Handler()) == SweepReport(settled=1, open=1, handled=1)
    assert "no-such-id" in caplog.text


@pytest.mark.parametrize(
    ("status", "code", "read"),
    [(500, "NO", 13), (403, "NO", 13), (200, "NO", 13), (401, "INVALID_API_KEY", 1), (429, "RATE_LIMIT_EXCEEDED", 1)],
)
def test_an_id_that_cannot_be_read_stops_no_other_unless_all_would_fail(
    drive: Drive, journal: Journal, status: int, code: str, read: int
) -> None:
    """A pass has requests for 13 ids, which are not the same ones each time."""
    fill(journal, 15)
    service, ids = Service(), list[str]()

    def respond(request: httpx.Request) -> httpx.Response:
        if "/transactions/" not in request.url.path:
            return service.respond(request)
        ids.append(request.url.path)
        return httpx.Response(status, json=refusal(code))

    sdk = drive(transport=httpx.MockTransport(respond), max_attempts=1)
    for number in range(1, 5):
        with pytest.raises(MomoPayError):
            sdk(sweep(journal))
        assert len(ids) == number * read
    assert read == 1 or len(set(ids)) > read


def test_a_page_that_cannot_be_read_stops_no_end(drive: Drive, journal: Journal) -> None:
    """Unless the service is down."""
    fill(journal, 1)
    put(journal)
    service = Service(read=listed(status="SUCCESS", transactionId="t-r"), pages=[["no item"] * 1001])
    with pytest.raises(MomoPayError):
        drive(transport=service.transport)(sweep(journal))
    assert found(journal).status == "SUCCESS"
    service = Service(pages=[["no item"] * 1001], status=500)
    with pytest.raises(MomoPayError):
        drive(transport=service.transport, max_attempts=1)(sweep(journal))
    assert service.requests.count("GET /transactions") == len(service.requests) - 1 == 1


@pytest.mark.parametrize("learned_by", ["sweep", "read", "search", "the sweep's search", "reconcile_all"])
def test_a_prompt_that_ended_is_read_once_more_and_not_for_ever(shop: Shop, learned_by: str) -> None:
    """Ten minutes after its end was learned, by the service's clock."""
    with nullcontext() if learned_by in {"sweep", "read"} else pytest.raises(OutcomeUnknownError):
        if learned_by not in {"sweep", "read"}:
            ORDERS.fail_next(shop.sandbox, Fault.error_after_commit)
        shop.collect(phone=CANCELLING)
    shop.later(HOUR)
    if learned_by in {"read", "search"}:
        shop.settle(shop.collect())
    elif learned_by == "reconcile_all":
        shop.reconcile_all()
    for _ in range(2):  # at the second sweep, it is too early
        shop.sweep()
    made: list[int] = []
    for _ in range(2):  # the second look, and nothing
        shop.later(HOUR)
        before = len(shop.sandbox.requests)
        shop.sweep()
        made.append(len(shop.sandbox.requests) - before)
    assert (made[0] > 0, made[1]) == (True, 0)


def test_a_late_pin_that_is_on_its_way_is_read_again(shop: Shop) -> None:
    shop.account.switches.late_pin = True
    prompt = shop.collect().transaction_id
    shop.sandbox.cancel(prompt)
    shop.sweep()
    shop.later(HOUR)
    shop.sandbox.enter_pin(prompt)
    assert shop.sweep() == SweepReport()  # it is PROCESSING
    shop.later(HOUR)
    assert shop.sweep() == SweepReport(settled=1)
    assert shop.entry().status == "SUCCESS"


def test_each_change_is_reported(drive: Drive, journal: Journal) -> None:
    for each in "rs":
        put(journal, each)
    rows = [listed(each, transactionId=f"t-{each}", status="SUCCESS") for each in "rs"]
    drive(transport=Service(pages=[rows]).transport, on_event=(seen := Watcher()))(sweep(journal))
    assert seen.changes() == ["ACCEPTED -> ACCEPTED SUCCESS"] * 2


def test_a_status_that_is_new_stays_open(drive: Drive, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1")
    now = datetime.now(UTC).isoformat()
    service = Service(read=listed(type="STK", status="ON_HOLD", updatedAt=now))
    assert drive(transport=service.transport)(sweep(journal)) == SweepReport(open=1)
    assert (found(journal).status, service.requests) == ("ON_HOLD", ["GET /transactions/t-1"])


@pytest.mark.parametrize(("status", "report"), [("SUCCESS", {"settled": 1}), ("FAILED", {"open": 1})])
def test_the_id_that_a_broken_response_showed_is_read(
    drive: Drive, journal: Journal, status: str, report: dict[str, int]
) -> None:
    service = Service({"transactionId": "queued", "amount": "?"}, read=listed(transactionId="queued", status=status))
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert sdk(sweep(journal)) == SweepReport(**report)
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "queued")


# What another journal sent with the same key.


@over_both_clients
def test_two_workers_with_two_journals_are_warned_of_once(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop.account.switches.payout_keys = "ignored"  # where they are honoured, both journals have one payout
    with Journal(f"sqlite:///{tmp_path / 'other.db'}") as other:
        ids = [str(shop(call(other)).transaction_id) for call in (pay, partial(collect, reference="o", phone=PHONE))]
        shop.pay()
        shop.collect("o", phone=PHONE)
        shop.collect("mine", phone=PHONE)
        for _ in range(2):
            shop.sweep()
        assert [each.levelname for each in caplog.records] == ["WARNING"] * 2
        for reference, identity in zip("ro", ids, strict=True):
            assert (
                f"transaction '{identity}' has the reference '{reference}' of a payment in the journal" in caplog.text
            )
        assert "Use one journal for both" in caplog.text
        caplog.clear()
        shop(sweep(other))
        assert len(caplog.records) == 2, "of the other two"
    assert requests(shop.sandbox).count("GET /transactions") == 3


@pytest.mark.parametrize(
    ("state", "kind", "fields", "warns"),
    [
        (ACCEPTED, PAYOUT, {}, True),
        (ACCEPTED, PAYOUT, {"amount": 11, "phone": "254700000000", "status": "FAILED"}, True),
        (JournalState.REFUSED, PAYOUT, {}, True),
        (JournalState.NOT_SENT, PAYOUT, {}, True),
        (UNKNOWN, PAYOUT, {"amount": 11}, False),  # a near match, which a person must compare
        (JournalState.SENDING, PAYOUT, {}, False),
        (ACCEPTED, PAYOUT, {"accountReference": "R"}, False),
        (ACCEPTED, PAYOUT, {"accountReference": None}, False),
        (ACCEPTED, PAYOUT, {"type": "STK"}, False),
        (ACCEPTED, PAYOUT, {"type": "WALLET_TOPUP"}, False),
        (ACCEPTED, PAYOUT, {"transactionId": "t-r"}, False),
        (ACCEPTED, COLLECTION, {"type": "STK"}, True),
        (ACCEPTED, COLLECTION, {"type": "STK", "amount": 11}, False),  # a customer who pays into the account
        (UNKNOWN, COLLECTION, {"type": "STK", "phone": "254700000000"}, False),
        (ACCEPTED, COLLECTION, {}, False),
    ],
)
def test_what_another_journal_sent_is_a_warning(
    drive: Drive,
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
    state: JournalState,
    kind: EntryKind,
    fields: dict[str, Any],
    *,
    warns: bool,
) -> None:
    with lease_of(journal) as lease:
        assert begin(journal, lease, "r", kind)
        if state is not JournalState.SENDING:
            known = {"transaction_id": "t-r", "status": "SUCCESS"} if state is ACCEPTED else {}
            record(journal, lease, state, "r", kind, **known)
        for each in "pq":
            put(journal, each, transaction_id=each)
        rows = [listed(**fields), *(listed(each, transactionId=each) for each in "pq")]
        drive(transport=Service(pages=[rows]).transport)(sweep(journal))
    assert ("another journal or program uses this key" in caplog.text) is warns


def test_an_account_that_several_orders_share_is_no_sign_of_another_journal(
    drive: Drive, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """A customer may pay into it without a prompt."""
    for each in "pq":
        put(journal, each, ACCEPTED, COLLECTION, transaction_id=each)
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'METER'")
    rows = [listed("METER", type="STK", transactionId=each) for each in ("p", "q", "by hand")]
    drive(transport=Service(pages=[rows]).transport)(sweep(journal))
    assert "another journal" not in caplog.text


# Handlers: each end once, among all sweeps and callbacks, and again if the handler failed.


@over_both_clients
@pytest.mark.parametrize(
    "ended",
    ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", ago(timedelta(days=2)), ago(timedelta(days=400)), 20191219102115],
    ids=["year 1", "1970", "two days", "a year", "digits"],
)
def test_a_handler_gets_what_the_pass_learns_whatever_the_services_times_say(
    drive: Drive, journal: Journal, ended: Any
) -> None:
    put(journal, transaction_id="t-1")
    service = Service(read=listed(status="SUCCESS", updatedAt=ended))
    assert drive(transport=service.transport)(sweep(journal, Handler())) == SweepReport(settled=1, handled=1)


@over_both_clients
def test_what_is_too_old_for_a_handler_is_counted_and_said_once(
    drive: Drive, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(7):
        put(journal, f"r{number}", transaction_id=f"t-{number}")
        journal.settle(parse(Transaction, listed(f"r{number}", transactionId=f"t-{number}", status="SUCCESS")))
    execute(journal, "UPDATE momopay_transactions SET learned_at = learned_at - 31 * 86400")
    sdk = drive(transport=Service().transport, api_key=f"pk_test_{random_letters(8)}")
    for _ in range(2):
        assert sdk(sweep(journal, Handler())) == SweepReport(skipped=7)
        assert sdk(sweep(journal)) == SweepReport(), "without a handler, nothing is for one"
    assert caplog.text.count("7 ends reached no handler within 30 days") == 1
    assert caplog.text.count("'r") == 5


def test_an_end_is_delivered_with_what_of_its_order_was_refunded(drive: Drive, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="SUCCESS")
    put(journal, "back", refund_of="r", amount=4, transaction_id="t-2", status="SUCCESS")
    execute(journal, f"UPDATE momopay_transactions SET ended_at = '{ago(timedelta(0))}'")
    back = listed("back", amount=4, transactionId="t-2", status="SUCCESS")
    service, handler = Service(pages=[[listed(type="STK", status="SUCCESS"), back]]), Handler()
    drive(transport=service.transport)(sweep(journal, handler))
    assert {each.reference: each.refunded for each in handler.payments} == {"r": 4, "back": 4}


@pytest.mark.parametrize("shown", ["r", "s"])
def test_an_end_that_is_not_shown_stops_no_other(drive: Drive, journal: Journal, shown: str) -> None:
    for each in "rs":
        put(journal, each, transaction_id=f"t-{each}", status="SUCCESS")
    execute(journal, f"UPDATE momopay_transactions SET ended_at = '{ago(timedelta(0))}'")

    def unknown(request: httpx.Request) -> httpx.Response | None:
        is_read = "/transactions/" in request.url.path
        return httpx.Response(404, json=refusal("TRANSACTION_NOT_FOUND")) if is_read else None

    rows = [listed(shown, transactionId=f"t-{shown}", status="SUCCESS")]
    service = Service(pages=[rows], instead=unknown)
    assert drive(transport=service.transport)(sweep(journal, Handler())).handled == 1


def test_each_end_is_delivered_once(shop: Shop) -> None:
    for number in range(3):
        shop.pay(f"r{number}")
    shop.collect("o", phone=CANCELLING)
    handler = Handler()
    assert shop.sweep(handler) == SweepReport(open=4)
    shop.later(HOUR)
    assert shop.sweep(handler) == SweepReport(settled=4, handled=4)
    assert sorted(handler.ends) == [("o", "CANCELLED"), *((f"r{number}", "SUCCESS") for number in range(3))]
    assert [each.result_code for each in handler.payments if each.status == "CANCELLED"] == ["1032"]
    assert shop.sweep(handler).handled == 0
    shop.sandbox.cancel(shop.collect("p"))
    shop.collect("p")
    assert shop.sweep(handler) == SweepReport(open=1, handled=1), "of the first prompt, though the second is open"


def test_both_ends_of_a_failed_payout_are_delivered_once(shop: Shop) -> None:
    shop.pay(phone=FAILING)
    shop.later(40)  # it fails after 35 seconds, and is reversed 10 seconds later
    handler = Handler()
    assert [shop.sweep(handler) for _ in range(2)] == [SweepReport(open=1, handled=1), SweepReport(open=1)]
    assert (shop.entry().status, shop.entry().result_code) == ("FAILED", "1")
    shop.later(HOUR)
    assert [shop.sweep(handler) for _ in range(2)] == [SweepReport(settled=1, handled=1), SweepReport()]
    assert handler.ends == [("r", "FAILED"), ("r", "REVERSED")]
    assert [each.is_settled for each in handler.payments] == [False, True]
    assert [each.result_code for each in handler.payments] == ["1", "1"]


def test_a_failure_that_no_sweep_saw_is_not_told_after_its_reversal(shop: Shop) -> None:
    shop.pay(phone=FAILING)
    shop.later(HOUR)
    handler = Handler()
    assert [shop.sweep(handler).handled for _ in range(2)] == [1, 0]
    assert handler.ends == [("r", "REVERSED")]


@over_both_clients
@pytest.mark.parametrize("where", ["read", "list", "both", "nowhere"])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_a_receipt_that_only_a_read_or_only_the_list_has_is_kept(
    drive: Drive, journal: Journal, where: str, others: int
) -> None:
    put(journal, transaction_id="t-1")
    if others:
        put(journal, "s", transaction_id="t-2")
    shown = listed(status="SUCCESS"), listed("s", transactionId="t-2")
    has = {"acmeReceipt": "QK12"}
    rows = [shown[0] | (has if where in {"list", "both"} else {}), shown[1]]
    service = Service(pages=[rows], read=shown[0] | (has if where in {"read", "both"} else {}))
    handler = Handler()
    assert drive(transport=service.transport)(sweep(journal, handler)).handled == 1
    # Beside others it is read from a page, and by id only if it has failed.
    expected = None if where == "nowhere" or (others and where == "read") else "QK12"
    assert [each.receipt for each in handler.payments] == [expected]
    assert found(journal).receipt == expected
    assert len(service.requests) == (1 if others or where in {"read", "both"} else 2)


def test_a_handler_that_fails_gets_the_end_again_and_stops_no_other(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    for reference in ("r", "s"):
        shop.pay(reference)
    shop.later(HOUR)
    handler = Handler(RuntimeError(f"no such order for {PHONE}"))
    assert shop.sweep(handler) == SweepReport(settled=2, handled=1, failed=1)
    assert "RuntimeError" in caplog.text
    assert PHONE not in caplog.text
    assert shop.sweep(handler) == SweepReport(handled=1)
    assert sorted(handler.ends) == [("r", "SUCCESS"), ("s", "SUCCESS")]
    assert shop.sweep(handler) == SweepReport()


@pytest.mark.parametrize("recorded_by", ["sweep", "pay_once", "settle"])
def test_what_was_recorded_without_a_handler_is_delivered_later(shop: Shop, recorded_by: str) -> None:
    paid = shop.pay()
    shop.later(HOUR)
    if recorded_by == "sweep":
        assert shop.sweep() == SweepReport(settled=1)
    elif recorded_by == "pay_once":
        shop.pay()
    else:
        shop.journal.settle(shop(lambda client: client.transactions.get(paid)))
    assert shop.entry().has_settled
    handler = Handler()
    assert shop.sweep(handler) == SweepReport(handled=1)
    assert handler.ends == [("r", "SUCCESS")]


def test_the_end_of_a_refund_has_what_was_refunded_when_its_handler_is_called(shop: Shop) -> None:
    """Handlers take their time, and another refund may come back meanwhile."""
    shop.settle(shop.collect("o", amount=100))
    shop.sweep()
    refunds = {reference: shop.refund("o", amount=50, reference=reference) for reference in ("o-R1", "o-R2")}
    shop.later(HOUR)
    seen = list[Any]()

    def handle(payment: Payment) -> None:
        if payment.refund_of is None:
            return
        seen.append(payment.refunded)
        (other,) = refunds.keys() - {payment.reference}
        id_of = refunds[other].transaction_id
        execute(shop.journal, f"UPDATE momopay_transactions SET status = 'REVERSED' WHERE transaction_id = '{id_of}'")

    assert shop.sweep(handle).handled == 3
    assert seen == [100, 50]


def test_what_the_pass_did_not_read_is_left_to_the_next_one(drive: Drive, journal: Journal) -> None:
    """Callbacks bring another end of what it read, and an end of what it did not follow."""
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-r")
    service, handler = Service(read=listed(type="STK", transactionId="t-r", status="CANCELLED")), Handler()

    def respond(request: httpx.Request) -> httpx.Response:
        if "/transactions" in request.url.path and journal.get("s") is None:
            put(journal, "s", ACCEPTED, COLLECTION, transaction_id="t-s")
            for each in "rs":
                journal.settle(payout(each, type="STK", transactionId=f"t-{each}", updatedAt=ago(timedelta(0))))
        return service.respond(request)

    assert drive(transport=httpx.MockTransport(respond))(sweep(journal, handler)).handled == 0
    rows = [listed(each, type="STK", transactionId=f"t-{each}", status="SUCCESS") for each in "rs"]
    assert drive(transport=Service(pages=[rows]).transport)(sweep(journal, handler)).handled == 2


def test_what_another_process_is_handling_is_left_alone(shop: Shop) -> None:
    paid = shop.pay()
    shop.later(HOUR)
    handler = Handler()
    with shop.journal.handling(payout("r", transactionId=paid.transaction_id)):
        assert shop.sweep(handler) == SweepReport(settled=1)
    assert handler.ends == []
    assert shop.sweep(handler) == SweepReport()


@pytest.mark.usefixtures("no_backoff")
def test_what_was_read_before_a_failure_is_delivered(shop: Shop) -> None:
    shop.pay()
    shop.pay("s", phone=FAILING)
    shop.later(HOUR)
    shop.sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit, times=4)
    handler = Handler()
    with pytest.raises(MomoPayError):
        shop.sweep(handler)
    assert sorted(handler.ends) == [("r", "SUCCESS"), ("s", "REVERSED")]


@over_both_clients
def test_an_async_handler_is_awaited_by_an_async_client_only(shop: Shop) -> None:
    shop.pay()
    shop.pay("s")
    shop.later(HOUR)
    handler = Handler(RuntimeError("once"))

    async def handle(payment: Payment) -> None:
        handler(payment)

    def forget_to_await(payment: Payment) -> object:
        return handle(payment)

    if shop.sdk.client_kind == "blocking":
        with pytest.raises(ConfigurationError, match="async def"):
            shop.sweep(handle)
        assert shop.sweep(forget_to_await) == SweepReport(settled=2, failed=2)
        return
    assert shop.sweep(handle) == SweepReport(settled=2, handled=1, failed=1)
    assert shop.sweep(handle) == SweepReport(handled=1)


@pytest.mark.parametrize(("client_kind", "kind"), [("blocking", "plain"), ("async", "plain"), ("async", "async def")])
def test_a_callback_error_of_the_handler_is_its_own_failure(
    shop: Shop, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not say that another call is handling the end, as the journal's own CallbackError does."""
    shop.pay()
    shop.later(HOUR)
    mismatch = CallbackMismatchError("too early", transaction_id="x", fields=["status"])
    handler = Handler(CallbackError("do not act on it"), mismatch)

    async def handle(payment: Payment) -> None:
        handler(payment)

    given = handle if kind == "async def" else handler
    assert shop.sweep(given) == SweepReport(settled=1, failed=1)
    assert shop.sweep(given) == SweepReport(failed=1)
    assert "CallbackError" in caplog.text
    assert "CallbackMismatchError" in caplog.text
    assert shop.sweep(given) == SweepReport(handled=1)
    assert handler.ends == [("r", "SUCCESS")]


def test_what_is_no_handler_or_no_journal_is_refused(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="handler"):
        shop.sweep("handler")
    with pytest.raises(ConfigurationError, match="journal"):
        shop(lambda client: client.transactions.sweep(journal=str(tmp_path)))
    assert requests(shop.sandbox) == []
