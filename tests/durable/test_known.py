"""A payment that was attempted before: only the transaction that fits resolves it, and whatever may be it blocks it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

import momopay
from drivers import LOOPBACK, Driver
from durable.kit import (
    PAYOUTS,
    Service,
    ago,
    collect,
    initiate,
    listed,
    pay,
    record,
)
from durable.kit import record as answer
from journal.kit import (
    ACCEPTED,
    COLLECTION,
    PHONE,
    REFUSED,
    UNKNOWN,
    begin,
    execute,
    found,
    lease_of,
    put,
    state_of,
)
from journal.kit import record as record_outcome
from momopay import Journal, JournalState, OutcomeUnknownError
from momopay.sandbox import Fault, Sandbox

STK: dict[str, Any] = {"type": "STK"}
NEAR: list[dict[str, Any]] = [
    {"amount": 11},
    {"phone": "254712345679"},
    {"type": "WALLET_TOPUP"},
    {"createdAt": ago(timedelta(minutes=6))},
    {"accountReference": "r "},
    {"accountReference": "r\u00a0"},
]
"""What has the reference, but may be another payment."""


def prompt_for(journal: Journal, **fields: Any) -> Callable[[Any], Any]:
    return collect(journal, phone=PHONE, **fields)


# Reading what was accepted.


def test_an_accepted_payment_that_cannot_be_read_says_that_money_moved(
    drive: Callable[..., Driver], sdk: Driver, key: str, journal: Journal
) -> None:
    sdk(pay(journal))
    nowhere = drive(api_key=key, base_url=LOOPBACK, max_attempts=1)
    with pytest.raises(momopay.APIConnectionError) as caught:
        nowhere(pay(journal))
    assert caught.value.may_have_executed


def test_what_was_paid_is_returned_though_the_journal_cannot_be_written(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    first = sdk(pay(journal))
    sandbox.advance(3600)
    execute(
        journal,
        "CREATE TRIGGER full BEFORE UPDATE ON momopay_transactions BEGIN SELECT RAISE(ABORT, 'disk full'); END",
    )
    again = sdk(pay(journal))
    assert (again.transaction_id, again.status) == (first.transaction_id, "SUCCESS")
    assert "disk full" in caplog.text


@pytest.mark.parametrize("kind", ["payout", "order"])
@pytest.mark.parametrize(
    "mismatch", [{"amount": 77}, {"phone": "254712345679"}, {"accountReference": "another"}, {"type": "WALLET_TOPUP"}]
)
def test_a_later_read_of_another_payment_makes_it_unresolved(
    drive: Callable[..., Driver], journal: Journal, mismatch: dict[str, Any], kind: str
) -> None:
    fields = {} if kind == "payout" else STK
    call = pay if kind == "payout" else prompt_for
    service = Service(answer(**fields), read=listed(**fields | mismatch))
    sdk = drive(transport=service.transport)
    sdk(call(journal))
    with pytest.raises(OutcomeUnknownError, match="the service's record of transaction t-1 has another"):
        sdk(call(journal))
    assert (found(journal).state, found(journal).transactions) == (UNKNOWN, ())
    assert service.sent == 1


# What was refused, and may have been made after all.


@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("state", [REFUSED, UNKNOWN])
@pytest.mark.parametrize("kind", ["payout", "order"])
def test_a_near_match_blocks_a_second_attempt_and_is_shown(
    drive: Callable[..., Driver], journal: Journal, near: dict[str, Any], state: JournalState, kind: str
) -> None:
    fields = {} if kind == "payout" else STK
    call = pay(journal) if kind == "payout" else prompt_for(journal, abandon_after=0.001)
    put(journal, "r", state, found_kind(kind))
    service = Service(answer(**fields), pages=[[listed(**fields | near)]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError, match="has its reference") as caught:
        sdk(call)
    assert ([each.transaction_id for each in caught.value.near_matches], caught.value.matches) == (["t-1"], ())
    assert (found(journal).state, service.sent) == (UNKNOWN, 0)
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [UNKNOWN]


def found_kind(kind: str) -> momopay.EntryKind:
    return momopay.EntryKind.PAYOUT if kind == "payout" else COLLECTION


def test_a_transaction_of_another_reference_is_no_match(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    with pytest.raises(OutcomeUnknownError, match="the list does not show it") as caught:
        drive(transport=Service(pages=[[listed("R")]]).transport)(pay(journal))
    assert caught.value.near_matches == ()


def test_what_was_refused_and_made_after_all_is_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    """The refusal was a proxy's."""
    put(journal, "r", REFUSED, code="NO")
    made = sdk(initiate("r"))
    again = sdk(pay(journal))
    assert (again.is_new, again.transaction_id, found(journal).state) == (False, made.transaction_id, ACCEPTED)
    assert PAYOUTS.paid(sandbox) == ["r"]


