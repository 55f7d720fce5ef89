"""A payment that was attempted before: only the transaction that fits resolves it, and whatever may be it blocks it."""

import logging
import re
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

import momopay
from bodies import envelope, page, wallet
from drivers import LOOPBACK, Drive
from durable.kit import (
    CANCELLING,
    KEY_CHECK,
    ORDERS,
    Call,
    Calls,
    Serve,
    Shop,
    ago,
    collect,
    listed,
    long_ago,
    of_both_kinds,
    over_both_clients,
    pay,
    payout_record,
    release,
)
from in_turn import some_by_default
from journal.constants import ACCEPTED, COLLECTION, NOT_SENT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import execute, just_before, store_of
from journal.kit import begin, found, lease_of, put, record, state_of
from momopay import Journal, JournalState, MomoPayError, OutcomeUnknownError, PollSchedule, RequestValidationError
from momopay.durable.lookup import search_for
from momopay.models.requests import Fit, Search
from momopay.sandbox import Fault
from polling.kit import Sdk

FULL = "CREATE TRIGGER full BEFORE {} ON momopay_transactions BEGIN SELECT RAISE(ABORT, 'disk full'); END"

# Reading what was accepted.


def test_an_accepted_payment_that_cannot_be_read_says_that_money_moved(shop: Shop, drive: Drive) -> None:
    shop.pay()
    nowhere = drive(api_key=shop.key, base_url=LOOPBACK, max_attempts=1)
    with pytest.raises(momopay.APIConnectionError) as caught:
        nowhere(pay(shop.journal))
    assert caught.value.may_have_executed


def test_what_was_paid_is_returned_though_the_journal_cannot_be_written(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """What frees an order for another prompt is not."""
    first = shop.pay()
    assert shop.entry().clock_offset is not None
    shop.collect("o", phone=CANCELLING)
    shop.later(3600)
    execute(shop.journal, FULL.format("UPDATE"))
    again = shop.pay()
    assert (again.transaction_id, again.status) == (first.transaction_id, "SUCCESS")
    assert "disk full" in caplog.text
    before = len(shop.sandbox.requests)
    with pytest.raises(momopay.JournalError):
        shop.collect("o", phone=CANCELLING)
    assert len(shop.sandbox.requests) == before + 1


@of_both_kinds
@pytest.mark.parametrize(
    ("mismatch", "differing"),
    [
        ({"amount": 77}, "amount"),
        ({"phone": "254712345679"}, "phone"),
        ({"accountReference": "s"}, "reference"),
        ({"type": "X"}, "type"),
        ({"transactionId": "t-2", "amount": 77}, "amount, id"),
    ],
)
def test_a_later_read_of_another_payment_makes_it_unresolved(
    serve: Serve, journal: Journal, mismatch: dict[str, Any], differing: str, calls: Calls
) -> None:
    shop = serve(payout_record(**calls.fields), read=listed(**calls.fields | mismatch))
    shop(calls.once(journal))
    with pytest.raises(OutcomeUnknownError, match=f"record of transaction t-1 has another {differing}. It is not sent"):
        shop(calls.once(journal))
    assert shop.seen.changes() == ["-> SENDING", "SENDING -> ACCEPTED PENDING", "ACCEPTED -> UNKNOWN"]
    assert (shop.state(), shop.entry().transactions, shop.service.sent) == (UNKNOWN, (), 1)


@pytest.mark.parametrize(
    ("known", "status", "reads"), [("SUCCESS", "PENDING", 1), ("SUCCESS", "CANCELLED", 1), ("PENDING", "PENDING", 2)]
)
def test_a_read_that_is_behind_takes_no_payment_back(
    serve: Serve, journal: Journal, known: str, status: str, reads: int
) -> None:
    """Nor is a prompt abandoned whose callback comes while it is read."""
    if known == "SUCCESS":
        put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-0", status="PENDING")  # the paid one is read first
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status=known)

    def pay_it(_request: httpx.Request) -> None:
        execute(journal, "UPDATE momopay_transactions SET status = 'SUCCESS' WHERE transaction_id = 't-1'")

    shop = serve(read=listed(type="STK", status=status), instead=pay_it)
    paid = shop.collect(phone=PHONE, abandon_after=0)
    assert (paid.is_paid, shop.requests) == (True, ["GET /transactions/t-1"] * reads)
    caught_up = serve(read=listed(type="STK", status="SUCCESS"))
    waited = caught_up(lambda client: client.transactions.wait(paid, schedule=PollSchedule(first=0)))
    assert (waited.status, len(caught_up.requests)) == ("SUCCESS", 1)


