"""An order is collected once: `collect_once` against the sandbox at real sockets, whose ledger is the only witness."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import momopay
from drivers import Driver, hasty
from journal.kit import PHONE, execute, just_before
from momopay import (
    BudgetExhaustedError,
    ConfigurationError,
    DuplicateCollectionError,
    EntryKind,
    Journal,
    JournalEntry,
    JournalState,
    OutcomeUnknownError,
    RateBudget,
    RequestValidationError,
    StkTransaction,
    Transaction,
    TransactionStatus,
)
from momopay.journal.evidence import Report
from momopay.journal.journal import collections_of
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from postgresql import PostgresqlServer
from resources.payout_service import PayoutService, listed
from resources.payout_service import record as answer

ACCEPTED, UNKNOWN, NOT_SENT, REFUSED = (
    JournalState.ACCEPTED,
    JournalState.UNKNOWN,
    JournalState.NOT_SENT,
    JournalState.REFUSED,
)
BY_HAND = phone_for(Outcome.by_hand)
AFTER_COMMIT = [Fault.reset_after_commit, Fault.hang_after_commit, Fault.error_after_commit]


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> str:
    """The blocking client, unless a test asks for both."""
    return str(getattr(request, "param", "blocking"))


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, unless a test asks for both."""
    if getattr(request, "param", "sqlite") == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        return server.new_schema()
    return f"sqlite:///{tmp_path / 'journal.db'}"


on_both_clients = pytest.mark.parametrize("client_kind", ["blocking", "async"], indirect=True)
on_both_databases = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


def collect(journal: Journal, **fields: Any) -> Callable[[Any], Any]:
    """Collect KES 100 once, for the order INV-42, from a customer who does what the test says."""
    arguments: dict[str, Any] = {"reference": "INV-42", "amount": 100, "phone": BY_HAND, **fields}
    return lambda client: client.stk.collect_once(journal=journal, **arguments)


def found(journal: Journal, reference: str = "INV-42") -> JournalEntry:
    entry = journal.get(reference, kind=EntryKind.COLLECTION)
    assert entry is not None
    return entry


def requests(sandbox: Sandbox) -> list[str]:
    return [f"{each.method} {each.path.partition('?')[0]}".replace("/v1", "") for each in sandbox.requests]


def prompts(sandbox: Sandbox) -> int:
    """Return how many prompts the service was asked for."""
    return requests(sandbox).count("POST /payments/stk")


def paid(sandbox: Sandbox) -> list[str | None]:
    """Return what customers have paid, by the service's reference."""
    return [movement.reference for movement in sandbox.ledger if movement.kind == "stk"]


def pay(sandbox: Sandbox, prompt: Any) -> None:
    sandbox.enter_pin(prompt)
    sandbox.advance(60)


# The checkout.