def test_a_prompt_that_was_refused_and_made_after_all_is_found_beside_another(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-0", status="CANCELLED")
    put(journal, "r", REFUSED, COLLECTION)
    rows = [listed(transactionId="t-1", **STK), listed(transactionId="t-0", status="CANCELLED", **STK)]
    assert not drive(transport=Service(pages=[rows]).transport)(prompt_for(journal)).is_new
    assert [each.status for each in found(journal).transactions] == ["CANCELLED", "PENDING"]


# Searching for what is unresolved.


def test_a_transaction_that_fits_is_not_shared_by_two_references(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    put(journal, "another", ACCEPTED, transaction_id="t-1")
    put(journal, "r", UNKNOWN)
    with pytest.raises(OutcomeUnknownError, match="already that of another reference"):
        drive(transport=Service(pages=[[listed()]]).transport)(pay(journal))
    assert state_of(journal) is UNKNOWN


def test_several_that_fit_a_payout_are_shown_to_a_person(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    sdk = drive(transport=Service(pages=[[listed(transactionId="t-1"), listed(transactionId="t-2")]]).transport)
    with pytest.raises(OutcomeUnknownError, match="2 transactions fit") as caught:
        sdk(pay(journal))
    assert [each.transaction_id for each in caught.value.matches] == ["t-1", "t-2"]
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [UNKNOWN]


def test_all_prompts_that_a_search_shows_are_kept(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN, COLLECTION)
    pages = [[listed(transactionId="b", **STK), listed(transactionId="a", status="SUCCESS", **STK)]]
    paid = drive(transport=Service(pages=pages).transport)(prompt_for(journal))
    assert (paid.transaction_id, paid.is_paid, paid.is_new) == ("a", True, False)
    assert set(found(journal).transaction_ids) == {"a", "b"}
    assert (found(journal).status, found(journal).paid_twice) == ("SUCCESS", False)


def test_an_unresolved_prompt_that_is_found_cancelled_is_followed_by_another(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    put(journal, "r", UNKNOWN, COLLECTION)
    service = Service(answer(transactionId="t-2", **STK), pages=[[listed(status="CANCELLED", **STK)]])
    assert drive(transport=service.transport)(prompt_for(journal)).transaction_id == "t-2"
    assert [each.status for each in found(journal).transactions] == ["CANCELLED", "PENDING"]


def test_prompts_that_are_known_are_no_matches(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="CANCELLED")
    put(journal, "r", UNKNOWN, COLLECTION)
    service = Service(pages=[[listed(status="CANCELLED", **STK)]])
    with pytest.raises(OutcomeUnknownError, match="does not show it"):
        drive(transport=service.transport)(prompt_for(journal))
    assert state_of(journal) is UNKNOWN


@pytest.mark.parametrize("state", [UNKNOWN, REFUSED])
def test_a_search_shows_that_an_earlier_prompt_was_paid(
    drive: Callable[..., Driver], journal: Journal, state: JournalState
) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status="CANCELLED")
    put(journal, "r", state, COLLECTION)
    late = listed(status="SUCCESS", **STK)
    service = Service(pages=[[late]], read=late)
    paid = drive(transport=service.transport)(prompt_for(journal))
    assert (paid.transaction_id, paid.is_paid) == ("t-1", True)
    assert service.requests == ["GET /transactions", "GET /transactions/t-1"]


def test_a_payment_that_the_list_shows_late_is_not_sent_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    PAYOUTS.fail_next(sandbox, Fault.list_lag)
    sdk(initiate("r"))
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    sandbox.advance(3600)
    assert not sdk(pay(journal)).is_new
    assert PAYOUTS.sent(sandbox) == 1


def test_a_search_that_fails_leaves_it_unknown(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    service = Service()

    def fail(request: httpx.Request) -> httpx.Response:
        is_search = request.url.path.endswith("/transactions")
        return httpx.Response(400, text="<html>") if is_search else service.respond(request)

    sdk = drive(transport=httpx.MockTransport(fail))
    with pytest.raises(OutcomeUnknownError, match="search failed") as caught:
        sdk(pay(journal))
    assert isinstance(caught.value.__cause__, momopay.ProtocolError)
    with pytest.raises(momopay.ProtocolError):
        sdk(journal.reconcile_all)
    assert state_of(journal) is UNKNOWN


def test_a_confirmed_callback_resolves_what_is_unknown(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    PAYOUTS.fail_next(sandbox, Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, callback_url="http://127.0.0.1:9/nobody"))
    sandbox.advance(600)
    callback = momopay.parse_callback(sandbox.callbacks[0].payload)
    entry = journal.settle(sdk(lambda client: client.transactions.confirm(callback)))
    assert entry is not None
    assert (entry.state, entry.transaction_id) == (ACCEPTED, callback.transaction_id)


# The id of a broken response.

BROKEN = {"transactionId": "queued"}
"""A response that lacks everything else."""


@pytest.mark.parametrize(
    "other", [{"accountReference": "another"}, {"amount": 11}, {"phone": "254712345679"}, {"type": "STK"}]
)
def test_the_id_of_a_broken_response_is_compared_with_the_payment(
    drive: Callable[..., Driver], journal: Journal, other: dict[str, Any]
) -> None:
    service = Service(BROKEN, read=listed(transactionId="queued") | other, pages=[[listed()]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert caught.value.transaction_id == found(journal).transaction_id == "queued"
    assert sdk(pay(journal)).transaction_id == found(journal).transaction_id == "t-1"
    assert service.sent == 1


def test_the_id_of_a_broken_response_spares_a_search(drive: Callable[..., Driver], journal: Journal) -> None:
    service = Service(BROKEN, read=listed(transactionId="queued"))
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert not sdk(pay(journal)).is_new
    assert state_of(journal) is ACCEPTED
    assert service.requests == ["POST /b2c/payouts", "GET /transactions/queued"]


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("broken", [BROKEN, record(transactionId=" "), record(transactionId="")])
@pytest.mark.parametrize("status", [404, 500])
def test_an_id_that_cannot_be_read_leaves_the_decision_to_the_list(
    drive: Callable[..., Driver], journal: Journal, status: int, broken: Any
) -> None:
    service = Service(broken, status=status, pages=[[listed()]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert (found(journal).state, service.sent) == (ACCEPTED, 1)


# All at once.


def test_all_that_is_unresolved_is_searched_for_in_one_walk(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for call, path in ((pay(journal, "a"), "/b2c/payouts"), (collect(journal, "b"), "/payments/stk")):
        sandbox.fail_next("POST", path, Fault.error_after_commit)
        with pytest.raises(OutcomeUnknownError):
            sdk(call)
    put(journal, "never sent", UNKNOWN)
    before = len(sandbox.requests)
    entries = sdk(journal.reconcile_all)
    assert len(sandbox.requests) == before + 1
    states = {"a": ACCEPTED, "b": ACCEPTED, "never sent": UNKNOWN}
    assert {entry.reference: entry.state for entry in entries} == states
    assert [entry.reference for entry in journal.unresolved()] == ["never sent"]


def test_where_nothing_is_unresolved_nothing_is_searched(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "accepted", ACCEPTED)
    service = Service()
    with lease_of(journal) as lease:
        begin(journal, lease, "being sent")
        assert drive(transport=service.transport)(journal.reconcile_all) == []
        record_outcome(journal, lease, REFUSED, "being sent")
    assert service.requests == []
