"""A new journal is not trusted with a live account that made payments before it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from bodies import envelope, refusal
from drivers import Drive
from durable.kit import (
    Serve,
    Served,
    Service,
    ago,
    collect,
    listed,
    over_both_clients,
    pay,
    pay_all,
    payout_record,
    refund,
    release,
    sweep,
    with_each_client_and_database,
)
from journal.constants import PAYOUT
from journal.database_kit import another_process, execute
from journal.kit import put
from journal.versions.kit import load
from momopay import (
    APIConnectionError,
    ConfigurationError,
    InvalidApiKeyError,
    Journal,
    JournalError,
    MomoPayError,
    RateLimitExceededError,
)
from momopay.durable import past

LIVE = {"api_key": "pk_live_0123456789", "deadline": 5.0}
LIST, PAY = "GET /transactions", "POST /b2c/payouts"
CALLS: dict[str, Callable[[Journal], Any]] = {
    "pay_once": pay,
    "collect_once": collect,
    "sweep": sweep,
    "release": release,
    "refund": refund,
}
DAY = timedelta(days=1)


pytestmark = pytest.mark.usefixtures("live_keys", "no_backoff")


def top_up(number: int = 0, **fields: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"transactionId": f"u-{number}", "type": "WALLET_TOPUP", "status": "SUCCESS"}
    return listed(f"top-up {number}", **known | fields)


def made(reference: str = "INV-41", **fields: Any) -> dict[str, Any]:
    """Make an item of the list, of a payment that some other journal made."""
    known: dict[str, Any] = {"transactionId": "t-41", "status": "SUCCESS", **fields}
    return listed(reference, **known)


FAILURES = [made(transactionId=f"f-{each}", status=each) for each in ("FAILED", "CANCELLED", "EXPIRED", "REVERSED")]
EARLIER = [
    pytest.param([made()], id="a payout"),
    pytest.param([made(type="STK", status="PENDING")], id="an open prompt"),
    pytest.param([made(status="PROCESSING")], id="under way"),
    pytest.param([made(status="ON_HOLD")], id="an unknown status"),
    pytest.param([made(type="C2B")], id="an unknown type"),
    pytest.param([made(age=30 * DAY - timedelta(hours=1))], id="29 days ago"),
    pytest.param([made(createdAt="1970-01-01T00:00:00Z")], id="at an unknown time"),
    pytest.param([*FAILURES, top_up(), made()], id="among failures"),
    pytest.param([{**made(), "type": None}], id="without a type"),
    pytest.param([{**made(), "status": None}], id="without a status"),
    pytest.param([{**made(), "phone": None, "createdAt": None}], id="without a phone and a time"),
    pytest.param(["nothing that can be read"], id="no object"),
]
NOTHING = [
    pytest.param([], id="an empty list"),
    pytest.param([top_up(), top_up(1, type="WALLET_TOPUP_B2C")], id="top-ups"),
    pytest.param(FAILURES, id="failures"),
    pytest.param([made(age=30 * DAY + timedelta(hours=1))], id="31 days ago"),
    pytest.param([{**top_up(), "phone": None}, {**FAILURES[0], "type": None}], id="a top-up and a failure, unread"),
    pytest.param([{**made(age=31 * DAY), "phone": None}], id="31 days ago, unread"),
]


def refused(shop: Served, call: Any, match: str) -> str:
    """Expect that a call sends no payment, and return what it says."""
    with pytest.raises(ConfigurationError, match=match) as caught:
        shop(call)
    assert not caught.value.may_have_executed
    assert shop.service.sent == 0
    return str(caught.value)


@pytest.mark.parametrize("items", EARLIER)
def test_a_new_journal_of_an_account_with_a_past_is_refused(serve: Serve, journal: Journal, items: list[Any]) -> None:
    shop = serve(payout_record(), pages=[items], options=LIVE)
    said = ""
    for _ in range(2):
        said = refused(shop, pay(journal), "show 1 payments of the last 30 days")
    assert shop.requests == [LIST] * 2
    parts = (
        "may have been lost",
        "without a volume",
        "momopay journal accept-restored",
        "--by NAME",
        "nothing was sent",
    )
    assert [part for part in parts if part not in said] == []


@pytest.mark.parametrize("items", NOTHING)
def test_a_new_journal_of_an_account_without_a_past_is_used_after_one_read(
    serve: Serve, journal: Journal, items: list[Any]
) -> None:
    shop = serve(payout_record(), pages=[items], options=LIVE)
    assert shop.pay().is_new
    assert shop.requests == [LIST, PAY]
    shop.service._initiation = payout_record(transactionId="t-2")
    assert shop.pay("s").is_new
    assert shop.requests == [LIST, PAY, PAY]


@with_each_client_and_database
def test_it_is_used_once_a_person_accepts_it(drive: Drive, url: str, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(payout_record(), pages=[[made()]])
    sdk = drive(**LIVE, transport=service.transport)
    with Journal(url) as journal:
        with pytest.raises(ConfigurationError, match="accept-restored"):
            sdk(pay(journal))
        with another_process(url, create=False) as tables:  # which the refused call has made
            said = tables.accept_restored(by="Wanjiku")
        assert said.startswith("reconcile what was paid before: momopay reconcile --day 20")
        assert "Wanjiku accepted a new journal" in caplog.text
        assert execute(journal, "SELECT account, by_whom FROM momopay_acceptances") == [("default", "Wanjiku")]
        assert sdk(pay(journal)).is_new
    assert service.requests == [LIST, PAY]


def test_it_may_be_accepted_before_its_first_use(serve: Serve, journal: Journal) -> None:
    assert journal.accept_restored(by="Wanjiku")
    shop = serve(payout_record(), pages=[[made()]], options=LIVE)
    assert shop.pay().is_new
    assert shop.requests == [PAY]


def test_who_accepts_one_account_accepts_no_other(serve: Serve, url: str, journal: Journal) -> None:
    journal.accept_restored(by="Wanjiku")
    shop = serve(payout_record(), pages=[[made()]], options=LIVE)
    with Journal(url, account="second shop") as second:
        refused(shop, pay(second), "this journal is new")
    assert shop.pay().is_new


@over_both_clients
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_no_durable_call_sends(serve: Serve, journal: Journal, call: Callable[[Journal], Any]) -> None:
    shop = serve(payout_record(), pages=[[made()]], options=LIVE)
    refused(shop, call(journal), "this journal is new")
    assert shop.requests == [LIST]


@over_both_clients
def test_a_payroll_is_refused_before_its_first_row(serve: Serve, journal: Journal) -> None:
    shop = serve(payout_record(), pages=[[made()]], options=LIVE)
    (outcome,) = shop.sdk.collect(pay_all(journal, "SAL-1", "SAL-2"))
    assert (outcome.stops, type(outcome.error), outcome.state) == (True, ConfigurationError, "NOT_SENT")
    assert shop.requests == [LIST]
    assert list(journal.entries()) == []


def test_it_does_not_matter_which_call_bound_the_account(serve: Serve, journal: Journal) -> None:
    """A reconciliation is what a person is told to do. It sends nothing, and asks for nothing."""
    shop = serve(payout_record(), pages=[[made()]], options=LIVE)
    shop(lambda client: client.transactions.reconcile(day=(datetime.now(UTC) - DAY).date(), journal=journal))
    assert execute(journal, "SELECT account, checked FROM momopay_accounts") == [("default", 0)]
    refused(shop, pay(journal), "this journal is new")


# Pages


@pytest.mark.parametrize(
    ("pages", "reads", "is_refused"),
    [
        ([[top_up()], [top_up(1)], [made()]], 3, True),
        ([[top_up()], [made()], [top_up(1)]], 2, True),
        ([[top_up()], [top_up(1)], [top_up(2)], [made()]], 3, False),
        ([[made(age=31 * DAY)], [made(age=32 * DAY, transactionId="t-40")]], 2, False),
    ],
)
def test_up_to_three_pages_are_read_while_they_show_no_payment(
    serve: Serve, journal: Journal, pages: list[list[Any]], reads: int, *, is_refused: bool
) -> None:
    shop = serve(payout_record(), pages=pages, options=LIVE)
    if is_refused:
        refused(shop, pay(journal), "this journal is new")
        assert shop.requests == [LIST] * reads
    else:
        assert shop.pay().is_new
        assert shop.requests == [*[LIST] * reads, PAY]


def test_it_says_how_many_payments_and_the_latest(serve: Serve, journal: Journal) -> None:
    items = [
        made(transactionId=f"t-{hours}", age=timedelta(hours=hours), reference=f"INV-{hours}") for hours in (1, 2, 3)
    ]
    said = refused(serve(pages=[items], options=LIVE), pay(journal), "show 3 payments")
    assert f"the latest B2C 'INV-1', SUCCESS, of {ago(timedelta(hours=1))[:10]}" in said


def test_thirty_days_are_counted_by_the_services_clock(serve: Serve, journal: Journal) -> None:
    ahead = timedelta(days=3)
    answer = payout_record(createdAt=ago(-ahead), updatedAt=ago(-ahead))
    shop = serve(answer, pages=[[made(age=28 * DAY)]], ahead=ahead, options=LIVE)
    assert shop.pay().is_new


def test_what_the_journal_made_itself_is_no_past(serve: Serve, journal: Journal) -> None:
    """A process of the version before may have paid before the read."""
    put(journal, "INV-41", kind=PAYOUT, transaction_id="t-41")
    shop = serve(payout_record(), pages=[[made()]], options=LIVE)
    assert shop.pay().is_new


# A list that cannot be read


def failing(answer: httpx.Response | Exception) -> Callable[[httpx.Request], httpx.Response | None]:
    """Answer reads of the list so, and everything else as the service does."""

    def instead(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("/transactions"):
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    return instead


def as_ever(_request: httpx.Request) -> None:
    """Answer as the service does."""


UNREADABLE = [
    httpx.Response(503, text="<"),
    httpx.Response(200, text="<html>"),
    httpx.Response(200, json=envelope({"items": []})),
    httpx.Response(403, json=refusal("INSUFFICIENT_SCOPE")),
    httpx.Response(404, json=refusal("HTTP_404")),
]


@pytest.mark.parametrize("answer", UNREADABLE, ids=str)
def test_a_list_that_cannot_be_read_refuses_until_it_can(
    serve: Serve, journal: Journal, answer: httpx.Response | Exception
) -> None:
    shop = serve(payout_record(), instead=failing(answer), options=LIVE)
    said = refused(shop, pay(journal), "cannot be read")
    assert "accept-restored" in said
    shop.service._instead = as_ever
    assert shop.pay().is_new


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(401, json=refusal("INVALID_API_KEY")), InvalidApiKeyError),
        (httpx.Response(429, json=refusal("RATE_LIMIT_EXCEEDED", resetInSeconds=60)), RateLimitExceededError),
        (httpx.ConnectError("refused"), APIConnectionError),
    ],
    ids=str,
)
def test_an_error_that_is_clear_by_itself_refuses_as_it_is(
    serve: Serve, journal: Journal, answer: Any, error: type[MomoPayError]
) -> None:
    shop = serve(payout_record(), instead=failing(answer), options=LIVE)
    for _ in range(2):
        with pytest.raises(error) as caught:
            shop(pay(journal))
        assert not caught.value.may_have_executed
    assert PAY not in shop.requests
    shop.service._instead = as_ever
    assert shop.pay().is_new


@pytest.mark.parametrize(
    "answer", [*UNREADABLE, httpx.ConnectError("refused"), AssertionError("a mock does not know this request")], ids=str
)
def test_a_test_key_pays_although_the_list_cannot_be_read(
    serve: Serve, journal: Journal, answer: httpx.Response | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    shop = serve(payout_record(), instead=failing(answer))
    assert shop.pay().is_new
    assert shop.requests == [LIST, PAY]
    assert caplog.messages == []


# Test keys


@over_both_clients
def test_a_test_key_is_warned_once(serve: Serve, journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    shop = serve(payout_record(), pages=[[made()]], read=payout_record())
    for _ in range(2):
        assert shop.pay().transaction_id == "t-1"
    (warning,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "this journal is new" in warning.getMessage()
    assert shop.requests[:2] == [LIST, PAY]


def test_a_test_run_and_a_sandbox_need_no_read(
    serve: Serve, journal: Journal, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shop = serve(payout_record(), pages=[[made()]], options={"base_url": "http://127.0.0.1:1/v1"})
    assert shop.pay().is_new
    assert shop.requests == [PAY]
    monkeypatch.setenv("MOMOPAY_TEST_RUN", "1")
    with Journal(url, account="second shop") as second:
        shop = serve(payout_record(), pages=[[made()]])
        assert shop(pay(second)).is_new
    assert (shop.requests, caplog.messages) == ([PAY], [])


# Journals that are not new


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_an_account_that_version_1_bound_is_not_asked_again(drive: Drive, url: str, tmp_path: Any) -> None:
    if url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path / 'old.db'}"
    load(url, 1)
    service = Service(payout_record(), pages=[[made()]])
    with Journal(url, account="second shop") as journal:
        sdk = drive(**LIVE, base_url="https://pay.example/v1", transport=service.transport)
        assert sdk(pay(journal, "new")).is_new
    assert service.requests == [PAY]


# Crashes and other processes


class _KilledError(BaseException):
    """The process dies."""


@pytest.mark.parametrize("moment", ["before the read", "after the read", "before it is recorded"])
def test_a_process_that_dies_in_between_skips_nothing(
    serve: Serve, journal: Journal, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[Sequence[Any]] = [[made()]] if moment != "before it is recorded" else [[]]
    shop = serve(payout_record(), pages=pages, options=LIVE)

    def die(*_arguments: Any) -> Any:
        raise _KilledError

    with monkeypatch.context() as patched:
        if moment == "before the read":
            patched.setattr(past, "past_of", die)
        elif moment == "after the read":
            patched.setattr("momopay.durable.past.errors.ConfigurationError", _KilledError)
        else:
            patched.setattr("momopay.journal.guards.Accounts.trust", die)
        with pytest.raises(_KilledError):
            shop(pay(journal))
    assert execute(journal, "SELECT checked FROM momopay_accounts") == [(0,)]
    before = len(shop.requests)
    if moment == "before it is recorded":
        assert shop.pay().is_new
        assert shop.requests[before:] == [LIST, PAY]
    else:
        refused(shop, pay(journal), "this journal is new")
        assert shop.requests[before:] == [LIST]


def test_two_processes_that_begin_at_once_are_both_refused(serve: Serve, url: str) -> None:
    shop = serve(payout_record(), pages=[[made()]], options=LIVE)
    with another_process(url) as one, another_process(url) as other:
        refused(shop, pay(one), "this journal is new")
        refused(shop, pay(other), "this journal is new")
        one.accept_restored(by="Wanjiku")
        assert shop(pay(other)).is_new
    assert shop.requests == [LIST, LIST, PAY]


def test_a_database_that_does_not_take_the_fact_sends_nothing(
    serve: Serve, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr("momopay.journal.guards.Accounts.trust", fail)
    shop = serve(payout_record(), options=LIVE)
    with pytest.raises(JournalError):
        shop.pay()
    assert shop.requests == [LIST]
