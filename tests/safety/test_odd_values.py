"""One odd value of the service is left out with a WARNING: the rest of its payment, and all others, settle."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from momopay import EntryKind, JournalState
from safety.kit import Shop, on_both_databases, records_of
from safety.webhook import SIGNER, serve

pytestmark = on_both_databases
FIRST_DAY, LAST_DAY = "0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59.999999-03:00"
NUL, SURROGATE = "A\u0000B", "A\ud800B"
TIMES = [{"createdAt": each, "updatedAt": each} for each in (FIRST_DAY, LAST_DAY)]
TEXTS = [{"resultCode": each, "resultDesc": each} for each in (NUL, SURROGATE)]
ODD = pytest.mark.parametrize("odd", [*TIMES, *TEXTS], ids=ascii)


@ODD
def test_a_sweep_settles_everything_else(shop: Shop, odd: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Three payouts are paid, and the record of one of them has a value that cannot be kept."""
    made = {name: shop.pay(name).transaction_id for name in ("BEFORE", "ODD", "AFTER")}
    shop.later(60)

    def edit(_path: str, data: Any) -> None:
        for record in records_of(data, made["ODD"]):
            record.update(odd)

    shop.between.edit = edit
    handled: list[str] = []

    def handle(transaction: Any) -> None:
        handled.append(transaction.transaction_id)

    for _ in range(2):
        shop.sweep(handle)
    assert sorted(handled) == sorted(made.values())
    assert {name: str(shop.entry(name).status) for name in made} == dict.fromkeys(made, "SUCCESS")
    assert shop.journal.open() == []
    if odd in TIMES:  # a page of the list has no text that could be kept
        assert [each for each in caplog.records if each.levelno == logging.WARNING]
    for name, identity in made.items():
        assert shop.pay(name).transaction_id == identity
    assert shop.payouts == 3


@ODD
def test_answers_and_callbacks_with_an_odd_value_count(shop: Shop, odd: dict[str, str]) -> None:
    """What is sent is accepted, and never sent again; its callback settles it, and comes to the handler once."""

    def edit(_path: str, data: Any) -> None:
        if "transactionId" in data and SURROGATE not in odd.values():  # which the test's JSON cannot hold
            data.update(odd)

    shop.between.edit = edit
    names = {"updatedAt": "updated_at", "createdAt": "created_at", "resultCode": "result_code"}
    _, made, body = shop.made(EntryKind.PAYOUT, **{names.get(name, "momo_receipt"): odd[name] for name in odd})
    assert shop.pay().transaction_id == made.transaction_id
    assert (shop.entry("PAY-1").state, shop.payouts) == (JournalState.ACCEPTED, 1)
    webhook = serve(signer=SIGNER, journal=shop.journal)
    assert [webhook.signed("PAY-1", body) for _ in range(2)] == [200, 200]
    assert webhook.handled == [(made.transaction_id, "SUCCESS")]
    assert shop.entry("PAY-1").status == "SUCCESS"


def test_a_reference_that_no_database_holds_hides_nothing(shop: Shop) -> None:
    """Foreign records in the list, whose texts cannot be kept, do not stop the search beside them."""
    made = shop.pay().transaction_id
    shop.later(60)

    def edit(path: str, data: Any) -> None:
        if path == "/transactions":
            foreign = {**data["items"][0], "accountReference": NUL, "transactionId": SURROGATE}
            data["items"].insert(0, foreign)

    shop.between.edit = edit
    shop.sweep()
    entry = shop.entry("PAY-1")
    assert (entry.status, entry.transaction_id) == ("SUCCESS", made)
