"""Callbacks in any order, forged, or late: what ranks higher stays, and what nobody showed is not believed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from momopay import (
    EntryKind,
    OutcomeUnknownError,
    PollSchedule,
    RequestValidationError,
    WaitTimeoutError,
    settled,
)
from momopay.sandbox import Fault, Outcome, phone_for
from safety.kit import (
    BY_HAND,
    HOUR,
    PHONE,
    SEARCH_AGAIN,
    Shop,
    callback_for,
    collect,
    entry_of,
    order_of,
    parsed,
    pay,
    records_of,
    refund,
    sweep,
)
from safety.webhook import SIGNER, Webhook


def to_prompt(identity: str, status: str = "SUCCESS", **fields: Any) -> dict[str, Any]:
    """Make a callback about the order's prompt."""
    return callback_for(identity, "O-1", status, **{"type": "STK", "phone_number": BY_HAND, **fields})


@pytest.mark.parametrize(
    ("statuses", "handled"),
    [
        (["SUCCESS", "FAILED"], ["SUCCESS"]),
        (["SUCCESS", "CANCELLED", "EXPIRED", "SUCCESS"], ["SUCCESS"]),
        (["FAILED", "SUCCESS"], ["FAILED", "SUCCESS"]),
        (["CANCELLED", "SUCCESS", "CANCELLED"], ["CANCELLED", "SUCCESS"]),
    ],
)
def test_no_handler_gets_a_status_after_one_that_outranks_it(
    shop: Shop, serve: Callable[..., Webhook], statuses: list[str], handled: list[str]
) -> None:
    webhook = serve(signer=SIGNER, journal=shop.journal)
    prompt = shop(collect(shop.journal))
    for status in statuses:
        webhook.signed("O-1", to_prompt(prompt.transaction_id, status))
    assert webhook.handled == [(prompt.transaction_id, each) for each in handled]
    assert order_of(shop.journal).status == "SUCCESS"


@pytest.mark.parametrize("client_kind", ["blocking"])
@pytest.mark.parametrize(
    ("statuses", "is_to_be_handled"),
    [
        (["SUCCESS", "FAILED", "SUCCESS"], [True, False, False]),
        (["FAILED", "CANCELLED", "SUCCESS"], [True, False, True]),
        (["SUCCESS", "EXPIRED"], [True, False]),
    ],
)
def test_a_shop_that_handles_by_itself_gets_the_same_answer(
    shop: Shop, statuses: list[str], is_to_be_handled: list[bool]
) -> None:
    prompt = shop(collect(shop.journal))
    said: list[bool] = []
    for status in statuses:
        with shop.journal.handling(parsed(to_prompt(prompt.transaction_id, status))) as first:
            said.append(first)
    assert said == is_to_be_handled


def test_a_stale_list_takes_nothing_back(shop: Shop) -> None:
    """The callback said SUCCESS; a list that still says FAILED reaches neither the journal nor the handler."""
    shop.sandbox.end_next(Outcome.cancelled)
    made = shop(pay(shop.journal))
    shop.journal.record(parsed(callback_for(made.transaction_id, "PAY-1")))

    def stale(_path: str, data: Any) -> None:
        for record in records_of(data, made.transaction_id):
            record["status"] = "FAILED"

    shop.between.edit = stale
    handled: list[str] = []

    def handle(transaction: Any) -> None:
        handled.append(str(transaction.status))

    shop.later(HOUR)
    shop(sweep(shop.journal, handle))
    shop(sweep(shop.journal, handle))
    assert "FAILED" not in handled
    assert entry_of(shop.journal, "PAY-1").status == "SUCCESS"


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED", "PENDING"])
@pytest.mark.parametrize("kind", list(EntryKind))
def test_what_a_callback_paid_stays_paid_whatever_reads_a_stale_record(
    shop: Shop, kind: EntryKind, status: str
) -> None:
    """By the same call again, a sweep, a day's reconciliation and `settle`: no second prompt, and no other status."""
    if kind is EntryKind.PAYOUT:
        call, reference = pay(shop.journal), "PAY-1"
        made = shop(call)
        shop.later(60)
        shop.journal.record(parsed(callback_for(made.transaction_id, reference)))
    else:
        call, reference = collect(shop.journal), "O-1"
        made = shop(call)
        shop.settle(made)
        shop.journal.record(parsed(to_prompt(made.transaction_id)))

    def stale(_path: str, data: Any) -> None:
        for record in records_of(data, made.transaction_id):
            record["status"] = status

    shop.between.edit = stale
    (listed,) = shop(lambda client: client.transactions.list()).items
    assert listed.status == status, "the control: the list is stale"
    shop.journal.settle(listed)
    again = shop(call)
    assert (again.transaction_id, str(again.status), again.is_paid) == (made.transaction_id, "SUCCESS", True)
    day = (shop.sandbox.now + timedelta(hours=3)).date()
    shop(lambda client: client.transactions.reconcile(journal=shop.journal, day=day))
    shop.later(SEARCH_AGAIN)
    shop(sweep(shop.journal))
    entry = entry_of(shop.journal, reference, kind)
    assert (str(entry.status), entry.transaction_ids) == ("SUCCESS", (made.transaction_id,))
    assert shop.payouts + shop.prompts == 1


