"""Transactions that are read, listed, walked and searched for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import momopay
from drivers import Driver
from models.kit import CHANNEL, ID, ITEM, PAGE, PAYBILL, READ, parse
from momopay.sandbox import Account, Sandbox
from resources.kit import Recorder, assert_came_with_its_response, assert_sent, refused
from resources.sandbox_kit import prompt

SINCE = datetime(2025, 3, 1, 10, 0, tzinfo=UTC)


def test_a_transaction_is_read_by_its_id_or_by_a_record(drive: Callable[..., Driver]) -> None:
    service = Recorder(READ.camel)
    driver = drive(transport=service.transport)
    read = driver(lambda client: client.transactions.get(ID))
    driver(lambda client: client.transactions.get(read))
    for request in service.requests:
        assert_sent(request, "GET", f"/v1/transactions/{ID}")
    assert type(read) is momopay.Transaction
    assert_came_with_its_response(read)


def test_a_page_is_listed_with_its_default_limit(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAGE)
    page = drive(transport=service.transport)(lambda client: client.transactions.list())
    assert_sent(service.requests[0], "GET", "/v1/transactions?limit=20")
    assert type(page) is momopay.TransactionPage
    for record in (page, page.overview, *page.items):
        assert_came_with_its_response(record)


FILTERS: dict[str, Any] = {
    "status": "SUCCESS",
    "type": momopay.TransactionType.B2C,
    "from_": "2025-03-01",
    "to": "2025-03-02",
    "channel_id": parse(PAYBILL.kind, PAYBILL.camel),
    "amount_min": 10,
    "amount_max": Decimal("99.99"),
    "q": "jane",
}
FILTERED = (
    f"status=SUCCESS&type=B2C&from=2025-03-01&to=2025-03-02&channelId={CHANNEL}&amountMin=10&amountMax=99.99&q=jane"
)


def test_every_filter_reaches_the_service(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAGE)
    drive(transport=service.transport)(lambda client: client.transactions.list(limit=50, cursor="c2", **FILTERS))
    assert_sent(service.requests[0], "GET", f"/v1/transactions?{FILTERED}&limit=50&cursor=c2")


def test_a_walk_carries_its_filters_to_every_page(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAGE)
    driver = drive(transport=service.transport)

    def walk(client: Any) -> Any:
        service.requests.clear()
        return client.transactions.iter(page_size=7, **FILTERS)

    with pytest.raises(momopay.ProtocolError, match="cursor"):  # the page names itself as the next one
        driver.collect(walk)
    assert_sent(service.requests[0], "GET", f"/v1/transactions?{FILTERED}&limit=7")
    assert_sent(service.requests[1], "GET", f"/v1/transactions?{FILTERED}&limit=7&cursor=c2")
    service.data = {**PAGE, "nextCursor": None}
    # The page has the same transaction twice.
    assert [type(item) for item in driver.collect(walk)] == [momopay.TransactionSummary]


def test_a_payment_is_searched_for_in_pages_of_a_hundred(drive: Callable[..., Driver]) -> None:
    service = Recorder({**PAGE, "items": [ITEM.camel], "nextCursor": None})
    driver = drive(transport=service.transport)
    found = driver(lambda client: client.transactions.find(reference="INV-42", since=SINCE))
    driver(lambda client: client.transactions.find(reference="INV-42", since=SINCE, type="B2C"))
    assert [item.transaction_id for item in found] == [ID]
    for request in service.requests:  # a filter would hide what has the reference and another type
        assert_sent(request, "GET", "/v1/transactions?limit=100")


WRONG: list[tuple[Callable[[Any], Any], set[str]]] = [
    (lambda client: client.transactions.get(".."), {"transaction_id"}),
    (
        lambda client: client.transactions.list(limit=0, channel_id="", amount_min=1.5),
        {"limit", "channel_id", "amount_min"},
    ),
    (lambda client: client.transactions.find(reference=" ", since="now"), {"reference", "since"}),
]


@pytest.mark.parametrize(("call", "names"), WRONG)
def test_wrong_arguments_are_refused_together_and_nothing_is_sent(
    drive: Callable[..., Driver], call: Callable[[Any], Any], names: set[str]
) -> None:
    service = Recorder(PAGE)
    assert refused(drive(transport=service.transport), call) == names
    assert service.requests == []


def test_a_walk_refuses_wrong_arguments_before_it_begins(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAGE)
    driver = drive(transport=service.transport)
    assert refused(driver, lambda client: client.transactions.iter(page_size=101, to=5)) == {"page_size", "to"}
    assert service.requests == []


# Against the sandbox, whose ledger is the only witness of what was paid.


def test_the_list_is_walked_page_by_page(sdk: Driver, sandbox: Sandbox, listed: list[str]) -> None:
    before = len(sandbox.requests)
    items = sdk.collect(lambda client: client.transactions.iter(page_size=10))
    assert [item.transaction_id for item in items] == listed[::-1]
    assert len(sandbox.requests) - before == 3
    pages = sdk.collect(lambda client: client.transactions.iter(page_size=10).pages())
    assert [len(page.items) for page in pages] == [10, 10, 5]
    assert {page.overview.total for page in pages} == {25}


def test_filters_reach_the_service(sdk: Driver, listed: list[str]) -> None:
    page = sdk(lambda client: client.transactions.list(amount_min=5, amount_max=Decimal(7), type="STK", limit=100))
    assert [item.transaction_id for item in page.items] == listed[4:7][::-1]
    assert page.next_cursor is None
    long_ago = datetime.now(UTC) - timedelta(days=400)
    assert sdk(lambda client: client.transactions.list(to=long_ago)).overview.total == 0


def test_snake_case_reads_alike(sdk: Driver, account: Account) -> None:
    made = sdk(prompt)
    camel = sdk(lambda client: client.transactions.get(made))
    account.switches.naming = "snake_case"
    snake = sdk(lambda client: client.transactions.get(made))
    for name in ("transaction_id", "status", "amount", "phone", "account_reference", "created_at"):
        assert getattr(snake, name) == getattr(camel, name)
    assert snake.transaction_fee == 1
