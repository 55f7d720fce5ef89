"""How far a search walks the list, by which clock, and until when."""

import time
from datetime import UTC, date, datetime, timedelta

import httpx
import pytest

import momopay
from drivers import Drive, Driver
from durable.kit import KEY_CHECK, Service, ago, collect, initiate, listed, over_both_clients, page, pay, record
from journal.kit import NOT_SENT, PHONE, REFUSED, UNKNOWN, execute, found, put
from momopay import Journal, OutcomeUnknownError
from momopay.sandbox import Sandbox


@pytest.mark.parametrize(("offset", "pages_read"), [(0, 3), (7200, 3), (-7200, 3), (None, 4)])
def test_a_walk_reaches_back_to_the_oldest_and_no_further(
    drive: Drive, journal: Journal, offset: int | None, pages_read: int
) -> None:
    """Clocks differ by five minutes, and by what is known to be between them. A list that shifts repeats a row."""
    day = timedelta(days=1)
    for reference in ("yesterday", "today"):
        put(journal, reference, UNKNOWN)
    execute(journal, f"UPDATE momopay_payments SET clock_offset = {'NULL' if offset is None else offset}")
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{ago(day)}' WHERE reference = 'yesterday'")
    pages = [
        [listed("today", transactionId="new"), listed("another", age=timedelta(hours=1))],
        [
            listed("today", transactionId="new"),
            listed("yesterday", age=day + timedelta(minutes=4, seconds=max(0, offset or 0)), transactionId="old"),
        ],
        [listed("another", age=2 * day)],
        [listed("another", age=2 * day + timedelta(minutes=6))],
        [listed("another", age=3 * day)],
    ]
    service = Service(pages=pages)
    entries = drive(transport=service.transport)(journal.reconcile_all)
    assert [(each.reference, each.transaction_id) for each in entries] == [("yesterday", "old"), ("today", "new")]
    assert service.requests == ["GET /transactions"] * pages_read


@pytest.mark.parametrize("attempts", [1, 0])
def test_what_may_have_been_sent_at_any_time_is_sent_again_only_after_the_whole_list(
    drive: Drive, journal: Journal, attempts: int
) -> None:
    """Nothing is known of the clock that wrote when it was sent."""
    put(journal, "r", REFUSED)
    execute(journal, f"UPDATE momopay_payments SET attempts = {attempts}")
    pages = [[listed("another", age=timedelta(days=days))] for days in (0, 3, 9)] + [[listed(age=timedelta(days=9))]]
    service = Service(record(reference="r", transactionId="t-2"), pages=pages)
    sdk = drive(transport=service.transport)
    if attempts:
        with pytest.raises(OutcomeUnknownError, match="has its reference"):
            sdk(pay(journal))
    else:  # nothing was ever sent, so nothing can be in the list
        sdk(pay(journal))
    assert (service.requests.count("GET /transactions"), service.sent) == ((4, 0) if attempts else (2, 1))


def test_an_order_is_searched_for_since_its_first_attempt(drive: Drive, journal: Journal) -> None:
    """Two attempts, hours apart, were refused; the first became a prompt even so, and is beyond the second's page."""
    for _ in range(2):
        put(journal, "r", REFUSED, momopay.EntryKind.COLLECTION)
    first = timedelta(hours=5)
    execute(journal, f"UPDATE momopay_payments SET created_at = '{ago(first)}', clock_offset = 0")
    pages = [[listed("another", age=timedelta(hours=hours))] for hours in (0, 1, 4)]
    pages.append([listed(type="STK", age=first, transactionId="first")])
    service = Service(record(type="STK", transactionId="second"), pages=pages)
    made = drive(transport=service.transport)(collect(journal, phone=PHONE))
    assert made.transaction_id == "first", service.requests
    assert service.sent == 0


