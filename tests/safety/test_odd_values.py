"""One odd value of the service is left out with a WARNING: the rest of its payment, and all others, settle."""

from typing import Any

import pytest

from durable.kit import Handler
from safety.kit import Shop, records_of

pytestmark = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.whole)], indirect=True
)
FIRST_DAY, LAST_DAY = "0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59.999999-03:00"
NUL, SURROGATE = "A\u0000B", "A\ud800B"
ODD: list[dict[str, str]] = [
    {"transactionFee": "1E+5000"},
    *({"createdAt": each, "updatedAt": each} for each in (FIRST_DAY, LAST_DAY)),
    *({"resultCode": each, "resultDesc": each} for each in (NUL, SURROGATE)),
    {},  # the control
]


def test_a_sweep_settles_everything_else(shop: Shop) -> None:
    """Payouts are paid, and the records of all but one have a value that cannot be kept, as has a stranger's."""
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
    assert sorted(each.transaction_id for each in handler.transactions) == sorted(made)
    assert {shop.entry(f"PAY-{number}").status for number in range(len(ODD))} == {"SUCCESS"}
    assert shop.journal.open() == []
    assert [shop.pay(f"PAY-{number}").transaction_id for number in range(len(ODD))] == made
    assert shop.payouts == len(ODD)
