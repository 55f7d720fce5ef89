"""What `pay_once` and `collect_once` do about a reference: against the sandbox, whose ledger is the only witness."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

import momopay
from drivers import Drive, Driver
from durable.kit import (
    BY_HAND,
    FAILING,
    ORDERS,
    PAYOUTS,
    Calls,
    Service,
    collect,
    listed,
    of_both_kinds,
    over_both_clients,
    pay,
    record,
    requests,
    with_each_client_and_database,
)
from journal.kit import (
    ACCEPTED,
    PAYOUT,
    PHONE,
    REFUSED,
    UNKNOWN,
    begin,
    execute,
    found,
    lease_of,
    put,
    sender,
    state_of,
)
from momopay import (
    AsyncClient,
    Client,
    ConfigurationError,
    DuplicateCollectionError,
    DuplicatePayoutError,
    Journal,
    OutcomeUnknownError,
    Payment,
    RequestValidationError,
)
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for

LONG = "order-2026-11-22-0042"


def pay_in(sandbox: Sandbox, prompt: Payment) -> None:
    """Let the customer pay a prompt; the money has arrived after it."""
    sandbox.enter_pin(prompt)
    sandbox.advance(60)


# One payment for a reference, for ever.


@with_each_client_and_database
def test_a_payout_is_sent_once_however_often_it_is_called(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(pay(journal))
    again = [sdk(pay(journal)), sdk(pay(journal, phone="+254 712 345 678"))]
    assert [each.is_new for each in (first, *again)] == [True, False, False]
    assert {(each.transaction_id, each.reference, each.amount) for each in again} == {(first.transaction_id, "r", 10)}
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, first.transaction_id)
    assert (PAYOUTS.paid(sandbox), PAYOUTS.sent(sandbox)) == (["r"], 1)


def test_a_payout_that_came_back_is_not_sent_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(pay(journal, phone=FAILING))
    sandbox.advance(3600)
    again = sdk(pay(journal, phone=FAILING))
    assert (again.transaction_id, again.status, again.is_paid) == (first.transaction_id, "REVERSED", False)
    assert PAYOUTS.sent(sandbox) == 1


def test_a_prompt_that_was_cancelled_is_followed_by_another_in_the_same_call(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    first = sdk(collect(journal))
    sandbox.cancel(first)
    second = sdk(collect(journal))
    assert (first.is_new, second.is_new) == (True, True)
    # One read showed that the first had ended; no search, as each attempt is a prompt that is known.
    read = f"GET /transactions/{first.transaction_id}"
    assert requests(sandbox) == ["POST /payments/stk", read, "POST /payments/stk"]
    pay_in(sandbox, second)
    before = len(sandbox.requests)
    ended = [sdk(collect(journal)) for _ in range(3)]
    assert {(each.transaction_id, each.is_new, each.is_paid) for each in ended} == {
        (second.transaction_id, False, True)
    }
    assert requests(sandbox)[before - len(sandbox.requests) :] == [f"GET /transactions/{second.transaction_id}"] * 3
    entry = found(journal)
    assert (entry.state, entry.attempts, entry.transaction_id) == (ACCEPTED, 2, second.transaction_id)
    assert entry.transaction_ids == (first.transaction_id, second.transaction_id)
    assert [each.status for each in entry.transactions] == ["CANCELLED", "SUCCESS"]
    assert (ORDERS.paid(sandbox), ORDERS.sent(sandbox)) == (["r"], 2)


def test_an_open_prompt_is_returned(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(collect(journal))
    again = sdk(collect(journal, phone=f"+{BY_HAND}"))
    assert (again.transaction_id, again.status, again.is_paid) == (first.transaction_id, "PENDING", None)
    sandbox.enter_pin(first)
    assert sdk(collect(journal)).status == "PROCESSING"
    assert (ORDERS.sent(sandbox), found(journal).attempts) == (1, 1)


def test_whatever_ended_without_success_is_followed_by_another(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for number, outcome in enumerate((Outcome.expired, Outcome.timeout, Outcome.insufficient_funds), start=1):
        assert sdk(collect(journal, phone=phone_for(outcome))).is_new
        sandbox.advance(90)
        assert ORDERS.sent(sandbox) == number
    assert len(found(journal).transactions) == 3


@of_both_kinds
def test_what_was_refused_is_sent_again_after_a_search(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal, calls: Calls
) -> None:
    account.service_balance, account.fee = Decimal(0), Decimal(1)
    with pytest.raises(momopay.InsufficientServiceBalanceError) as caught:
        sdk(calls.once(journal))
    assert not caught.value.may_have_executed
    assert (found(journal).state, found(journal).code) == (REFUSED, "INSUFFICIENT_SERVICE_BALANCE")
    account.service_balance = Decimal(100)
    assert sdk(calls.once(journal)).is_new
    assert requests(sandbox) == [f"POST {calls.path}", "GET /transactions", f"POST {calls.path}"]
    assert found(journal).attempts == 2


# To which payment a reference belongs.


@pytest.mark.parametrize("other", [{"amount": 11}, {"phone": "0712345679"}])
@pytest.mark.parametrize("state", [ACCEPTED, REFUSED])
def test_the_reference_of_a_payout_belongs_to_one_amount_and_one_phone(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal, other: dict[str, Any], state: str
) -> None:
    account.kyc_approved = state is ACCEPTED
    if state is ACCEPTED:
        sdk(pay(journal))
    else:
        with pytest.raises(momopay.KycNotVerifiedError):
            sdk(pay(journal))
    before = len(sandbox.requests)
    with pytest.raises(DuplicatePayoutError) as caught:
        sdk(pay(journal, **other))
    assert caught.value.reference == "r"
    assert not caught.value.may_have_executed
    assert len(sandbox.requests) == before
    assert state_of(journal) is state


def test_a_reference_with_another_description_is_the_same_payment(
    sdk: Driver, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "momopay")
    first = sdk(pay(journal, description="salary"))
    assert sdk(pay(journal, description="wages")).transaction_id == first.transaction_id
    assert "differs in more than money" in caplog.text


@over_both_clients
def test_arguments_at_fault_are_refused_here(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    nothing: Any = None
    cases: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
        (pay, {"amount": 9}, "amount"),
        (pay, {"reference": "r "}, "reference"),
        *(
            (pay, {"metadata": each}, "metadata")
            for each in ({"at": datetime.now(UTC)}, {"n": float("nan")}, {1: 2}, [1])
        ),
        (collect, {"reference": ""}, "reference"),
        (collect, {"amount": 0}, "amount"),
        (collect, {"account_reference": "longer than twelve"}, "account_reference"),
        *((collect, {"abandon_after": each}, "abandon_after") for each in (-1, float("inf"), True)),
    ]
    for call, fields, at_fault in cases:
        with pytest.raises(RequestValidationError) as caught:
            sdk(call(journal, **fields))
        assert caught.value.fields.keys() == {at_fault}, fields
    for calls in (PAYOUTS, ORDERS):
        for no_journal in (nothing, "sqlite:///journal.db"):
            with pytest.raises(ConfigurationError, match="journal"):
                sdk(calls.once(no_journal))
    assert (sandbox.requests, list(journal.entries())) == ([], [])


def test_metadata_is_kept_and_never_sent(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, metadata={"employee": 7, "tags": ["a"]}))
    sent = sdk(collect(journal, metadata={"employee": 8}, transaction_desc="Shoes", amount=Decimal("99.50")))
    assert (sent.transaction.transaction_desc, sent.amount) == ("Shoes", Decimal("99.50"))
    assert PAYOUTS.entry(journal).metadata == {"employee": 7, "tags": ["a"]}
    assert ORDERS.entry(journal).metadata == {"employee": 8}
    assert "employee" not in str(sandbox.requests)


def test_an_anonymised_payout_is_not_sent_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(pay(journal))
    put(journal, "refused", REFUSED)
    sandbox.advance(600)
    sdk(pay(journal))  # reads its end
    assert journal.anonymise(before=sandbox.now + timedelta(days=1)) == 2
    again = sdk(pay(journal))
    assert (again.transaction_id, again.status) == (first.transaction_id, "SUCCESS")
    for other in (pay(journal, phone="0712345679"), pay(journal, amount=11), pay(journal, "refused")):
        with pytest.raises(DuplicatePayoutError):
            sdk(other)
    assert (found(journal).state, found(journal).phone) == (ACCEPTED, "")
    assert PAYOUTS.sent(sandbox) == 1


def test_an_anonymised_order_is_not_prompted_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    paid, cancelled = sdk(collect(journal)), sdk(collect(journal, "s", amount=11))
    pay_in(sandbox, paid)
    sandbox.cancel(cancelled)
    sdk(lambda client: client.transactions.sweep(journal=journal))
    assert journal.anonymise(before=sandbox.now + timedelta(days=1)) == 2
    assert sdk(collect(journal)).transaction_id == paid.transaction_id
    with pytest.raises(DuplicateCollectionError, match="another phone"):
        sdk(collect(journal, phone="0712345679"))
    with pytest.raises(DuplicateCollectionError, match="was anonymised"):
        sdk(collect(journal, "s", amount=11))
    assert ORDERS.sent(sandbox) == 2


# The reference at the service.


def test_an_order_of_more_than_twelve_characters_goes_out_as_a_token(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    first = sdk(collect(journal, LONG))
    token = found(journal, LONG).wire_reference
    assert (len(token), token.isalnum(), first.transaction.account_reference) == (12, True, token)
    assert first.reference == LONG
    sandbox.cancel(first)
    ORDERS.fail_next(sandbox, Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(collect(journal, LONG))
    second = sdk(collect(journal, LONG))  # found by the token
    other = sdk(collect(journal, f"{LONG}-b"))
    assert second.transaction.account_reference == token != other.transaction.account_reference
    assert (second.is_new, ORDERS.sent(sandbox)) == (False, 3)


def test_an_order_keeps_the_account_reference_that_it_began_with(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.cancel(sdk(collect(journal, account_reference="ACME 7")))
    for fields in ({}, {"account_reference": "ACME 8"}):
        again = sdk(collect(journal, **fields))
        assert again.transaction.account_reference == found(journal).wire_reference == "ACME 7"
        sandbox.cancel(again)
    assert caplog.text.count("goes on with its first account_reference") >= 2


@pytest.mark.parametrize(("reference", "fields"), [("SHOP", {}), ("s", {"account_reference": "SHOP"})])
def test_an_account_reference_may_not_be_that_of_an_open_order_of_the_same_amount(
    sdk: Driver, sandbox: Sandbox, journal: Journal, reference: str, fields: dict[str, str]
) -> None:
    """Also if it is a reference by itself. Whether the other order is still open is read first."""
    first = sdk(collect(journal, account_reference="SHOP"))
    with pytest.raises(RequestValidationError, match="is that of order 'r'") as caught:
        sdk(collect(journal, reference, **fields))
    assert set(caught.value.fields) == {"account_reference"}
    assert ORDERS.sent(sandbox) == 1
    assert journal.get(reference) is None
    sandbox.cancel(first)
    assert sdk(collect(journal, reference, **fields)).is_new


@pytest.mark.parametrize(("first", "second"), [(PAYOUTS, ORDERS), (ORDERS, PAYOUTS)], ids=["payout", "order"])
def test_a_payment_of_the_other_kind_blocks_no_second_attempt(
    sdk: Driver, account: Account, journal: Journal, first: Calls, second: Calls
) -> None:
    """With the same reference, amount and phone: the search of the second one shows the first."""
    sdk(first.once(journal, phone=BY_HAND))
    account.service_balance, account.fee = Decimal(0), Decimal(1)
    with pytest.raises(momopay.InsufficientServiceBalanceError):
        sdk(second.once(journal, phone=BY_HAND))
    account.service_balance = Decimal(100)
    assert sdk(second.once(journal, phone=BY_HAND)).is_new


# Prompts that are abandoned, and late PINs.


def test_an_open_prompt_blocks_for_ever_unless_it_is_abandoned(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(collect(journal))
    for abandon_after in (None, 3600.0):
        assert sdk(collect(journal, abandon_after=abandon_after)).transaction_id == first.transaction_id
    second = sdk(collect(journal, abandon_after=0.001))
    assert (second.is_new, ORDERS.sent(sandbox)) == (True, 2)
    sandbox.cancel(second)
    assert sdk(collect(journal)).transaction_id == first.transaction_id  # still open
    assert ORDERS.sent(sandbox) == 2


def test_abandon_after_is_measured_by_the_clock_of_the_service(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(collect(journal))
    sandbox.advance(100)
    assert sdk(collect(journal, abandon_after=120)).transaction_id == first.transaction_id
    sandbox.advance(30)
    assert sdk(collect(journal, abandon_after=120)).transaction_id != first.transaction_id
    assert ORDERS.sent(sandbox) == 2


def test_without_the_time_of_the_service_abandon_after_is_measured_by_this_machine(
    drive: Drive, journal: Journal
) -> None:
    read = listed(**ORDERS.fields)
    sdk = drive(transport=Service(record(**ORDERS.fields), read=read).transport)
    first = sdk(collect(journal))
    assert sdk(collect(journal, abandon_after=120)).transaction_id == first.transaction_id
    execute(journal, "UPDATE momopay_transactions SET sent_at = '2026-01-01T00:00:00+00:00'")
    sdk = drive(transport=Service(record(transactionId="t-2", **ORDERS.fields), read=read).transport)
    assert sdk(collect(journal, abandon_after=120)).transaction_id == "t-2"


def test_an_attempt_that_is_unresolved_is_never_abandoned(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    ORDERS.fail_next(sandbox, Fault.error_before_commit)
    for abandon_after in (None, 0, 0.001):
        with pytest.raises(OutcomeUnknownError):
            sdk(collect(journal, abandon_after=abandon_after))
    assert ORDERS.sent(sandbox) == 1


# Several calls at once.


@pytest.mark.parametrize(
    ("client_kind", "url", "calls"),
    [("blocking", "sqlite", PAYOUTS), ("async", "sqlite", ORDERS), ("async", "postgresql", PAYOUTS)],
    indirect=["url"],
)
def test_calls_at_the_same_time_send_once(
    sandbox: Sandbox, account: Account, key: str, journal: Journal, client_kind: str, calls: Calls
) -> None:
    assert account.rate_limit is None
    options: dict[str, Any] = {"api_key": key, "base_url": sandbox.base_url, "budget": None}

    async def tasks() -> list[Any]:
        async with AsyncClient(**options) as client:
            return await asyncio.gather(*(calls.once(journal)(client) for _ in range(8)))

    def threads() -> list[Any]:
        with Client(**options) as client, ThreadPoolExecutor(8) as pool:
            return list(pool.map(calls.once(journal), [client] * 8))

    results = asyncio.run(tasks()) if client_kind == "async" else threads()
    assert sorted(each.is_new for each in results) == [False] * 7 + [True]
    assert len({each.transaction_id for each in results}) == 1
    assert calls.sent(sandbox) == 1


def test_payments_from_all_of_anyios_threads_do_not_wait_for_each_other(
    sandbox: Sandbox, key: str, account: Account, journal: Journal
) -> None:
    assert account.rate_limit is None

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 4

        async def in_a_thread(number: int) -> None:
            await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(pay(journal, f"r{number}"), client))

        options: dict[str, Any] = {"base_url": sandbox.base_url, "budget": None}
        async with AsyncClient(key, **options) as client, anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(in_a_thread, number)

    asyncio.run(main())
    assert len(set(PAYOUTS.paid(sandbox))) == len(PAYOUTS.paid(sandbox)) == 6


def test_a_call_gives_up_waiting_for_another_sender_at_its_deadline(
    sdk: Driver, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    sdk(journal.reconcile_all)
    with sender(url), pytest.raises(OutcomeUnknownError, match="another call was still sending"):
        sdk(lambda client: pay(journal)(client.with_options(deadline=0.3)))
    assert requests(sandbox) == []


def test_a_payroll_leaves_what_another_call_is_sending(drive: Drive, journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, "r", PAYOUT)
        hasty = drive(transport=Service().transport, deadline=0.3)
        item = {"reference": "r", "amount": 10, "phone": PHONE}
        (outcome,) = hasty.collect(lambda client: client.payouts.pay_all([item], journal=journal))
    assert isinstance(outcome.error, OutcomeUnknownError)
    assert (outcome.state, outcome.error.may_have_executed) == (UNKNOWN, True)


def test_a_call_that_waits_for_another_knows_nothing_if_the_journal_fails(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sdk(journal.reconcile_all)
    with lease_of(journal) as lease:
        begin(journal, lease, "r", PAYOUT)
        fails = threading.Timer(0.1, execute, [journal, "ALTER TABLE momopay_payments RENAME TO hidden"])
        fails.start()
        with pytest.raises(momopay.JournalError) as caught:
            sdk(pay(journal))
        fails.join()
    assert caught.value.may_have_executed
    assert PAYOUTS.sent(sandbox) == 0