@pytest.mark.parametrize("missing", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
def test_a_missing_time_at_the_end_of_a_page_ends_no_walk(drive: Drive, journal: Journal, missing: str) -> None:
    put(journal, "r", REFUSED, clock_offset=0.0)
    sdk = drive(transport=Service(pages=[[listed("another", createdAt=missing)], [listed()]]).transport)
    assert not sdk(pay(journal)).is_new
    day = (datetime.now(UTC) + timedelta(hours=3)).date()
    assert sdk(lambda client: client.transactions.reconcile(journal=journal, day=day)).transactions == 1


@pytest.mark.parametrize(("day", "transactions", "pages_read"), [(20, 1, 4), (21, 2, 3)])
def test_midnight_is_of_the_day_that_begins(
    drive: Drive, journal: Journal, day: int, transactions: int, pages_read: int
) -> None:
    """And the walk ends with the first page that shows something older than the day."""
    times = ["21T12:00:00", "21T00:00:00", "20T23:59:59", "19T12:00:00", "18T12:00:00"]
    service = Service(pages=[[listed(createdAt=f"2026-11-{each}+03:00", transactionId=each)] for each in times])
    sdk = drive(transport=service.transport)
    report = sdk(lambda client: client.transactions.reconcile(journal=journal, day=date(2026, 11, day)))
    assert (report.transactions, len(service.requests)) == (transactions, pages_read)


def test_nothing_is_sent_if_the_whole_list_is_too_long(drive: Drive, journal: Journal) -> None:
    put(journal, "r", REFUSED)
    service = Service(pages=[[listed("another", age=timedelta(days=days))] for days in range(60)])
    budget = momopay.RateBudget(requests=58, window=61.0)
    with pytest.raises(momopay.BudgetExhaustedError):
        drive(transport=service.transport, budget=budget, deadline=30)(pay(journal))
    assert (service.sent, found(journal).state in {REFUSED, NOT_SENT}) == (0, True)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=2)])
def test_a_time_in_the_services_future_proves_that_a_clock_was_ahead(
    drive: Drive, journal: Journal, ahead: timedelta
) -> None:
    """By the time of the search the clock is right again."""
    put(journal, "r", UNKNOWN)
    future = (datetime.now(UTC) + ahead).isoformat()
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{future}'")
    others = [listed(f"o{number}", age=timedelta(minutes=1), transactionId=f"o{number}") for number in range(3)]
    service = Service(pages=[others, [listed(age=timedelta(minutes=2))]])
    assert not drive(transport=service.transport)(pay(journal)).is_new


def test_a_search_ends_with_the_calls_deadline(drive: Drive, journal: Journal) -> None:
    pages: list[int] = []

    def a_page(request: httpx.Request) -> httpx.Response:
        if KEY_CHECK.endswith(request.url.path.removeprefix("/v1")):
            return Service().respond(request)
        pages.append(len(pages))
        time.sleep(0.02)
        return httpx.Response(200, json=page([listed("another")], str(len(pages)) if len(pages) < 200 else None))

    put(journal, "r", UNKNOWN)
    with pytest.raises(OutcomeUnknownError, match="the search failed") as caught:
        drive(transport=httpx.MockTransport(a_page), deadline=0.5)(pay(journal))
    assert caught.value.may_have_executed
    assert 0 < len(pages) < 200


# `transactions.find`


@over_both_clients
def test_a_search_ends_where_the_payment_cannot_be(sdk: Driver, sandbox: Sandbox) -> None:
    for number in range(25):
        sdk(initiate(f"OLD-{number}"))
    sandbox.advance(3600)
    made = sdk(initiate("NEW"))
    before = len(sandbox.requests)
    matches = sdk(lambda client: client.transactions.find(reference="NEW", since=made.created_at, type="B2C"))
    assert [item.transaction_id for item in matches] == [made.transaction_id]
    assert len(sandbox.requests) - before == 1


def test_a_search_skips_an_older_payment_of_the_same_reference(sdk: Driver, sandbox: Sandbox) -> None:
    older = sdk(initiate("SAME"))
    sandbox.advance(301)
    made = sdk(initiate("SAME"))
    matches = sdk(lambda client: client.transactions.find(reference="SAME", since=made.created_at))
    assert [item.transaction_id for item in matches] == [made.transaction_id]
    since = made.created_at - timedelta(seconds=2)
    both = sdk(lambda client: client.transactions.find(reference="SAME", since=since))
    assert [item.transaction_id for item in both] == [made.transaction_id, older.transaction_id]