def test_a_read_adds_nothing_that_another_call_took_away_meanwhile(serve: Serve, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="t-1")
    shop = serve(read=listed(status="PROCESSING"))
    shop.pay()
    shop.service.read = listed(status="SUCCESS")
    with just_before("BEGIN", journal, lambda: store_of(journal).mark_contradicted(found(journal), "t-1")):
        shop.pay()
    assert shop.seen.changes() == ["ACCEPTED -> ACCEPTED PROCESSING"], "what changed nothing is not reported"
    assert (shop.state(), shop.entry().transactions) == (UNKNOWN, ())


# What was refused, and may have been made after all.


@of_both_kinds
@pytest.mark.parametrize("state", [REFUSED, NOT_SENT, UNKNOWN])
def test_a_near_match_blocks_a_second_attempt_and_is_shown(
    serve: Serve, journal: Journal, state: JournalState, calls: Calls
) -> None:
    """It has the reference, and another amount. tests/models has all that makes a match a near one."""
    put(journal, "r", state, calls.kind)
    fields: dict[str, Any] = {"type": calls.kind.transaction_type.value}
    shop = serve(payout_record(**fields), pages=[[listed(**fields, amount=11)]])
    problem = f"^{calls.name} of reference 'r' may have been made: a transaction has its reference"
    with pytest.raises(OutcomeUnknownError, match=problem) as caught:
        shop(calls.once(journal, phone=PHONE, **({"abandon_after": 0.001} if calls is ORDERS else {})))
    error: Any = caught.value
    assert (error.reference, error.amount, error.phone, error.sent_at) == ("r", 10, PHONE, shop.entry().sent_at)
    assert ([each.transaction_id for each in error.near_matches], error.matches) == (["t-1"], ())
    assert (shop.state(), shop.service.sent) == (UNKNOWN, 0)
    assert [entry.state for entry in shop.reconcile_all()] == [UNKNOWN]
    assert shop.seen.changes() == ([] if state is UNKNOWN else [f"{state} -> UNKNOWN"])


