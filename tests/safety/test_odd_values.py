"""One odd value of the service is left out with a WARNING: the rest of its payment, and all others, settle."""

from __future__ import annotations

from typing import Any

from safety.kit import Shop, on_both_databases, records_of

pytestmark = on_both_databases
FIRST_DAY, LAST_DAY = "0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59.999999-03:00"
NUL, SURROGATE = "A\u0000B", "A\ud800B"
ODD: list[dict[str, str]] = [
    *({"createdAt": each, "updatedAt": each} for each in (FIRST_DAY, LAST_DAY)),
    *({"resultCode": each, "resultDesc": each} for each in (NUL, SURROGATE)),
    {},  # the control
]


def test_a_sweep_settles_everything_else(shop: Shop) -> None:
    """Payouts are paid, and the records of all but one have a value that cannot be kept."""
    made = [shop.pay(f"PAY-{number}").transaction_id for number in range(len(ODD))]
    shop.later(60)

    def edit(_path: str, data: Any) -> None:
        for identity, odd in zip(made, ODD, strict=True):
            for record in records_of(data, identity):
                record.update(odd)

    shop.between.edit = edit
    handled: list[str] = []

    def handle(transaction: Any) -> None:
        handled.append(transaction.transaction_id)

    for _ in range(2):
        shop.sweep(handle)
    assert sorted(handled) == sorted(made)
    assert {shop.entry(f"PAY-{number}").status for number in range(len(ODD))} == {"SUCCESS"}
    assert shop.journal.open() == []
    assert [shop.pay(f"PAY-{number}").transaction_id for number in range(len(ODD))] == made
    assert shop.payouts == len(ODD)


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
