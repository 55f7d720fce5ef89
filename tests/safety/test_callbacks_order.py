"""Callbacks in any order, forged, late or odd: what ranks higher stays, and what nobody showed is not believed."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from durable.kit import BY_HAND, Handler
from journal.records import callback_body
from momopay import CallbackSigner, EntryKind, OutcomeUnknownError, RequestValidationError, parse_callback
from momopay.sandbox import Fault, Outcome
from safety.kit import SEARCH_AGAIN, FragileShop, records_of


def to_prompt(identity: str) -> dict[str, Any]:
    body: dict[str, Any] = callback_body("o", identity, type="STK", phone_number=BY_HAND)
    return body


def webhook(shop: FragileShop) -> Callable[[dict[str, Any]], object]:
    """Return what receives a callback at the URL that was signed for o."""
    signer = CallbackSigner("a secret that is long enough to be kept")
    signed = signer.url("http://127.0.0.1/momo", reference="o")

    def deliver(body: dict[str, Any]) -> object:
        sent = json.dumps(body).encode()

        def receive(client: Any) -> object:
            own = client.with_options(journal=shop.journal)
            return own.transactions.receive(signed, sent, Handler(), signer=signer)

        return shop(receive)

    return deliver


@pytest.mark.parametrize(("kind", "status"), [(EntryKind.PAYOUT, "PENDING"), (EntryKind.COLLECTION, "FAILED")])
def test_what_a_callback_paid_stays_paid_whatever_reads_a_stale_record(
    shop: FragileShop, kind: EntryKind, status: str
) -> None:
    """By the same call again, sweeps, a day's reconciliation and `settle`: no second prompt, and no other status."""
    made = shop.pay() if kind is EntryKind.PAYOUT else shop.collect()
    now = shop.sandbox.now.isoformat()
    body = callback_body(
        made.reference, made.transaction_id, type=made.type.value, phone_number=made.phone, updated_at=now
    )
    if kind is EntryKind.PAYOUT:
        shop.later(60)
    else:
        shop.settle(made)
    shop.journal.record(parse_callback(body))
    handler = Handler()

    def stale(_path: str, data: Any) -> None:
        for record in records_of(data, made.transaction_id):
            record["status"] = status

    shop.between.edit = stale
    (listed,) = shop(lambda client: client.transactions.list()).items
    assert listed.status == status, "the control: the list is stale"
    shop.journal.settle(listed)
    again = shop.pay() if kind is EntryKind.PAYOUT else shop.collect()
    assert (again.transaction_id, str(again.status), again.is_paid) == (made.transaction_id, "SUCCESS", True)
    day = (shop.sandbox.now + timedelta(hours=3)).date()
    shop(lambda client: client.transactions.reconcile(journal=shop.journal, day=day))
    for _ in range(2):
        shop.later(SEARCH_AGAIN)
        shop.sweep(handler)
    entry = shop.entry(made.reference, kind)
    assert (str(entry.status), entry.transaction_ids) == ("SUCCESS", (made.transaction_id,))
    assert status not in [each.status for each in handler.payments]
    assert shop.payouts + shop.prompts == 1


def test_an_invented_transaction_pays_no_order_and_raises_no_cap(shop: FragileShop) -> None:
    """A valid token proves the order and not the id: no prompt until a read of the service shows it."""
    deliver = webhook(shop)
    prompt = shop.collect()
    deliver(to_prompt(str(uuid4())))
    assert shop.order().transaction_ids == (prompt.transaction_id,)
    with pytest.raises(RequestValidationError):
        shop.refund()
    assert shop.collect().status == "PENDING"
    shop.settle(prompt)
    deliver(to_prompt(prompt.transaction_id))
    deliver(to_prompt(str(uuid4())))
    shop.refund()
    with pytest.raises(RequestValidationError):
        shop.refund(reference="o-R2", amount=10)
    assert shop.paid_out == {"o-R1": 10}
    assert not shop.order().paid_twice


def test_a_true_callback_about_a_prompt_whose_answer_was_lost_counts(shop: FragileShop) -> None:
    """The control of the one above: what the service shows is recorded, whether the callback or a sweep is first."""
    deliver = webhook(shop)
    shop.sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    shop.sandbox.end_next(Outcome.success)
    with pytest.raises(OutcomeUnknownError):
        shop.collect()
    shop.later(60)
    deliver(to_prompt(shop.newest()))
    shop.sweep()
    entry = shop.order()
    assert (entry.transaction_ids, entry.status) == ((shop.newest(),), "SUCCESS")
    assert (shop.prompts, shop.paid_in) == (1, {"o": 10})


FIRST_DAY, LAST_DAY = "0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59.999999-03:00"
NUL, SURROGATE = "A\u0000B", "A\ud800B"
ODD: list[dict[str, str]] = [
    {"transactionFee": "1E+5000"},
    *({"createdAt": each, "updatedAt": each} for each in (FIRST_DAY, LAST_DAY)),
    *({"resultCode": each, "resultDesc": each} for each in (NUL, SURROGATE)),
    {},  # the control
]


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.whole)], indirect=True)
def test_a_sweep_settles_everything_else(shop: FragileShop) -> None:
    """Payouts are paid, and the records of all but one have a value that cannot be kept, as has a stranger's.

    It is left out with a WARNING: the rest of its payment, and all others, settle.
    """
    made = [shop.pay(f"PAY-{number}").transaction_id for number in range(len(ODD))]
    shop.later(60)

    def edit(path: str, data: Any) -> None:
        for identity, odd in zip(made, ODD, strict=True):
            for record in records_of(data, identity):
                record.update(odd)
        if path == "/transactions":
            data["items"].insert(0, {**data["items"][0], "accountReference": NUL, "transactionId": SURROGATE})

    shop.between.edit = edit
    handler = Handler()
    for _ in range(2):
        shop.sweep(handler)
    assert sorted(each.transaction_id for each in handler.payments) == sorted(made)
    assert {shop.entry(f"PAY-{number}").status for number in range(len(ODD))} == {"SUCCESS"}
    assert shop.journal.open() == []
    assert [shop.pay(f"PAY-{number}").transaction_id for number in range(len(ODD))] == made
    assert shop.payouts == len(ODD)