def test_a_prompt_that_was_refused_and_made_after_all_is_found_beside_another(serve: Serve, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-0", status="CANCELLED")
    put(journal, "r", REFUSED, COLLECTION)
    rows = [listed(transactionId="t-1", type="STK"), listed(transactionId="t-0", status="CANCELLED", type="STK")]
    assert not serve(pages=[rows]).collect(phone=PHONE).is_new
    assert [each.status for each in found(journal).transactions] == ["CANCELLED", "PENDING"]


# Searching for what is unresolved.


def test_a_transaction_that_fits_is_not_shared_by_two_references(serve: Serve, journal: Journal) -> None:
    put(journal, "another", ACCEPTED, transaction_id="t-1")
    put(journal, "r", UNKNOWN)
    put(journal, "o", UNKNOWN, COLLECTION)
    rows = [listed("o", transactionId=each, type="STK") for each in ("t-1", "t-2")]
    shop = serve(pages=[[listed(), *rows]])
    for call in (pay(journal), collect(journal, "o", phone=PHONE)):
        with pytest.raises(OutcomeUnknownError, match="already that of another reference") as caught:
            shop(call)
        assert "t-1" in [each.transaction_id for each in caught.value.matches]
    assert shop.state() is UNKNOWN


def test_the_id_of_another_payment_in_a_broken_response_hides_nothing(serve: Serve, journal: Journal) -> None:
    put(journal, "s", transaction_id="t-1")
    put(journal, "r", UNKNOWN, seen_id="t-1")
    shop = serve(pages=[[listed(transactionId="t-2")]], read=listed(transactionId="t-1"))
    assert shop.pay().transaction_id == "t-2"


def test_an_id_that_cannot_be_kept_stops_no_other(serve: Serve, journal: Journal) -> None:
    for each in ("r", "s"):
        put(journal, each, UNKNOWN)
    shop = serve(pages=[[listed("s", transactionId="t-2"), listed(transactionId="\0")]])
    assert [entry.state for entry in shop.reconcile_all()] == [UNKNOWN, ACCEPTED]
    with pytest.raises(OutcomeUnknownError):
        shop.pay()


def test_several_that_fit_a_payout_are_shown_to_a_person(serve: Serve, journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    shop = serve(pages=[[listed(transactionId="t-1"), listed(transactionId="t-2")]])
    with pytest.raises(OutcomeUnknownError, match="2 transactions fit") as caught:
        shop.pay()
    assert [each.transaction_id for each in caught.value.matches] == ["t-1", "t-2"]
    assert [entry.state for entry in shop.reconcile_all()] == [UNKNOWN]


@pytest.mark.parametrize(
    ("newest", "other", "returned"),
    [("PENDING", "SUCCESS", "a"), ("CANCELLED", "PENDING", "a"), ("PENDING", "CANCELLED", "b")],
)
def test_all_prompts_that_a_search_shows_are_kept(
    serve: Serve, journal: Journal, newest: str, other: str, returned: str
) -> None:
    """A paid one is returned, else an open one."""
    put(journal, "r", UNKNOWN, COLLECTION)
    rows = [listed(transactionId=each, status=status, type="STK") for each, status in (("b", newest), ("a", other))]
    shop = serve(pages=[rows], ahead=timedelta(hours=2))
    one = shop.collect(phone=PHONE)
    assert (one.transaction_id, one.status, one.is_new) == (returned, other if returned == "a" else newest, False)
    assert {each.transaction_id: each.status for each in shop.entry().transactions} == {"a": other, "b": newest}
    assert (shop.requests, shop.entry().paid_twice) == (["GET /transactions"], False)
    assert shop.seen.changes() == [f"UNKNOWN -> ACCEPTED {each}" for each in (other, newest)]
    last: Any = journal.history("r")[-1]
    assert (last.source, last.service_time - last.at > timedelta(hours=1)) == ("search", True)


@pytest.mark.parametrize("is_open", [True, False])
def test_what_a_search_shows_is_returned_though_the_journal_cannot_be_written(
    serve: Serve, journal: Journal, is_open: bool
) -> None:
    """What frees an order for another prompt is not."""
    put(journal, "r", UNKNOWN, COLLECTION)
    execute(journal, FULL.format("INSERT"))
    rows = [listed(transactionId="b", status="CANCELLED", type="STK"), listed(type="STK")][: 1 + is_open]
    shop = serve(pages=[rows])
    with nullcontext() if is_open else pytest.raises(momopay.JournalError):
        assert shop.collect(phone=PHONE).transaction_id == "t-1"
    assert shop.requests == ["GET /transactions"]


def test_an_unresolved_prompt_that_is_found_cancelled_is_followed_by_another(serve: Serve, journal: Journal) -> None:
    put(journal, "r", UNKNOWN, COLLECTION)
    cancelled = [listed(status="CANCELLED", type="STK")]
    assert serve(payout_record(transactionId="t-2", type="STK"), pages=[cancelled]).collect(phone=PHONE).is_new
    assert [each.status for each in found(journal).transactions] == ["CANCELLED", "PENDING"]


def test_prompts_that_are_known_are_no_matches(serve: Serve, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="CANCELLED")
    put(journal, "r", UNKNOWN, COLLECTION)
    shop = serve(pages=[[listed(status="CANCELLED", type="STK")]])
    with pytest.raises(OutcomeUnknownError, match="does not show it") as caught:
        shop.collect(phone=PHONE)
    assert caught.value.sent_at == shop.entry().sent_at > shop.entry().created_at, "of the latest attempt"
    assert (shop.state(), shop.seen.changes()) == (UNKNOWN, [])


@pytest.mark.parametrize("state", [UNKNOWN, REFUSED])
def test_a_search_shows_that_an_earlier_prompt_was_paid(serve: Serve, journal: Journal, state: JournalState) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="CANCELLED")
    put(journal, "r", state, COLLECTION)
    late = listed(status="SUCCESS", type="STK")
    shop = serve(pages=[[late]], read=late)
    paid = shop.collect(phone=PHONE)
    assert (paid.transaction_id, paid.is_paid) == ("t-1", True)
    assert shop.requests == ["GET /transactions", "GET /transactions/t-1"]
    assert shop.seen.changes()[0] == f"{state.value} -> {state.value} SUCCESS"


def test_a_search_adds_nothing_that_another_call_took_away_meanwhile(serve: Serve, journal: Journal) -> None:
    """It finds it anew, as one that is not known."""
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="CANCELLED")
    put(journal, "r", UNKNOWN, COLLECTION)
    shop = serve(pages=[[listed(status="SUCCESS", type="STK")]])
    with just_before("BEGIN", journal, lambda: store_of(journal).mark_contradicted(found(journal), "t-1")):
        assert shop.collect(phone=PHONE).is_paid
    assert shop.seen.changes() == ["UNKNOWN -> ACCEPTED SUCCESS"]