def test_an_invented_transaction_pays_no_order(shop: Shop, serve: Callable[..., Webhook]) -> None:
    """A valid token proves the order and not the id: no prompt until a read of the service shows it."""
    webhook = serve(signer=SIGNER, journal=shop.journal)
    prompt = shop(collect(shop.journal))
    webhook.signed("O-1", to_prompt(str(uuid4())))
    assert order_of(shop.journal).transaction_ids == (prompt.transaction_id,)
    with pytest.raises(RequestValidationError):
        shop(refund(shop.journal))
    assert shop.payouts == 0
    assert shop(collect(shop.journal)).status == "PENDING"


def test_an_invented_transaction_raises_no_cap(shop: Shop, serve: Callable[..., Webhook]) -> None:
    webhook = serve(signer=SIGNER, journal=shop.journal)
    prompt = shop(collect(shop.journal))
    shop.settle(prompt)
    webhook.signed("O-1", to_prompt(prompt.transaction_id))
    webhook.signed("O-1", to_prompt(str(uuid4())))
    shop(refund(shop.journal))
    with pytest.raises(RequestValidationError):
        shop(refund(shop.journal, reference="O-1-R2", amount=100))
    assert shop.paid_out == {"O-1-R1": 100}
    assert not order_of(shop.journal).paid_twice


def test_a_true_callback_about_a_prompt_whose_answer_was_lost_counts(shop: Shop, serve: Callable[..., Webhook]) -> None:
    """The control of the two above: what the service shows is recorded, whether the callback or a sweep is first."""
    webhook = serve(signer=SIGNER, journal=shop.journal)
    shop.sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    shop.sandbox.end_next(Outcome.success)
    with pytest.raises(OutcomeUnknownError):
        shop(collect(shop.journal))
    shop.later(60)
    webhook.signed("O-1", to_prompt(shop.newest()))
    shop(sweep(shop.journal))
    entry = order_of(shop.journal)
    assert (entry.transaction_ids, entry.status) == ((shop.newest(),), "SUCCESS")
    assert (shop.prompts, shop.paid_in) == (1, {"O-1": 100})


@pytest.mark.parametrize("kind", list(EntryKind))
def test_an_unsigned_repeat_writes_no_receipt(shop: Shop, serve: Callable[..., Webhook], kind: EntryKind) -> None:
    """The first delivery was signed and handled; anybody may have sent the second."""
    signed = serve(signer=SIGNER, journal=shop.journal)
    unsigned = serve(journal=shop.journal)
    if kind is EntryKind.PAYOUT:
        reference, made = "PAY-1", shop(pay(shop.journal))
        body = callback_for(made.transaction_id, reference)
    else:
        reference, made = "O-1", shop(collect(shop.journal))
        body = to_prompt(made.transaction_id)
    assert signed.signed(reference, body) == 200
    unsigned.post("/momo", {**body, "transaction": {**body["transaction"], "momo_receipt": "FORGED1234"}})
    assert shop.journal.by_receipt("FORGED1234") is None
    assert entry_of(shop.journal, reference, kind).receipt is None
    true = {**body, "transaction": {**body["transaction"], "momo_receipt": "GENUINE123"}}
    shop.journal.record(parsed(true))
    assert entry_of(shop.journal, reference, kind).receipt == "GENUINE123"


