"""Payouts in doubt: only the one that fits resolves one, and a walk of the list reaches back to the oldest."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import momopay
from campaign.clocks import unwind, wind
from drivers import Driver
from journal.kit import PHONE, begin, execute, found, lease_of, put
from momopay import Journal, JournalState, OutcomeUnknownError, Transaction
from momopay.sandbox import Account, Fault, Sandbox
from resources import sandbox_kit
from resources.payout_service import PayoutService, listed, pay, record
from virtual import envelope

UNKNOWN = JournalState.UNKNOWN


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> str:
    """The blocking client, unless a test asks for both."""
    return str(getattr(request, "param", "blocking"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'payouts.db'}"


on_both_clients = pytest.mark.parametrize("client_kind", ["blocking", "async"], indirect=True)


@on_both_clients
def test_all_in_doubt_is_reconciled_in_one_walk(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.rate_limit = None
    for number in range(3):
        sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
        with pytest.raises(OutcomeUnknownError):
            sdk(pay(journal, reference=f"r{number}"))
    put(journal, "never sent", UNKNOWN)
    before = len(sandbox.requests)
    entries = sdk(journal.reconcile_all)
    assert len(sandbox.requests) == before + 1
    accepted = [(f"r{number}", JournalState.ACCEPTED) for number in range(3)]
    assert [(entry.reference, entry.state) for entry in entries] == [*accepted, ("never sent", UNKNOWN)]
    assert [entry.reference for entry in journal.unresolved()] == ["never sent"]


def test_nothing_in_doubt_costs_no_request(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put(journal, "accepted", JournalState.ACCEPTED)
    with lease_of(journal) as lease:
        begin(journal, lease, "being sent")
        assert sdk(journal.reconcile_all) == []
    assert sandbox.requests == []


@pytest.mark.parametrize(("offset", "pages_read"), [(0, 3), ("NULL", 4)])
def test_a_walk_reaches_back_to_the_oldest_and_no_further(
    drive: Callable[..., Driver], journal: Journal, offset: object, pages_read: int
) -> None:
    for reference in ("yesterday's", "today's"):
        put(journal, reference, UNKNOWN)
    execute(journal, f"UPDATE momopay_payments SET clock_offset = {offset}")
    # The service's clock and ours may differ by five minutes.
    day = timedelta(days=1)
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{_ago(day)}' WHERE reference = 'yesterday''s'")
    pages = [
        [listed("today's", transactionId="new"), listed("another's", age=timedelta(hours=1))],
        [listed("yesterday's", age=day + timedelta(minutes=4), transactionId="old")],
        [listed("another's", age=2 * day)],
        [listed("another's", age=2 * day + timedelta(minutes=6))],
        [listed("another's", age=3 * day)],
    ]
    service = PayoutService(pages=pages)
    entries = drive(transport=service.transport)(journal.reconcile_all)
    assert [(entry.reference, entry.transaction_id) for entry in entries] == [
        ("yesterday's", "old"),
        ("today's", "new"),
    ]
    assert service.requests == ["GET /transactions"] * pages_read


class _Payer:
    """A payer's clock, which may be ahead of the service's."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.ahead = timedelta()

    def now(self) -> datetime:
        return self._sandbox.now + self.ahead

    def boot(self) -> float:
        return self._sandbox.now.timestamp()


@pytest.fixture
def payer(sandbox: Sandbox) -> Generator[_Payer]:
    """The clock that the client and the journal read."""
    clock = _Payer(sandbox)
    wound = wind(clock)
    yield clock
    unwind(wound)


@on_both_clients
def test_a_clock_of_which_nothing_is_known_hides_no_payment(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal, payer: _Payer
) -> None:
    account.rate_limit = None
    payer.ahead = timedelta(hours=1)
    sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, reference="r"))
    assert found(journal).clock_offset is None
    payer.ahead = timedelta()
    sandbox.advance(1800)
    for number in range(101):
        sdk(partial(sandbox_kit.pay, reference=f"n{number}"))
    sandbox.advance(5400)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert [each.account_reference for each in caught.value.near_matches] == ["r"]
    assert sdk(journal.reconcile_all)[0].state is UNKNOWN
    journal.release("r", by="somebody who has not looked")
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert sum((each.kind, each.reference) == ("payout", "r") for each in sandbox.ledger) == 1