@pytest.mark.parametrize("is_listed", [True, False])
def test_an_order_waits_for_what_the_list_shows_of_another_with_its_account_reference(
    serve: Serve, journal: Journal, is_listed: bool
) -> None:
    """What the list shows may be the other one's, while its outcome is not known."""
    put(journal, "other", UNKNOWN, COLLECTION, amount=11)
    put(journal, "r", REFUSED, COLLECTION)
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'SHOP'")
    rows = [listed("SHOP", type="STK", amount=11)] * is_listed
    shop = serve(payout_record(type="STK", transactionId="t-2"), pages=[rows])
    problem = r"^account_reference: is that of another order too"
    with nullcontext() if is_listed else pytest.raises(RequestValidationError, match=problem):
        assert shop.collect(phone=PHONE, account_reference="SHOP").is_new
    assert (shop.state("other"), shop.service.sent) == (ACCEPTED if is_listed else UNKNOWN, is_listed)


def test_a_search_that_fails_leaves_it_unknown(serve: Serve, journal: Journal) -> None:
    put(journal, "r", UNKNOWN)

    def fail(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(400, text="<html>") if request.url.path.endswith("/transactions") else None

    shop = serve(instead=fail)
    with pytest.raises(OutcomeUnknownError, match="search failed") as caught:
        shop.pay()
    assert isinstance(caught.value.__cause__, momopay.ProtocolError)
    assert ".." not in str(caught.value)
    with pytest.raises(momopay.ProtocolError):
        shop.reconcile_all()
    long_ago(journal)
    with pytest.raises(MomoPayError):
        shop.release()
    assert shop.state() is UNKNOWN


# The id of a broken response.

BROKEN = {"transactionId": "queued", "amount": "?"}  # it may be another payment's


@pytest.mark.parametrize(
    "other", [{}, {"accountReference": "another"}, {"amount": 11}, {"phone": "254712345679"}, {"type": "STK"}]
)
def test_the_id_of_a_broken_response_spares_a_search_if_it_is_that_of_the_payment(
    serve: Serve, other: dict[str, Any]
) -> None:
    shop = serve(BROKEN, read=listed(transactionId="queued") | other, pages=[[listed()]])
    with pytest.raises(OutcomeUnknownError) as caught:
        shop.pay()
    assert caught.value.transaction_id == shop.entry().transaction_id == "queued"
    again = shop.pay()
    assert again.transaction_id == shop.entry().transaction_id == ("t-1" if other else "queued")
    assert (again.is_new, shop.state()) == (False, ACCEPTED)
    assert shop.requests == ["POST /b2c/payouts", "GET /transactions/queued"] + ["GET /transactions"] * bool(other)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("broken", [BROKEN, payout_record(transactionId=" "), payout_record(transactionId="")])
@pytest.mark.parametrize("status", [404, 500])
def test_an_id_that_cannot_be_read_leaves_the_decision_to_the_list(serve: Serve, status: int, broken: Any) -> None:
    shop = serve(broken, status=status, pages=[[listed()]])
    with pytest.raises(OutcomeUnknownError):
        shop.pay()
    assert shop.pay().transaction_id == "t-1"
    assert (shop.state(), shop.service.sent) == (ACCEPTED, 1)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("first", ["release", "searched elsewhere", "outage"])
def test_the_id_of_a_broken_response_is_read_where_the_list_lags(serve: Serve, journal: Journal, first: str) -> None:
    """Before a person releases the payout, and before it is sent again."""
    shop = serve(BROKEN, read=None if first == "outage" else listed(transactionId="queued"), status=500)
    with pytest.raises(OutcomeUnknownError):
        shop.pay()
    long_ago(journal)
    if first == "searched elsewhere":
        shop.release(searched_elsewhere=True)
    else:
        with pytest.raises(MomoPayError, match=r"500|was accepted as transaction queued"):
            shop.release()
    assert first == "outage" or not shop.pay().is_new
    assert (shop.state(), shop.service.sent) == (UNKNOWN if first == "outage" else ACCEPTED, 1)


def test_an_id_that_the_service_does_not_know_is_no_reason_to_refuse_a_release(shop: Shop) -> None:
    put(shop.journal, "r", UNKNOWN, seen_id="no-such-id")
    long_ago(shop.journal)
    assert shop.release().state is NOT_SENT


@over_both_clients
def test_all_that_is_unresolved_is_searched_for_in_one_walk(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    for call, path in ((shop.pay, "/b2c/payouts"), (shop.collect, "/payments/stk")):
        shop.sandbox.fail_next("POST", path, Fault.error_after_commit)
        with pytest.raises(OutcomeUnknownError):
            call(path)
    put(shop.journal, "never sent", UNKNOWN)
    before = len(shop.sandbox.requests)
    with caplog.at_level(logging.INFO):
        entries = shop.reconcile_all()
    assert len(shop.sandbox.requests) == before + 1
    assert "'never sent' stays unknown" in caplog.text
    states = {"/b2c/payouts": ACCEPTED, "/payments/stk": ACCEPTED, "never sent": UNKNOWN}
    assert {entry.reference: entry.state for entry in entries} == states
    assert [entry.reference for entry in shop.journal.unresolved()] == ["never sent"]


def test_where_nothing_is_unresolved_nothing_is_searched(serve: Serve, journal: Journal) -> None:
    put(journal, "accepted", ACCEPTED)
    shop = serve()
    with lease_of(journal) as lease:
        begin(journal, lease, "being sent")
        assert shop.reconcile_all() == []
        record(journal, lease, REFUSED, "being sent")
    assert shop.requests == []


# A person releases what is unresolved: only what the whole list does not show becomes free.


@pytest.fixture
def unresolved(journal: Journal) -> Journal:
    put(journal, "r", UNKNOWN)
    long_ago(journal)
    return journal


@over_both_clients
def test_what_the_list_does_not_show_is_released_and_may_be_sent(
    serve: Serve, unresolved: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = timedelta(hours=2)
    pages = [[listed("another")], [listed("a third")]]
    shop = serve(payout_record(createdAt=ago(-ahead)), pages=pages, ahead=ahead)
    entry = shop.release()
    assert shop.seen.changes() == ["UNKNOWN -> NOT_SENT"]
    assert (entry.state, entry.released_by) == (NOT_SENT, "Njeri")
    assert entry.released_at is not None
    assert entry == shop.entry()
    released: Any = unresolved.history("r")[-1]
    assert released.service_time - released.at > timedelta(hours=1)
    assert "was released by Njeri" in caplog.text
    assert shop.requests == ["GET /transactions"] * 2
    assert shop.pay().is_new


@over_both_clients
def test_a_search_of_a_long_list_says_how_to_give_it_more_time(client_kind: str, unresolved: Journal) -> None:
    """10,000 transactions are 100 pages, and a minute has 58 slots."""

    def answer(_method: str, path: str) -> tuple[int, Any]:
        if path in KEY_CHECK:
            return 200, envelope(wallet())
        number = int(path.partition("cursor=")[2] or 0)
        rows = [listed("another", transactionId=f"t-{number}", age=timedelta(hours=number))]
        return 200, envelope(page(rows, str(number + 1) if number < 99 else None))

    service: Any = answer
    sdk = Sdk(client_kind, service, budget=momopay.RateBudget(), deadline=60.0)
    calls: list[Call] = [release(unresolved)]
    calls.append(lambda client: client.transactions.find(reference="r", since=LONG_AGO))
    for call in calls:
        with pytest.raises(momopay.BudgetExhaustedError, match=r"pages were read; .*with_options\(deadline=3600,"):
            sdk(call)
    assert state_of(unresolved) is UNKNOWN
    patient = sdk(lambda client: release(unresolved)(client.with_options(deadline=3600, max_wait=None)))
    assert patient.state is NOT_SENT
    sdk.close()


@pytest.mark.usefixtures("unresolved")
def test_a_near_match_anywhere_in_the_list_refuses_a_release(serve: Serve) -> None:
    old = [listed("another", age=timedelta(days=400))]
    shop = serve(pages=[[listed("another")], old, [listed(createdAt="2026-01-01T00:00:00")]])
    with pytest.raises(OutcomeUnknownError) as caught:
        shop.release()
    assert [each.transaction_id for each in caught.value.near_matches] == ["t-1"]
    assert shop.state() is UNKNOWN
    assert shop.release(searched_elsewhere=True).state is NOT_SENT


@pytest.mark.usefixtures("unresolved")
def test_a_payout_that_the_list_shows_is_accepted_and_not_released(serve: Serve) -> None:
    shop = serve(pages=[[listed(transactionId="t-9")]], read=listed(transactionId="t-9"))
    with pytest.raises(RequestValidationError, match=r"^reference: was accepted as transaction t-9"):
        shop.release()
    assert shop.state() is ACCEPTED
    assert (shop.pay().transaction_id, shop.service.sent) == ("t-9", 0)


@pytest.mark.parametrize(
    ("state", "refused"), [(ACCEPTED, "was accepted"), (None, "is not in"), (REFUSED, None), (NOT_SENT, None)]
)
def test_what_is_accepted_or_absent_is_not_released_and_what_is_free_need_not_be(
    serve: Serve, journal: Journal, state: JournalState | None, refused: str | None
) -> None:
    entry = None if state is None else put(journal, "r", state)
    shop = serve()
    if refused is None:
        assert shop.release() == entry
    else:
        with pytest.raises(RequestValidationError, match=f"^reference: {refused}"):
            shop.release()
    assert shop.requests == []


@pytest.mark.parametrize(("state", "problem"), [(UNKNOWN, "was changed meanwhile"), (ACCEPTED, "was accepted")])
def test_what_changed_meanwhile_is_not_released(
    serve: Serve, unresolved: Journal, state: JournalState, problem: str
) -> None:
    change = f"UPDATE momopay_payments SET revision = revision + 1, state = '{state}'"
    with (
        just_before("BEGIN", unresolved, lambda: execute(unresolved, change)),
        pytest.raises(RequestValidationError, match=f"^reference: {problem}"),
    ):
        serve().release()


def test_an_order_and_a_payout_with_one_reference_need_a_kind(serve: Serve, unresolved: Journal) -> None:
    put(unresolved, "r", UNKNOWN, COLLECTION)
    long_ago(unresolved)
    shop = serve(payout_record(type="STK"))
    with pytest.raises(ValueError, match="COLLECTION"):
        shop.release()
    assert shop.release(kind=COLLECTION).kind is COLLECTION
    assert [entry.kind for entry in unresolved.unresolved()] == ["PAYOUT"]
    assert shop.collect(phone=PHONE).is_new


@pytest.mark.usefixtures("unresolved")
@pytest.mark.parametrize("by", ["", " ", None, 7])
def test_somebody_decides(serve: Serve, by: Any) -> None:
    with pytest.raises(RequestValidationError, match=r"^by: must be"):
        serve().release(by=by)


# How far back a payment is searched for, and until when.


@pytest.mark.parametrize(("offset", "back"), [(0.0, 0), (7200.0, 7200), (-7200.0, 0), (None, 86_400)])
def test_a_payment_is_searched_for_since_it_was_sent_by_the_services_clock(
    journal: Journal, offset: float | None, back: int
) -> None:
    """An offset that was not measured may be a day; a search allows five minutes more."""
    put(journal, "r", UNKNOWN, clock_offset=offset)
    execute(journal, "UPDATE momopay_payments SET created_at = '2026-01-01T00:00:00+00:00'")
    entry = found(journal)
    assert search_for(entry).earliest == entry.sent_at - timedelta(seconds=back)
    execute(journal, "UPDATE momopay_payments SET phone = ''")  # anonymised
    assert (search_for(entry).phone, search_for(found(journal)).phone) == (PHONE, None)


@pytest.mark.parametrize("attempts", [1, 0])
def test_what_may_have_been_sent_at_any_time_is_sent_again_only_after_the_whole_list(
    serve: Serve, journal: Journal, attempts: int
) -> None:
    """Nothing is known of the clock that wrote when it was sent."""
    put(journal, "r", REFUSED)
    execute(journal, f"UPDATE momopay_payments SET attempts = {attempts}")
    pages = [[listed("another", age=timedelta(days=days))] for days in (0, 3, 9)] + [[listed(age=timedelta(days=9))]]
    shop = serve(payout_record(reference="r", transactionId="t-2"), pages=pages)
    # Where nothing was ever sent, nothing can be in the list.
    with pytest.raises(OutcomeUnknownError, match="has its reference") if attempts else nullcontext():
        shop.pay()
    assert (shop.requests.count("GET /transactions"), shop.service.sent) == ((4, 0) if attempts else (2, 1))


@pytest.mark.parametrize("earlier", ["created_at", "sent_at"])  # the latter if a clock was set back
def test_an_order_is_searched_for_since_its_first_attempt(serve: Serve, journal: Journal, earlier: str) -> None:
    """Two attempts, hours apart, were refused; the first became a prompt even so, and is beyond the second's page."""
    for _ in range(2):
        put(journal, "r", REFUSED, COLLECTION)
    first = timedelta(hours=5)
    execute(journal, f"UPDATE momopay_payments SET {earlier} = '{ago(first)}', clock_offset = 0")
    pages = [[listed("another", age=timedelta(hours=hours))] for hours in (0, 1, 4)]
    pages.append([listed(type="STK", age=first, transactionId="first")])
    shop = serve(payout_record(type="STK", transactionId="second"), pages=pages)
    assert (shop.collect(phone=PHONE).transaction_id, shop.service.sent) == ("first", 0)


# Items of the list that cannot be read.

LONG_AGO = datetime(2025, 1, 1, tzinfo=UTC)
READABLE: list[dict[str, Any]] = [{"accountReference": "another"}, {"transactionId": "t-known"}]
"""What shows that an item is not the payment."""


@pytest.mark.parametrize("state", [REFUSED, UNKNOWN])
@pytest.mark.parametrize(
    "item", [{}, {"transactionId": None}, {"accountReference": None}, {"createdAt": None}, {"status": None}, *READABLE]
)
def test_an_unread_item_that_may_be_the_payment_blocks_it(
    serve: Serve, journal: Journal, state: JournalState, item: dict[str, Any]
) -> None:
    put(journal, "r", state)
    put(journal, "known", ACCEPTED, transaction_id="t-known")
    long_ago(journal)
    bad = listed(transactionId="t-9", phone=None) | item
    shop = serve(payout_record(transactionId="t-new", reference="r"), pages=[[listed("another"), bad]])
    is_another = item in READABLE
    with nullcontext() if is_another and state is REFUSED else pytest.raises(OutcomeUnknownError) as caught:
        assert shop.pay().is_new
    assert shop.service.sent == int(is_another and state is REFUSED)
    if caught is not None:
        shown = rf"shows 1 items that cannot be read or compared, and any of them may be it: {bad['transactionId']!r}\."
        assert is_another or re.search(shown, str(caught.value))
        raw = [getattr(each, "raw", None) for each in caught.value.near_matches]
        assert raw == ([] if is_another else [bad])
    if state is UNKNOWN:
        with nullcontext() if is_another else pytest.raises(OutcomeUnknownError):
            shop.release()


@pytest.mark.parametrize(
    ("changes", "found_state"), [({}, ACCEPTED), ({"amount": 11}, UNKNOWN), ({"phone": None}, UNKNOWN)]
)
@pytest.mark.parametrize("how", ["pay_once", "sweep", "find"])
def test_an_unread_item_with_an_id_is_read_by_it(
    serve: Serve, journal: Journal, how: str, changes: dict[str, Any], found_state: JournalState
) -> None:
    put(journal, "r", UNKNOWN)
    shop = serve(pages=[[listed(transactionId="t-9", phone=None)]], read=listed(transactionId="t-9", **changes))
    if how == "find":
        search = {"reference": "r", "since": LONG_AGO, "amount": 10, "phone": PHONE}
        found_by_it = shop(lambda client: client.transactions.find(**search))
        assert [each.transaction_id for each in found_by_it] == ["t-9"] * (found_state is ACCEPTED)
    elif how == "sweep":
        assert (shop.sweep().unread, shop.state()) == (1, found_state)
    else:
        with nullcontext() if found_state is ACCEPTED else pytest.raises(OutcomeUnknownError):
            assert shop.pay().transaction_id == "t-9"
        assert shop.state() is found_state
    assert shop.requests.count("GET /transactions/t-9") == 1


# Items and reads without a reference.

GAP: dict[str, Any] = {"accountReference": None, "transactionId": "t-9"}


@over_both_clients
@pytest.mark.parametrize("keys", some_by_default([False, True]), ids=["", "payout_keys"])
@pytest.mark.parametrize(
    ("item", "may_be_it"),
    [
        *(({}, True), ({"createdAt": "1970-01-01T00:00:00Z"}, True), ({"type": "PAYMENT"}, True)),
        *(({"accountReference": gap}, True) for gap in ("", "  ", "-", "N/A", "\u200b")),
        *(({"phone": masked}, True) for masked in ("2547*****678", "0712***678", "****678", "N/A")),
        *(({"amount": 11}, False), ({"phone": "254722000111"}, False), ({"type": "STK"}, False)),
        *(({"createdAt": ago(timedelta(days=3))}, False), ({"transactionId": "t-known"}, False)),
    ],
)
def test_an_item_without_a_reference_that_may_be_the_payment_blocks_it(
    serve: Serve, journal: Journal, item: dict[str, Any], keys: bool, *, may_be_it: bool
) -> None:
    """Neither the list nor the read by id shows the reference: nobody knows, so nothing is sent and nobody releases."""
    put(journal, "known", ACCEPTED, transaction_id="t-known")
    row = listed(**(GAP | item))
    shop = serve(pages=[[row]], read=row, options={"payout_keys": keys})
    put(journal, "r", UNKNOWN)
    long_ago(journal)
    execute(journal, "UPDATE momopay_payments SET clock_offset = 0")
    with pytest.raises(OutcomeUnknownError) as caught:
        shop.pay()
    assert shop.service.sent == 0
    assert [each.transaction_id for each in caught.value.near_matches] == ["t-9"] * may_be_it
    with pytest.raises(OutcomeUnknownError) if may_be_it else nullcontext():
        shop.release()
    assert shop.state() is (UNKNOWN if may_be_it else NOT_SENT)


@over_both_clients
@pytest.mark.parametrize("how", ["pay_once", "sweep"])
def test_a_read_by_id_may_show_the_reference_that_the_list_lacks(serve: Serve, journal: Journal, how: str) -> None:
    put(journal, "r", UNKNOWN)
    shop = serve(pages=[[listed(**GAP)]], read=listed(transactionId="t-9"))
    if how == "sweep":
        shop.sweep()
    else:
        assert shop.pay().transaction_id == "t-9"
    assert (shop.state(), shop.service.sent) == (ACCEPTED, 0)


@over_both_clients
@pytest.mark.parametrize(("missing", "state"), [({}, ACCEPTED), ({"phone": None}, UNKNOWN), ({"type": None}, UNKNOWN)])
@pytest.mark.parametrize("how", ["pay_once", "sweep", "release"])
def test_the_payment_whose_id_a_broken_answer_showed_needs_no_reference(
    serve: Serve, journal: Journal, how: str, missing: dict[str, Any], state: JournalState
) -> None:
    """Phone, amount and type are enough beside the id of our own answer. With fewer of them nobody knows."""
    put(journal, "r", UNKNOWN, seen_id="t-9")
    long_ago(journal)
    shop = serve(read=listed(**(GAP | missing)))
    if how == "sweep":
        shop.sweep()
    else:
        problem = RequestValidationError if how == "release" and state is ACCEPTED else OutcomeUnknownError
        with nullcontext() if how == "pay_once" and state is ACCEPTED else pytest.raises(problem):
            shop.release() if how == "release" else shop.pay()
    assert (shop.state(), shop.service.sent) == (state, 0)


def test_the_control_releases_what_an_item_without_a_reference_may_be(
    serve: Serve, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_self: Search, _item: object) -> Fit:
        return Fit.NONE

    monkeypatch.setattr(Search, "fit", never)
    put(journal, "r", UNKNOWN)
    long_ago(journal)
    assert serve(pages=[[listed(**GAP)]], read=listed(**GAP)).release().state is NOT_SENT


# Receipts that reads and the list show.


@over_both_clients
@pytest.mark.parametrize("how", ["read", "read again", "sweep", "settle", "reconcile"])
def test_a_receipt_that_the_service_shows_is_kept(serve: Serve, journal: Journal, how: str) -> None:
    status = "SUCCESS" if how == "read again" else None
    put(journal, "r", ACCEPTED, transaction_id="t-1", status=status)
    put(journal, "other", ACCEPTED, transaction_id="t-2")
    record = listed(status="SUCCESS", acmeReceipt="QK12")
    shop = serve(pages=[[record]], read=record, ahead=timedelta(hours=2))
    if how == "settle":
        journal.settle(shop(lambda client: client.transactions.get("t-1")))
    elif how == "sweep":
        shop.sweep()
    elif how == "reconcile":
        day = datetime.now(UTC).date()
        shop(lambda client: client.transactions.reconcile(day=day, utc=True, journal=journal))
    else:
        assert shop.pay().receipt == "QK12"
    entry = journal.by_receipt("QK12")
    assert entry is not None
    assert (entry.reference, entry.receipt, entry.status) == ("r", "QK12", "SUCCESS")
    assert shop.pay().receipt == "QK12"
    if how == "read":
        last: Any = journal.history("r")[-1]
        assert (last.source, last.service_time - last.at > timedelta(hours=1)) == ("read", True)
