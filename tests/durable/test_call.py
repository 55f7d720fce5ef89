"""What `pay_once` and `collect_once` do about a reference: against the sandbox, whose ledger is the only witness."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

import momopay
from bodies import envelope, wallet
from drivers import session_of
from durable.kit import (
    BY_HAND,
    FAILING,
    KEY_CHECK,
    ORDERS,
    PAYOUTS,
    Calls,
    Serve,
    Shop,
    collect,
    listed,
    of_both_kinds,
    over_both_clients,
    pay,
    pay_all,
    payout_record,
    requests,
    with_each_client_and_database,
)
from journal.constants import ACCEPTED, COLLECTION, PAYOUT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import execute, stopped_clock
from journal.kit import begin, lease_of, put, statuses_of
from momopay import (
    AsyncClient,
    Client,
    ConfigurationError,
    DuplicateCollectionError,
    DuplicatePayoutError,
    Journal,
    JournalState,
    OutcomeUnknownError,
    RequestValidationError,
    Transaction,
)
from momopay._core.config import Hooks
from momopay.sandbox import Fault
from virtual import virtual_client

LONG = "order-2026-11-22-0042"


# One payment for a reference, for ever.


@with_each_client_and_database
def test_a_payout_is_sent_once_however_often_it_is_called(shop: Shop) -> None:
    first = shop.pay()
    again = [shop.pay(), shop.pay(phone="+254 712 345 678")]
    assert [each.is_new for each in (first, *again)] == [True, False, False]
    assert {(each.transaction_id, each.reference, each.amount) for each in again} == {(first.transaction_id, "r", 10)}
    assert (shop.entry().state, shop.entry().transaction_id) == (ACCEPTED, first.transaction_id)
    assert (PAYOUTS.paid(shop.sandbox), PAYOUTS.sent(shop.sandbox)) == (["r"], 1)


def test_a_payout_that_came_back_is_not_sent_again(shop: Shop) -> None:
    first = shop.pay(phone=FAILING)
    shop.later(3600)
    again = shop.pay(phone=FAILING)
    assert (again.transaction_id, again.status, again.is_paid) == (first.transaction_id, "REVERSED", False)
    assert PAYOUTS.sent(shop.sandbox) == 1


def test_a_prompt_that_was_cancelled_is_followed_by_another_in_the_same_call(shop: Shop) -> None:
    first = shop.collect()
    shop.sandbox.cancel(first)
    second = shop.collect()
    assert (first.is_new, second.is_new) == (True, True)
    # One read showed that the first had ended; no search, as each attempt is a prompt that is known.
    sent, read = "POST /payments/stk", f"GET /transactions/{first.transaction_id}"
    assert requests(shop.sandbox) == [sent, read, sent]
    shop.settle(second)
    for phone in (BY_HAND, PHONE):
        again = shop.collect(phone=phone)
        assert (again.transaction_id, again.is_new, again.is_paid) == (second.transaction_id, False, True)
    assert requests(shop.sandbox)[3:] == [f"GET /transactions/{second.transaction_id}"] * 2
    entry, ids = shop.entry(), [first.transaction_id, second.transaction_id]
    assert (entry.state, entry.attempts, entry.transaction_id) == (ACCEPTED, 2, second.transaction_id)
    assert statuses_of(entry) == [f"{ids[0]} CANCELLED", f"{ids[1]} SUCCESS"]
    assert ORDERS.paid(shop.sandbox) == ["r"]


@of_both_kinds
def test_what_was_refused_is_sent_again_after_a_search(shop: Shop, calls: Calls) -> None:
    with shop.refusing(), pytest.raises(momopay.InsufficientServiceBalanceError) as caught:
        shop(calls.once(shop.journal))
    assert not caught.value.may_have_executed
    assert (shop.entry().state, shop.entry().code) == (REFUSED, "INSUFFICIENT_SERVICE_BALANCE")
    assert shop(calls.once(shop.journal)).is_new
    assert requests(shop.sandbox) == [f"POST {calls.path}", "GET /transactions", f"POST {calls.path}"]
    assert shop.entry().attempts == 2


# To which payment a reference belongs.


@pytest.mark.parametrize("other", [{"amount": 11}, {"phone": "0712345679"}])
@pytest.mark.parametrize("state", [ACCEPTED, REFUSED])
def test_the_reference_of_a_payout_belongs_to_one_amount_and_one_phone(
    serve: Serve, journal: Journal, other: dict[str, Any], state: JournalState
) -> None:
    before, shop = put(journal, "r", state), serve()
    with pytest.raises(DuplicatePayoutError, match="give each payout a reference of its own") as caught:
        shop.pay(**other)
    assert (caught.value.reference, caught.value.may_have_executed) == ("r", False)
    assert (shop.requests, shop.entry()) == ([], before)


@over_both_clients
def test_arguments_at_fault_are_refused_here(shop: Shop) -> None:
    def refuse(reference: str) -> None:
        raise ConfigurationError(f"not of {reference!r}")

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
            shop(call(shop.journal, **fields))
        assert caught.value.fields.keys() == {at_fault}, fields
    both_ways = r'Client\(journal="sqlite:///payments.db"\), or pass journal= to the call'
    no_journals: list[tuple[Any, str]] = [(None, both_ways), ("sqlite:///journal.db", r"must be a momopay\.Journal")]
    for calls in (PAYOUTS, ORDERS):
        for no_journal, problem in no_journals:
            with pytest.raises(ConfigurationError, match=problem):
                shop(calls.once(no_journal))
        session_of(shop.sdk.client).hooks = Hooks(before_payment=refuse)
        with pytest.raises(ConfigurationError, match="not of 'r'"):
            shop(calls.once(shop.journal))
    assert (shop.sandbox.requests, list(shop.journal.entries())) == ([], [])


def test_an_anonymised_payout_is_not_sent_again(shop: Shop) -> None:
    shop.account.switches.minimal_answers = False
    first = shop.pay()
    put(shop.journal, "refused", REFUSED)
    shop.later(600)
    shop.pay()  # reads its end
    assert shop.journal.anonymise(before=shop.sandbox.now + timedelta(days=1)) == 2
    again = shop.pay()
    assert (again.transaction_id, again.status) == (first.transaction_id, "SUCCESS")
    for other in (pay(shop.journal, phone="0712345679"), pay(shop.journal, amount=11), pay(shop.journal, "refused")):
        with pytest.raises(DuplicatePayoutError):
            shop(other)
    shop.account.switches.minimal_answers = True  # nobody has the phone, so that it may be another one
    with pytest.raises(DuplicatePayoutError, match="the service does not show its phone"):
        shop.pay()
    assert (shop.entry().state, shop.entry().phone) == (ACCEPTED, "")
    assert PAYOUTS.sent(shop.sandbox) == 1


def test_an_anonymised_order_is_not_prompted_again(shop: Shop) -> None:
    shop.account.switches.minimal_answers = False
    shop.sandbox.cancel(shop.collect())
    paid, cancelled = shop.collect(), shop.collect("s", amount=11)
    shop.settle(paid)
    shop.sandbox.cancel(cancelled)
    shop(lambda client: client.transactions.sweep(journal=shop.journal))
    assert shop.journal.anonymise(before=shop.sandbox.now + timedelta(days=1)) == 2
    assert shop.collect().transaction_id == paid.transaction_id
    with pytest.raises(DuplicateCollectionError, match="another phone"):
        shop.collect(phone="0712345679")
    with pytest.raises(DuplicateCollectionError, match="was anonymised: give each order a reference of its own"):
        shop.collect("s", amount=11)
    shop.account.switches.minimal_answers = True  # nobody has the phone; a customer may pay from any
    assert shop.collect().transaction_id == paid.transaction_id
    assert ORDERS.sent(shop.sandbox) == 3


# The reference at the service.


def test_an_order_of_more_than_twelve_characters_goes_out_as_a_token(shop: Shop) -> None:
    first = shop.collect(LONG)
    token = shop.entry(LONG).wire_reference
    assert (len(token), token.isalnum(), first.transaction.account_reference) == (12, True, token)
    assert first.reference == LONG
    shop.sandbox.cancel(first)
    ORDERS.fail_next(shop.sandbox, Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        shop.collect(LONG)
    second = shop.collect(LONG)  # found by the token
    with pytest.raises(DuplicateCollectionError) as caught:
        shop.collect(LONG, amount=11)
    assert caught.value.reference == LONG
    other = shop.collect(f"{LONG}-b")
    assert second.transaction.account_reference == token != other.transaction.account_reference
    assert (second.is_new, ORDERS.sent(shop.sandbox)) == (False, 3)


def test_an_order_keeps_the_account_reference_that_it_began_with(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.sandbox.cancel(shop.collect(account_reference="ACME 7"))
    for fields in ({}, {"account_reference": "ACME 6"}):
        again = shop.collect(**fields)
        assert again.transaction.account_reference == shop.entry().wire_reference == "ACME 7"
        shop.sandbox.cancel(again)
    assert caplog.text.count("goes on with its first account_reference") >= 2


@pytest.mark.parametrize(("reference", "fields"), [("SHOP", {}), ("s", {"account_reference": "SHOP"})])
def test_an_account_reference_may_not_be_that_of_an_open_order_of_the_same_amount(
    shop: Shop, reference: str, fields: dict[str, str]
) -> None:
    """Also if it is a reference by itself. Whether the other order is still open is read first."""
    first = shop.collect(account_reference="SHOP")
    shop.pay("SHOP")
    with pytest.raises(RequestValidationError, match="is that of order 'r'") as caught:
        shop.collect(reference, **fields)
    assert set(caught.value.fields) == {"account_reference"}
    assert requests(shop.sandbox)[2:] == [f"GET /transactions/{first.transaction_id}"]
    assert shop.journal.get(reference, COLLECTION) is None
    shop.sandbox.cancel(first)
    assert shop.collect(reference, **fields).is_new


@pytest.mark.parametrize(("first", "second"), [(PAYOUTS, ORDERS), (ORDERS, PAYOUTS)], ids=["payout", "order"])
def test_a_payment_of_the_other_kind_blocks_no_second_attempt(shop: Shop, first: Calls, second: Calls) -> None:
    """With the same reference, amount and phone: the search of the second one shows the first."""
    shop(first.once(shop.journal, phone=BY_HAND))
    with shop.refusing(), pytest.raises(momopay.InsufficientServiceBalanceError):
        shop(second.once(shop.journal, phone=BY_HAND))
    assert shop(second.once(shop.journal, phone=BY_HAND)).is_new


# Prompts that are abandoned, and late PINs.


def test_an_open_prompt_blocks_for_ever_unless_it_is_abandoned(shop: Shop) -> None:
    """Its age is measured by the clock of the service, if reads have times."""
    shop.account.switches.minimal_answers = False
    first = shop.collect()
    again = shop.collect(phone=f"+{BY_HAND}")
    assert (again.transaction_id, again.status, again.is_paid) == (first.transaction_id, "PENDING", None)
    assert (ORDERS.sent(shop.sandbox), shop.entry().attempts) == (1, 1)
    shop.later(100)
    for abandon_after in (None, 3600.0, 120):
        assert shop.collect(abandon_after=abandon_after).transaction_id == first.transaction_id
    shop.later(30)
    second = shop.collect(abandon_after=120)
    assert second.is_new
    shop.sandbox.cancel(second)
    assert shop.collect().transaction_id == first.transaction_id, "it is still open"
    with shop.refusing(), pytest.raises(momopay.InsufficientServiceBalanceError) as caught:
        shop.collect(abandon_after=120)
    assert caught.value.may_have_executed, "the first one may still be paid"
    assert ORDERS.sent(shop.sandbox) == 3
    shop.sandbox.enter_pin(first)
    assert shop.collect().status == "PROCESSING"


@pytest.mark.parametrize("unknown", [{}, {"createdAt": "0001-01-01T00:00:00Z"}])
def test_without_a_time_of_the_service_abandon_after_is_measured_by_this_machine(
    serve: Serve, journal: Journal, unknown: dict[str, Any]
) -> None:
    read, ahead = listed(**ORDERS.fields, **unknown), timedelta(0) if unknown else None
    shop = serve(payout_record(**ORDERS.fields), read=read, ahead=ahead)
    first = shop.collect()
    assert shop.collect(abandon_after=120).transaction_id == first.transaction_id
    execute(journal, "UPDATE momopay_transactions SET sent_at = '2026-01-01T00:00:00+00:00'")
    shop = serve(payout_record(transactionId="t-2", **ORDERS.fields), read=read)
    assert shop.collect(abandon_after=120).transaction_id == "t-2"


# Several calls at once.


@pytest.mark.parametrize(
    ("client_kind", "url", "calls"),
    [("blocking", "sqlite", PAYOUTS), ("async", "sqlite", ORDERS), ("async", "postgresql", PAYOUTS)],
    indirect=["url"],
)
def test_calls_at_the_same_time_send_once(shop: Shop, client_kind: str, calls: Calls) -> None:
    options: dict[str, Any] = {"api_key": shop.key, "base_url": shop.sandbox.base_url, "budget": None}

    async def tasks() -> list[Any]:
        async with AsyncClient(**options) as client:
            return await asyncio.gather(*(calls.once(shop.journal)(client) for _ in range(8)))

    def threads() -> list[Any]:
        with Client(**options) as client, ThreadPoolExecutor(8) as pool:
            return list(pool.map(calls.once(shop.journal), [client] * 8))

    results = asyncio.run(tasks()) if client_kind == "async" else threads()
    assert sorted(each.is_new for each in results) == [False] * 7 + [True]
    assert len({each.transaction_id for each in results}) == 1
    assert calls.sent(shop.sandbox) == 1


def test_a_call_gives_up_waiting_for_another_sender_at_its_deadline(journal: Journal) -> None:
    client, port = virtual_client(lambda _method, _path: (200, envelope(wallet())), deadline=10.1)
    with lease_of(journal) as lease, stopped_clock():
        begin(journal, lease, "r", PAYOUT)
        with pytest.raises(OutcomeUnknownError, match="another call was still sending"):
            pay(journal)(client)
        assert port.slept == [0.25] * 40
        (outcome,) = pay_all(journal, "r")(client)
    assert isinstance(outcome.error, OutcomeUnknownError)
    assert (outcome.state, outcome.error.may_have_executed) == (UNKNOWN, True)
    assert {f"{method} {path}" for _, method, path in port.requests} <= {KEY_CHECK}


@pytest.mark.usefixtures("in_nairobi")
def test_a_read_that_masks_the_phone_does_not_hide_an_open_prompt_on_another(serve: Serve, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1")
    shop = serve(read=listed(type="STK", phone="2547*****678", createdAt="2026-11-01T22:30:00Z"))
    other = f"{PHONE[:4]}99999{PHONE[-3:]}"
    for change in ("revision = revision", f"phone = '{other}'"):  # the order's own phone may have changed since
        execute(journal, f"UPDATE momopay_payments SET {change}")
        problem = r"2547\*{5}678 since 2026-11-01 22:30 UTC; wait for its end$"
        with pytest.raises(DuplicateCollectionError, match=problem):
            shop.collect(phone=other)
    execute(journal, "UPDATE momopay_payments SET phone = ''")  # anonymised: nothing else shows the phone
    execute(journal, "UPDATE momopay_transactions SET phone = '', status = 'SUCCESS'")
    assert shop.collect(phone=PHONE).is_paid


@over_both_clients
@of_both_kinds
@pytest.mark.parametrize("answer", ["lost", "another's"])
def test_an_answer_that_was_lost_while_its_callback_came_is_no_error(
    serve: Serve, journal: Journal, calls: Calls, answer: str
) -> None:
    """The journal knows by then what the answer would have said. One that names another payment stays in doubt."""

    def respond() -> httpx.Response:
        shown = {"status": "SUCCESS", "accountReference": "r", **calls.fields}
        journal.settle(Transaction.model_validate(payout_record(**shown)))
        text = b"<html>" if answer == "lost" else b'{"success": true, "data": {"transactionId": "t-9"'
        return httpx.Response(200, content=text)

    shop = serve(on_post=respond)
    with nullcontext() if answer == "lost" else pytest.raises(OutcomeUnknownError):
        payment = shop(calls.once(journal))
        assert (payment.transaction_id, payment.is_paid, payment.is_new) == ("t-1", True, True)
    assert shop.entry().transaction_id == "t-1"