@on_both_clients
@pytest.mark.parametrize("attempts", [1, 0])
def test_what_may_have_been_sent_at_any_time_is_sent_again_only_after_the_whole_list(
    drive: Callable[..., Driver], journal: Journal, attempts: int
) -> None:
    put(journal, "r", UNKNOWN)
    journal.release("r", by="somebody")
    execute(journal, f"UPDATE momopay_payments SET attempts = {attempts}")
    pages = [[listed("another's", age=timedelta(days=days))] for days in (0, 3, 9)] + [[listed(age=timedelta(days=9))]]
    service = PayoutService(record(reference="r", transactionId="t-2"), pages=pages)
    sdk = drive(transport=service.transport)
    if attempts:
        with pytest.raises(OutcomeUnknownError, match="has its reference"):
            sdk(pay(journal))
    else:  # nothing was ever sent, so nothing can be in the list
        sdk(pay(journal))
    assert (service.requests.count("GET /transactions"), service.initiations) == ((4, 0) if attempts else (2, 1))


def test_nothing_is_sent_if_the_whole_list_is_too_long(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    journal.release("r", by="somebody")
    service = PayoutService(pages=[[listed("another's", age=timedelta(days=days))] for days in range(60)])
    budget = momopay.RateBudget(requests=58, window=61.0)
    with pytest.raises(momopay.BudgetExhaustedError):
        drive(transport=service.transport, budget=budget, deadline=30)(pay(journal))
    assert (service.initiations, found(journal).state) == (0, JournalState.NOT_SENT)


def _ago(age: timedelta) -> str:
    return str(listed(age=age)["createdAt"])


NEAR = [
    {"type": "STK"},
    {"type": "WALLET_TOPUP"},
    {"amount": 11},
    {"phone": "254712345679"},
    {"accountReference": "r "},
    {"createdAt": _ago(timedelta(minutes=6))},
]


@pytest.mark.parametrize("other", NEAR)
def test_a_near_match_resolves_nothing_and_is_shown(
    drive: Callable[..., Driver], journal: Journal, other: dict[str, Any]
) -> None:
    put(journal, "r", UNKNOWN)
    service = PayoutService(pages=[[listed(**other)]])
    sdk = drive(transport=service.transport)
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [UNKNOWN]
    with pytest.raises(OutcomeUnknownError, match="a transaction has its reference") as caught:
        sdk(pay(journal))
    assert ([each.transaction_id for each in caught.value.near_matches], caught.value.matches) == (["t-1"], ())
    assert found(journal).state is UNKNOWN
    assert service.initiations == 0


def test_a_transaction_of_another_reference_is_no_match(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    service = PayoutService(pages=[[listed("R")]])
    with pytest.raises(OutcomeUnknownError, match="the list does not show it") as caught:
        drive(transport=service.transport)(pay(journal))
    assert caught.value.near_matches == ()


def test_several_that_fit_are_shown_to_a_human(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    service = PayoutService(pages=[[listed(transactionId="t-1"), listed(transactionId="t-2")]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError, match="2 transactions fit") as caught:
        sdk(pay(journal))
    assert [each.transaction_id for each in caught.value.matches] == ["t-1", "t-2"]
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [UNKNOWN]


def test_one_that_a_shifting_list_shows_twice_is_one(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    service = PayoutService(pages=[[listed()], [listed()]])
    assert [entry.transaction_id for entry in drive(transport=service.transport)(journal.reconcile_all)] == ["t-1"]


BROKEN = {"transactionId": "queued"}
"""A response that lacks everything else."""


@pytest.mark.parametrize(
    "other", [{"accountReference": "another"}, {"amount": 11}, {"phone": "254712345679"}, {"type": "STK"}]
)
def test_the_id_of_a_broken_response_is_held_against_the_payout(
    drive: Callable[..., Driver], journal: Journal, other: dict[str, Any]
) -> None:
    read = listed(transactionId="queued") | other
    service = PayoutService(BROKEN, read=read, pages=[[listed()]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert caught.value.transaction_id == found(journal).transaction_id == "queued"
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert found(journal).transaction_id == "t-1"
    assert service.initiations == 1


def test_the_id_of_a_broken_response_spares_a_search(drive: Callable[..., Driver], journal: Journal) -> None:
    service = PayoutService(BROKEN, read=listed(transactionId="queued"))
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert isinstance(sdk(pay(journal)), Transaction)
    assert found(journal).state is JournalState.ACCEPTED
    assert service.requests == ["POST /b2c/payouts", "GET /transactions/queued"]


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("status", [404, 500])
def test_an_id_that_cannot_be_read_leaves_the_decision_to_the_list(
    drive: Callable[..., Driver], journal: Journal, status: int
) -> None:
    service = PayoutService(BROKEN, status=status, pages=[[listed()]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert found(journal).state is JournalState.ACCEPTED


@pytest.mark.parametrize(
    "initiation", [record(reference="another"), record(transactionId=" "), record(transactionId="")]
)
def test_the_record_of_another_payout_is_not_taken_for_this_one(
    drive: Callable[..., Driver], journal: Journal, initiation: Any
) -> None:
    service = PayoutService(initiation, pages=[[listed()]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert found(journal).state is UNKNOWN
    assert caught.value.transaction_id == found(journal).transaction_id
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert service.initiations == 1


def test_a_response_without_a_reference_is_this_payouts(drive: Callable[..., Driver], journal: Journal) -> None:
    sdk = drive(transport=PayoutService(record(reference="")).transport)
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert found(journal).state is JournalState.ACCEPTED


def test_a_payment_that_the_list_shows_late_is_not_sent_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    sandbox.fail_next("POST", "/b2c/payouts", Fault.list_lag)
    sdk(lambda client: client.payouts.initiate(reference="r", amount=10, phone=PHONE))
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    sandbox.advance(3600)
    assert isinstance(sdk(pay(journal)), Transaction)
    assert [request.method for request in sandbox.requests].count("POST") == 1


def test_a_search_that_fails_leaves_it_unknown(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    sdk = drive(transport=httpx.MockTransport(lambda _request: httpx.Response(400, text="<html>")))
    with pytest.raises(OutcomeUnknownError, match="search failed") as caught:
        sdk(pay(journal))
    assert isinstance(caught.value.__cause__, momopay.ProtocolError)
    with pytest.raises(momopay.ProtocolError):
        sdk(journal.reconcile_all)
    assert found(journal).state is UNKNOWN


def test_a_search_ends_with_the_calls_deadline(drive: Callable[..., Driver], journal: Journal) -> None:
    pages: list[int] = []

    def a_page(_request: httpx.Request) -> httpx.Response:
        pages.append(len(pages))
        time.sleep(0.02)
        overview = {"total": 1, "completed": 1, "failed": 0, "pending": 0}
        more = str(len(pages)) if len(pages) < 200 else None
        return httpx.Response(
            200, json=envelope({"items": [listed("another's")], "overview": overview, "nextCursor": more})
        )

    put(journal, "r", UNKNOWN)
    with pytest.raises(OutcomeUnknownError, match="the search failed") as caught:
        drive(transport=httpx.MockTransport(a_page), deadline=0.3)(pay(journal))
    assert caught.value.may_have_executed
    assert 0 < len(pages) < 200


def test_a_confirmed_callback_resolves_what_is_in_doubt(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, callback_url="http://127.0.0.1:9/nobody"))
    sandbox.advance(600)
    callback = momopay.parse_callback(sandbox.callbacks[0].payload)
    entry = journal.settle(sdk(lambda client: client.transactions.confirm(callback)))
    assert entry is not None
    assert (entry.state, entry.transaction_id) == (JournalState.ACCEPTED, callback.transaction_id)