@on_both_clients
@on_both_databases
def test_a_prompt_that_was_cancelled_is_followed_by_another_in_the_same_call(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    first = sdk(collect(journal))
    assert isinstance(first, StkTransaction)
    assert first.account_reference == "INV-42"
    sandbox.cancel(first)
    second = sdk(collect(journal))
    assert isinstance(second, StkTransaction)
    assert second.transaction_id != first.transaction_id
    # One read showed that the first had ended; no search, as each attempt is a prompt that is known.
    assert requests(sandbox) == [
        "POST /payments/stk",
        f"GET /transactions/{first.transaction_id}",
        "POST /payments/stk",
    ]
    pay(sandbox, second)
    ended = [sdk(collect(journal)) for _ in range(3)]
    assert {(type(each), each.transaction_id, each.status) for each in ended} == {
        (Transaction, second.transaction_id, TransactionStatus.SUCCESS)
    }
    entry = found(journal)
    assert (entry.state, entry.attempts, entry.transaction_id) == (ACCEPTED, 2, second.transaction_id)
    assert entry.transaction_ids == (first.transaction_id, second.transaction_id)
    assert [each.status for each in entry.prompts] == ["CANCELLED", "SUCCESS"]
    assert (paid(sandbox), prompts(sandbox)) == (["INV-42"], 2)


@on_both_clients
def test_an_open_prompt_is_returned(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(collect(journal))
    again = sdk(collect(journal, phone=f"+{BY_HAND}"))
    assert isinstance(again, Transaction)
    assert (again.transaction_id, again.status) == (first.transaction_id, TransactionStatus.PENDING)
    sandbox.enter_pin(first)
    assert sdk(collect(journal)).status == TransactionStatus.PROCESSING
    assert (prompts(sandbox), found(journal).attempts) == (1, 1)


@pytest.mark.parametrize("outcome", [Outcome.expired, Outcome.timeout, Outcome.insufficient_funds])
def test_whatever_ended_without_success_is_followed_by_another(
    sdk: Driver, sandbox: Sandbox, journal: Journal, outcome: Outcome
) -> None:
    for number in range(3):
        assert isinstance(sdk(collect(journal, phone=phone_for(outcome))), StkTransaction)
        sandbox.advance(90)
        assert prompts(sandbox) == number + 1
    assert len(found(journal).prompts) == 3


def test_what_was_paid_is_returned_by_its_id_for_ever(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(collect(journal))
    pay(sandbox, first)
    sdk(collect(journal))
    before = len(sandbox.requests)
    assert sdk(collect(journal)).transaction_id == first.transaction_id
    assert requests(sandbox)[before:] == [f"GET /transactions/{first.transaction_id}"]


def test_another_amount_or_phone_is_another_order(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.cancel(sdk(collect(journal)))
    for other in ({"amount": 99}, {"phone": PHONE}):
        with pytest.raises(DuplicateCollectionError) as caught:
            sdk(collect(journal, **other))
        assert caught.value.reference == "INV-42"
        assert not caught.value.may_have_executed
    assert prompts(sandbox) == 1


def test_metadata_and_the_rest_of_a_prompt(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sent = sdk(collect(journal, transaction_desc="Shoes", metadata={"cart": 7}, amount=Decimal("99.50")))
    assert (sent.transaction_desc, sent.amount) == ("Shoes", Decimal("99.50"))
    assert found(journal).metadata == {"cart": 7}


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"reference": " INV-42"}, "reference"),
        ({"reference": ""}, "reference"),
        ({"amount": 0}, "amount"),
        ({"account_reference": "longer than twelve"}, "account_reference"),
        ({"abandon_after": -1}, "abandon_after"),
        ({"abandon_after": float("inf")}, "abandon_after"),
        ({"abandon_after": True}, "abandon_after"),
        ({"metadata": {"a": object()}}, "metadata"),
    ],
)
def test_arguments_at_fault_are_refused_here(
    sdk: Driver, sandbox: Sandbox, journal: Journal, fields: dict[str, Any], at_fault: str
) -> None:
    with pytest.raises(RequestValidationError) as caught:
        sdk(collect(journal, **fields))
    assert set(caught.value.fields) == {at_fault}
    assert sandbox.requests == []


def test_an_order_that_was_anonymised_is_not_prompted_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    prompted = sdk(collect(journal))
    pay(sandbox, prompted)
    sdk(collect(journal))
    sandbox.cancel(sdk(collect(journal, reference="INV-43")))
    execute(journal, "UPDATE momopay_payments SET phone = ''")
    assert sdk(collect(journal)).transaction_id == prompted.transaction_id
    with pytest.raises(DuplicateCollectionError, match="has another phone"):
        sdk(collect(journal, phone=PHONE))
    with pytest.raises(DuplicateCollectionError, match="was anonymised"):
        sdk(collect(journal, reference="INV-43"))
    assert prompts(sandbox) == 2


# The reference at the service.


def test_an_order_of_more_than_twelve_characters_goes_out_as_a_token(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    long = "order-2026-11-22-0042"
    first = sdk(collect(journal, reference=long))
    token = found(journal, long).wire_reference
    assert token is not None
    assert (len(token), token.isalnum(), first.account_reference) == (12, True, token)
    sandbox.cancel(first)
    second = sdk(collect(journal, reference=long))
    other = sdk(collect(journal, reference=f"{long}-b"))
    assert second.account_reference == token != other.account_reference


def test_a_lost_answer_is_found_by_the_token(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    order = collect(journal, reference="order-2026-11-22-0042")
    with pytest.raises(OutcomeUnknownError):
        sdk(order)
    assert isinstance(sdk(order), Transaction)
    assert prompts(sandbox) == 1


def test_an_order_keeps_the_account_reference_that_it_began_with(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    first = sdk(collect(journal, account_reference="ACME 7"))
    assert (first.account_reference, found(journal).wire_reference) == ("ACME 7", "ACME 7")
    sandbox.cancel(first)
    for fields in ({}, {"account_reference": "ACME 8"}):
        again = sdk(collect(journal, **fields))
        assert again.account_reference == "ACME 7"
        sandbox.cancel(again)
    assert caplog.text.count("goes on with its first account_reference") >= 2


def test_two_orders_do_not_share_an_account_reference(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(collect(journal, account_reference="SHOP"))
    for fields in ({"reference": "INV-43", "account_reference": "SHOP"}, {"reference": "SHOP"}):
        with pytest.raises(RequestValidationError, match="is that of order 'INV-42'"):
            sdk(collect(journal, **fields))
    assert prompts(sandbox) == 1


def test_a_prompt_does_not_block_a_payout_with_the_reference_of_its_order(
    sdk: Driver, account: Account, journal: Journal
) -> None:
    sdk(collect(journal))
    account.b2c_balance = Decimal(0)
    with pytest.raises(momopay.InsufficientFundsError):
        sdk(partial(_pay_out, journal))
    account.b2c_balance = Decimal(1000)
    assert isinstance(sdk(partial(_pay_out, journal)), momopay.Payout)


def test_a_payout_does_not_block_a_prompt_for_the_order_with_its_reference(
    sdk: Driver, account: Account, journal: Journal
) -> None:
    sdk(partial(_pay_out, journal))
    account.service_balance, account.fee = Decimal(0), Decimal(1)
    with pytest.raises(momopay.InsufficientServiceBalanceError):
        sdk(collect(journal))
    account.service_balance = Decimal(1000)
    assert isinstance(sdk(collect(journal)), StkTransaction)


def _pay_out(journal: Journal, client: Any) -> Any:
    return client.payouts.pay_once(journal=journal, reference="INV-42", amount=100, phone=BY_HAND)


# Answers that are lost.


@on_both_clients
@pytest.mark.parametrize("fault", AFTER_COMMIT)
def test_a_prompt_whose_answer_was_lost_is_found(sdk: Driver, sandbox: Sandbox, journal: Journal, fault: Fault) -> None:
    sandbox.cancel(sdk(collect(journal)))
    sandbox.fail_next("POST", "/payments/stk", fault)
    with pytest.raises(OutcomeUnknownError):
        sdk(hasty(collect(journal)))
    assert found(journal).state is UNKNOWN
    assert [entry.kind for entry in journal.unresolved()] == [EntryKind.COLLECTION]
    second = sdk(collect(journal))
    assert isinstance(second, Transaction)
    assert second.status == TransactionStatus.PENDING
    assert prompts(sandbox) == 2
    assert len(found(journal).prompts) == 2
    pay(sandbox, second)
    assert sdk(collect(journal)).status == TransactionStatus.SUCCESS
    assert paid(sandbox) == ["INV-42"]


def test_a_prompt_in_doubt_that_is_found_cancelled_is_followed_by_another(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(collect(journal, phone=phone_for(Outcome.cancelled)))
    sandbox.advance(10)
    assert isinstance(sdk(collect(journal, phone=phone_for(Outcome.cancelled))), StkTransaction)
    assert [each.status for each in found(journal).prompts] == ["CANCELLED", "PENDING"]


@pytest.mark.parametrize("fault", [Fault.error_before_commit, Fault.html_502, Fault.reset_before_read])
def test_a_customer_who_may_have_been_prompted_is_not_prompted_again(
    sdk: Driver, sandbox: Sandbox, journal: Journal, fault: Fault
) -> None:
    sandbox.fail_next("POST", "/payments/stk", fault)
    for _ in range(3):
        with pytest.raises(OutcomeUnknownError) as caught:
            sdk(collect(journal))
        assert caught.value.reference == "INV-42"
    assert prompts(sandbox) <= 1
    journal.release("INV-42", kind=EntryKind.COLLECTION)
    assert isinstance(sdk(collect(journal)), StkTransaction)


def test_all_in_doubt_is_reconciled_with_payouts_in_one_walk(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.rate_limit = None
    sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    for lost in (collect(journal), partial(_pay_out, journal)):
        with pytest.raises(OutcomeUnknownError):
            sdk(lost)
    before = len(sandbox.requests)
    entries = sdk(journal.reconcile_all)
    assert requests(sandbox)[before:] == ["GET /transactions"]
    assert [(entry.kind, entry.state) for entry in entries] == [
        (EntryKind.COLLECTION, ACCEPTED),
        (EntryKind.PAYOUT, ACCEPTED),
    ]


# Refusals.


def test_what_was_refused_is_sent_again_after_a_search(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.service_balance = Decimal(0)
    account.fee = Decimal(1)
    with pytest.raises(momopay.InsufficientServiceBalanceError) as caught:
        sdk(collect(journal))
    assert not caught.value.may_have_executed
    assert (found(journal).state, found(journal).code) == (REFUSED, "INSUFFICIENT_SERVICE_BALANCE")
    account.service_balance = Decimal(100)
    assert isinstance(sdk(collect(journal)), StkTransaction)
    assert requests(sandbox) == ["POST /payments/stk", "GET /transactions", "POST /payments/stk"]
    assert found(journal).attempts == 2


def test_what_a_proxy_refused_and_the_service_did_is_found(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.rate_limit = None
    sandbox.cancel(sdk(collect(journal)))
    sdk(collect(journal))
    # As if the second had been refused: the journal does not know it.
    execute(journal, "DELETE FROM momopay_prompts WHERE status = 'PENDING'")
    execute(journal, "UPDATE momopay_payments SET state = 'REFUSED', transaction_id = NULL, status = NULL")
    assert isinstance(sdk(collect(journal)), Transaction)
    assert prompts(sandbox) == 2
    assert [each.status for each in found(journal).prompts] == ["CANCELLED", "PENDING"]


def test_a_pause_that_the_service_ordered_sends_nothing_and_leaves_the_order(
    sdk: Driver, sandbox: Sandbox, key: str, journal: Journal
) -> None:
    sandbox.ban_stk(key)
    with pytest.raises(momopay.StkTempBannedError):
        sdk(collect(journal))
    assert found(journal).state is REFUSED
    before = found(journal)
    with pytest.raises(momopay.StkTempBannedError) as caught:
        sdk(collect(journal))
    assert not caught.value.may_have_executed
    assert (prompts(sandbox), found(journal)) == (1, before)


def test_a_second_prompt_that_gets_no_slot_leaves_the_order(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, journal: Journal
) -> None:
    budget = RateBudget(requests=2, window=600.0)
    sdk = drive(api_key=key, base_url=sandbox.base_url, deadline=3.0, budget=budget)
    first = sdk(collect(journal))
    sandbox.cancel(first)
    with pytest.raises(BudgetExhaustedError) as caught:
        sdk(collect(journal))
    assert not caught.value.may_have_executed
    assert (found(journal).state, found(journal).status) == (ACCEPTED, "CANCELLED")


NEAR_MATCHES: list[dict[str, Any]] = [
    {"amount": 101},
    {"phone": "254712345679"},
    {"type": "B2C"},
    {"createdAt": "2020-01-01T00:00:00Z"},
]


def stk(**fields: Any) -> dict[str, Any]:
    return {"type": "STK", "amount": 100, "phone": BY_HAND, **fields}


@pytest.mark.parametrize("near", NEAR_MATCHES)
@pytest.mark.parametrize("state", [REFUSED, UNKNOWN])
def test_a_near_match_blocks_a_new_prompt(
    drive: Callable[..., Driver], journal: Journal, near: dict[str, Any], state: JournalState
) -> None:
    orders = collections_of(journal)
    _put(journal, state)
    service = PayoutService(answer(**stk()), pages=[[listed("INV-42", **stk(**near))]])
    with pytest.raises(OutcomeUnknownError) as caught:
        drive(transport=service.transport)(collect(journal, abandon_after=0.001))
    assert [each.transaction_id for each in caught.value.near_matches] == ["t-1"]
    assert orders.get("INV-42") == found(journal)
    assert found(journal).state is UNKNOWN
    assert "POST /payments/stk" not in service.requests


def _put(journal: Journal, state: JournalState, *reports: Report) -> None:
    """Bring the order to a state, after prompts of which the service reported this."""
    orders = collections_of(journal)
    for report in (*reports, None):
        with orders.leases.lease() as lease:
            begun = orders.begin(
                lease,
                reference="INV-42",
                amount=Decimal(100),
                phone=BY_HAND,
                body_hash="hash",
                seconds=600,
                read=orders.get("INV-42"),
                wire_reference="INV-42",
            )
            assert begun is None
            if report is not None:
                orders.accept("INV-42", report, lease=lease)
            else:
                orders.record_outcome(lease, "INV-42", state)


def test_known_prompts_are_no_matches(drive: Callable[..., Driver], journal: Journal) -> None:
    _put(journal, UNKNOWN, Report("t-1", "CANCELLED"))
    service = PayoutService(pages=[[listed("INV-42", **stk(status="CANCELLED"))]])
    with pytest.raises(OutcomeUnknownError, match="does not show it"):
        drive(transport=service.transport)(collect(journal))
    assert found(journal).state is UNKNOWN


@pytest.mark.parametrize("state", [UNKNOWN, REFUSED])
def test_a_search_shows_that_an_earlier_prompt_was_paid(
    drive: Callable[..., Driver], journal: Journal, state: JournalState
) -> None:
    _put(journal, state, Report("t-1", "CANCELLED"))
    late = listed("INV-42", **stk(status="SUCCESS"))
    service = PayoutService(pages=[[late]], read=late)
    got = drive(transport=service.transport)(collect(journal))
    assert (got.transaction_id, got.status) == ("t-1", TransactionStatus.SUCCESS)
    assert service.requests == ["GET /transactions", "GET /transactions/t-1"]


def test_all_prompts_that_a_search_shows_are_kept(drive: Callable[..., Driver], journal: Journal) -> None:
    _put(journal, UNKNOWN)
    pages = [[listed("INV-42", **stk(transactionId="b")), listed("INV-42", **stk(transactionId="a", status="SUCCESS"))]]
    got = drive(transport=PayoutService(pages=pages).transport)(collect(journal))
    assert got.transaction_id == "a"
    assert set(found(journal).transaction_ids) == {"a", "b"}
    assert (found(journal).status, found(journal).paid_twice) == ("SUCCESS", False)


MISMATCHES: list[dict[str, Any]] = [
    {"amount": 77},
    {"phone": "254712345679"},
    {"accountReference": "another"},
    {"type": "B2C"},
]


@on_both_clients
@pytest.mark.parametrize("other", MISMATCHES)
def test_an_answer_that_is_another_payment_is_not_believed(
    drive: Callable[..., Driver], journal: Journal, other: dict[str, Any]
) -> None:
    service = PayoutService(answer(**stk(**other)))
    with pytest.raises(OutcomeUnknownError, match="answered with another"):
        drive(transport=service.transport)(collect(journal))
    assert (found(journal).state, found(journal).prompts) == (UNKNOWN, ())


def test_a_record_that_is_another_payment_is_no_prompt_of_the_order(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    service = PayoutService(answer(**stk()), read=listed("another", **stk()))
    sdk = drive(transport=service.transport)
    sdk(collect(journal))
    with pytest.raises(OutcomeUnknownError, match="record of transaction t-1 has another reference"):
        sdk(collect(journal))
    assert (found(journal).state, found(journal).prompts) == (UNKNOWN, ())


# Prompts that are abandoned, and late PINs.


def test_an_open_prompt_blocks_for_ever_unless_it_is_abandoned(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(collect(journal))
    for abandon_after in (None, 3600.0):
        assert sdk(collect(journal, abandon_after=abandon_after)).transaction_id == first.transaction_id
    assert prompts(sandbox) == 1
    second = sdk(collect(journal, abandon_after=0.001))
    assert isinstance(second, StkTransaction)
    assert prompts(sandbox) == 2
    again = sdk(collect(journal))
    assert again.transaction_id == second.transaction_id
    sandbox.cancel(second)
    assert sdk(collect(journal)).transaction_id == first.transaction_id  # still open
    assert prompts(sandbox) == 2


@on_both_databases
def test_two_prompts_that_were_paid_after_all_are_both_recorded(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    account.rate_limit = None
    first = sdk(collect(journal))
    second = sdk(collect(journal, abandon_after=0.001))
    pay(sandbox, first)
    assert sdk(collect(journal)).transaction_id == first.transaction_id
    assert not found(journal).paid_twice
    pay(sandbox, second)
    journal.settle(sdk(lambda client: client.transactions.get(second)))
    entry = found(journal)
    assert entry.paid_twice
    assert entry.transaction_ids == (first.transaction_id, second.transaction_id)
    assert entry.transaction_id == first.transaction_id
    assert sdk(collect(journal)).transaction_id == first.transaction_id
    (record,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    for told in ("INV-42", first.transaction_id, second.transaction_id, "KES 100", "payouts.refund"):
        assert told in record.getMessage()
    assert prompts(sandbox) == 2


def test_a_late_pin_pays_an_order_whose_prompt_was_cancelled(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.switches.late_pin = True
    first = sdk(collect(journal))
    sandbox.cancel(first)
    second = sdk(collect(journal))
    pay(sandbox, first)
    journal.settle(sdk(lambda client: client.transactions.get(first)))
    assert sdk(collect(journal)).transaction_id == first.transaction_id
    assert found(journal).status == TransactionStatus.SUCCESS
    sandbox.cancel(second)
    assert sdk(collect(journal)).transaction_id == first.transaction_id
    assert (prompts(sandbox), paid(sandbox)) == (2, ["INV-42"])


def test_a_payment_that_becomes_known_just_before_the_next_prompt_stops_it(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    first = sdk(collect(journal))
    sandbox.cancel(first)
    sdk(lambda client: client.transactions.get(first))
    orders = collections_of(journal)
    orders.report("INV-42", Report(first.transaction_id, "CANCELLED"))
    late = Report(first.transaction_id, "SUCCESS")
    with just_before("UPDATE momopay_payments", journal, lambda: orders.report("INV-42", late)):
        got = sdk(collect(journal))
    assert got.transaction_id == first.transaction_id
    assert prompts(sandbox) == 1


def test_abandon_after_is_measured_by_the_clock_of_the_service(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(collect(journal))
    sandbox.advance(100)
    assert sdk(collect(journal, abandon_after=120)).transaction_id == first.transaction_id
    sandbox.advance(30)
    assert sdk(collect(journal, abandon_after=120)).transaction_id != first.transaction_id
    assert prompts(sandbox) == 2


def test_without_the_time_of_the_service_abandon_after_is_measured_by_this_machine(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    read = answer(**stk(accountReference="INV-42"))
    sdk = drive(transport=PayoutService(answer(**stk()), read=read).transport)
    first = sdk(collect(journal))
    assert sdk(collect(journal, abandon_after=120)).transaction_id == first.transaction_id
    execute(journal, "UPDATE momopay_prompts SET sent_at = '2026-01-01T00:00:00+00:00'")
    sdk = drive(transport=PayoutService(answer(**stk(transactionId="t-2")), read=read).transport)
    assert sdk(collect(journal, abandon_after=120)).transaction_id == "t-2"


def test_an_attempt_in_doubt_is_never_abandoned(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    for abandon_after in (None, 0, 0.001):
        with pytest.raises(OutcomeUnknownError):
            sdk(collect(journal, abandon_after=abandon_after))
    assert prompts(sandbox) == 1


# Several calls at once, and journals that are not the account's.


@on_both_databases
def test_of_many_calls_at_once_one_prompts(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, account: Account, url: str
) -> None:
    account.rate_limit = None

    def once(_number: int) -> str:
        with Journal(url) as journal, momopay.Client(key, base_url=sandbox.base_url, budget=None) as client:
            got: str = collect(journal)(client).transaction_id
            return got

    with ThreadPoolExecutor(5) as pool:
        assert len(set(pool.map(once, range(5)))) == 1
        with Journal(url) as journal:
            (cancelled,) = found(journal).transaction_ids
        sandbox.cancel(cancelled)
        assert len(set(pool.map(once, range(5)))) == 1
    assert prompts(sandbox) == 2


def test_a_journal_of_another_account_is_refused(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    nothing: Any = None
    sdk(collect(journal))
    with (
        momopay.Client("pk_live_" + "a" * 20, base_url="https://api.example/v1", budget=None) as live,
        pytest.raises(ConfigurationError, match="belongs to"),
    ):
        collect(journal)(live)
    with pytest.raises(ConfigurationError, match=r"must be a momopay\.Journal"):
        sdk(collect(nothing))


def test_without_its_journal_nothing_is_sent(sdk: Driver, sandbox: Sandbox) -> None:
    with Journal("postgresql+psycopg://nobody@127.0.0.1:1/nothing") as away, pytest.raises(momopay.JournalError):
        sdk(collect(away))
    assert sandbox.requests == []