def test_the_fee_is_the_one_that_was_charged_at_the_end(shop: Shop) -> None:
    """A fee of 10 while pending is 0 once the payout failed; one of 0 while processing is 10 once it is paid."""
    shop.account.fee = Decimal(10)
    shop(pay(shop.journal, "FAILS", phone=phone_for(Outcome.reversed)))
    shop(pay(shop.journal, "SUCCEEDS", phone=PHONE))
    for wait in (0, 10, 30, 20):
        shop.later(wait)
        shop(sweep(shop.journal))
    ends = {name: entry_of(shop.journal, name) for name in ("FAILS", "SUCCEEDS")}
    assert {name: str(each.status) for name, each in ends.items()} == {"FAILS": "REVERSED", "SUCCEEDS": "SUCCESS"}
    assert {name: each.fee for name, each in ends.items()} == {"FAILS": Decimal(0), "SUCCEEDS": Decimal(10)}


def test_waiting_for_a_payout_does_not_end_on_failed(shop: Shop) -> None:
    """FAILED comes before REVERSED; a wait until it has settled, and a sweep's handler, go by the second."""
    made = shop(pay(shop.journal, phone=phone_for(Outcome.reversed)))
    handled: list[str] = []

    def handle(transaction: Any) -> None:
        handled.append(str(transaction.status))

    shop.later(36)
    status = shop(lambda client: client.transactions.get(made)).status
    assert status == "FAILED"
    shop(sweep(shop.journal, handle))
    assert [each.reference for each in shop.journal.open()] == ["PAY-1"]
    schedule = PollSchedule(first=0.0, every=0.01, limit=0.3)
    with pytest.raises(WaitTimeoutError):
        shop(lambda client: client.transactions.wait(made, until=settled, schedule=schedule))
    shop.later(20)
    assert shop(lambda client: client.transactions.wait(made, until=settled, schedule=schedule)).status == "REVERSED"
    shop(sweep(shop.journal, handle))
    assert handled == ["REVERSED"]
    assert shop.journal.open() == []


def test_the_last_millisecond_of_a_day_belongs_to_it(shop: Shop) -> None:
    """A day ends at midnight in Nairobi; a payment on either side of it is reconciled on its own day."""
    local = shop.sandbox.now.astimezone(timezone(timedelta(hours=3)))
    midnight = datetime(local.year, local.month, local.day, tzinfo=local.tzinfo) + timedelta(days=1)
    shop.sandbox.advance((midnight - local).total_seconds() - 0.001)
    shop(pay(shop.journal, "LAST"))
    shop.sandbox.advance(0.001)
    assert shop.sandbox.now == midnight
    shop(pay(shop.journal, "FIRST", amount=70))
    shop.later(60)

    def reconcile(day: date) -> tuple[int, int, list[str]]:
        report = shop(lambda client: client.transactions.reconcile(journal=shop.journal, day=day))
        return report.transactions, report.paid_out, [each.reference for each in report.differences]

    assert reconcile(local.date()) == (1, 100, [])
    assert reconcile(midnight.date()) == (1, 70, [])


def test_a_second_look_is_not_needed_for_what_was_paid(shop: Shop) -> None:
    """A control: an order whose callback came costs no further request."""
    prompt = shop(collect(shop.journal))
    shop.settle(prompt)
    shop.journal.record(parsed(to_prompt(prompt.transaction_id)))
    before = len(shop.between.requests)
    shop.later(SEARCH_AGAIN)
    shop(sweep(shop.journal))
    assert len(shop.between.requests) == before
