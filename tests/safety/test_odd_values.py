"""One odd value of the service is left out with a WARNING: the rest of its payment, and all others, settle."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from momopay import EntryKind, JournalState
from safety.kit import (
    Shop,
    on_both_databases,
    parsed,
    records_of,
)
from safety.webhook import SIGNER, serve

pytestmark = on_both_databases
FIRST_DAY, LAST_DAY = "0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59.999999-03:00"
NUL, SURROGATE = "A\u0000B", "A\ud800B"
ODD: list[dict[str, str]] = [
    {"createdAt": FIRST_DAY, "updatedAt": FIRST_DAY},
    {"createdAt": LAST_DAY, "updatedAt": LAST_DAY},
    {"resultCode": NUL},
    {"resultDesc": NUL},
]
NO_UNICODE: list[dict[str, str]] = [{"resultCode": SURROGATE}, {"resultDesc": SURROGATE}]


def name_of(odd: dict[str, str]) -> str:
    return f"{' and '.join(odd)} {next(iter(odd.values()))!a}"


CALLBACK_NAMES = {"updatedAt": "updated_at", "createdAt": "created_at", "resultCode": "result_code"}


def in_callback(odd: dict[str, str]) -> dict[str, str]:
    names = {**CALLBACK_NAMES, "resultDesc": "momo_receipt"}  # a receipt is what only callbacks have
    return {names[name]: value for name, value in odd.items()}


def is_lost(odd: dict[str, str], url: str, *, of_callback: bool = False) -> bool:
    """Return whether the journal would keep the value if its database could, so that a WARNING must say so."""
    if "updatedAt" in odd:
        return True
    return url.startswith("postgresql") and ("resultCode" in odd or of_callback)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("odd", [*ODD, *NO_UNICODE], ids=name_of)
def test_a_sweep_settles_everything_else(
    shop: Shop, url: str, odd: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
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
    if is_lost(odd, url) and "resultCode" not in odd:  # a page of the list has none that could be kept
        assert warnings_in(caplog)
    for name, identity in made.items():
        assert shop.pay(name).transaction_id == identity
    assert shop.payouts == 3
    assert len(list(shop.journal.entries())) == 3


@pytest.mark.parametrize("odd", ODD, ids=name_of)
def test_an_answer_with_an_odd_value_is_an_answer(shop: Shop, odd: dict[str, str]) -> None:
    """What `pay_once` and `collect_once` send is accepted, and never sent again."""

    def edit(_path: str, data: Any) -> None:
        if "transactionId" in data:
            data.update(odd)

    shop.between.edit = edit
    paid = [shop.pay().transaction_id for _ in range(2)]
    prompted = [shop.collect().transaction_id for _ in range(2)]
    assert (len(set(paid)), len(set(prompted))) == (1, 1)
    assert [shop.entry("PAY-1").state, shop.order().state] == [JournalState.ACCEPTED] * 2
    assert (shop.payouts, shop.prompts) == (1, 1)


@pytest.mark.parametrize("odd", ODD, ids=name_of)
@pytest.mark.parametrize("kind", list(EntryKind))
def test_a_callback_with_an_odd_value_is_recorded(
    shop: Shop,
    url: str,
    kind: EntryKind,
    odd: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is acknowledged with 200 once, settles its entry, and comes to the handler once."""
    webhook = serve(signer=SIGNER, journal=shop.journal)
    reference, made, body = shop.made(kind, **in_callback(odd))
    assert [webhook.signed(reference, body) for _ in range(2)] == [200, 200]
    assert webhook.handled == [(made.transaction_id, "SUCCESS")]
    assert shop.entry(reference, kind).status == "SUCCESS"
    shop.journal.record(parsed(body))
    if is_lost(odd, url, of_callback=True):
        assert warnings_in(caplog)
    assert [each.reference for each in shop.journal.entries()] == [reference]


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
