import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from momopay.sandbox._bodies import StkBody
from momopay.sandbox._listing import Filters, list_page, parse_filters
from momopay.sandbox._payments import initiate_stk
from momopay.sandbox._state import AccountState, ServiceState
from sandbox.kit import KEY, Service, data, refusal, transaction_id

START = datetime(2026, 1, 1, tzinfo=UTC)


def _list(api: httpx.Client, **query: Any) -> Any:
    return data(api.get("/transactions", params=query))


def _ids(page: Any) -> list[str]:
    return [item["transactionId"] for item in page["items"]]


def test_an_item_and_an_empty_page(service: Service, api: httpx.Client) -> None:
    assert _list(api) == {
        "overview": {"total": 0, "completed": 0, "failed": 0, "pending": 0},
        "items": [],
        "nextCursor": None,
    }
    sent = data(service.stk())
    (item,) = _list(api)["items"]
    assert item == {
        name: sent[name]
        for name in (
            "transactionId",
            "type",
            "status",
            "amount",
            "currency",
            "phone",
            "accountReference",
            "transactionFee",
            "createdAt",
            "updatedAt",
        )
    }


def test_pages_are_newest_first_and_stay_put_under_new_arrivals(service: Service, api: httpx.Client) -> None:
    ids = [transaction_id(service.stk()) for _ in range(25)][::-1]
    first = _list(api)
    assert _ids(first) == ids[:20]
    service.stk()
    second = _list(api, cursor=first["nextCursor"])
    assert _ids(second) == ids[20:]
    assert second["nextCursor"] is None
    assert second["overview"]["total"] == 26
    exact = _list(api, limit=26)
    assert exact["nextCursor"] is None


def test_every_filter(service: Service, api: httpx.Client, sandbox: Sandbox) -> None:
    channel = data(service.channel())["id"]
    stk = transaction_id(service.stk(amount=100, channelId=channel, accountReference="Älpha"))
    sandbox.advance(3600)
    payout = transaction_id(service.payout(amount=200.5, phone=phone_for(Outcome.reversed)))
    top_up = transaction_id(service.top_up(amount=300, transactionDesc="float"))
    second = data(api.get(f"/transactions/{payout}"))["createdAt"]
    sandbox.advance(44)
    day = second[:10]

    def found(**query: Any) -> set[str]:
        page = _list(api, **query)
        assert page["overview"]["total"] == len(page["items"])
        return set(_ids(page))

    assert found() == {stk, payout, top_up}
    assert found(status="SUCCESS") == {stk}
    assert found(status="FAILED") == {payout}
    assert found(status="PROCESSING") == {top_up}
    assert found(type="STK") == {stk}
    assert found(type="B2C") == {payout}
    assert found(type="STK", status="FAILED") == set()
    assert found(channelId=channel) == {stk}
    assert found(channelId="nope") == set()
    assert found(amountMin="200.5") == {payout, top_up}
    assert found(amountMax="200.50") == {stk, payout}
    assert found(amountMin="100.01", amountMax="299.99") == {payout}
    assert found(q="äLPHA") == {stk}
    assert found(q="FLOAT") == {top_up}
    assert found(q="salary") == {payout}
    assert found(q="254712349942") == {payout}
    assert found(q=payout[:13]) == {payout}
    assert found(q="") == {stk, payout, top_up}
    assert found(**{"from": second}) == {payout, top_up}
    assert found(to=second) == {stk, payout, top_up}
    assert found(**{"from": second[:-1]}) == {payout, top_up}
    assert found(**{"from": second.replace("Z", "+00:00"), "q": "nope"}) == set()
    assert found(**{"from": day}) >= {payout, top_up}
    assert found(to=day) == {stk, payout, top_up}
    assert found(to="2020-01-01") == set()


def test_the_overview_counts_the_filtered_set_and_ignores_the_cursor(
    service: Service, api: httpx.Client, sandbox: Sandbox
) -> None:
    for outcome in (Outcome.success, Outcome.risk_limit, Outcome.cancelled, Outcome.expired, Outcome.by_hand):
        service.stk(phone=phone_for(outcome))
    service.payout(phone=phone_for(Outcome.reversed))
    service.payout(phone=phone_for(Outcome.never_answers))
    sandbox.advance(61)
    whole = {"total": 7, "completed": 1, "failed": 4, "pending": 2}
    page = _list(api, limit=2)
    assert page["overview"] == whole
    assert _list(api, limit=2, cursor=page["nextCursor"])["overview"] == whole
    assert _list(api, q="254")["overview"] == whole
    assert _list(api, type="B2C")["overview"] == {"total": 2, "completed": 0, "failed": 1, "pending": 1}
    assert _list(api, status="PENDING")["overview"] == {"total": 1, "completed": 0, "failed": 0, "pending": 1}


def test_the_last_day_there_is_bounds_nothing(service: Service, api: httpx.Client) -> None:
    service.stk()
    assert _list(api, to="9999-12-31")["overview"]["total"] == 1


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "ten"},
        {"limit": "-1"},
        {"limit": ""},
        {"limit": "1.0"},
        {"status": "EXPIRED"},
        {"status": "success"},
        {"status": ""},
        {"type": "WALLET_TOPUP"},
        {"type": "stk"},
        {"cursor": "nope"},
        {"cursor": ""},
        {"cursor": "\u00e9"},
        {"cursor": "YmVmb3JlOi0x"},
        {"from": "yesterday"},
        {"to": "2026-13-01"},
        {"from": "0001-01-01T00:00:00+23:00"},
        {"amountMin": "much"},
        {"amountMax": "NaN"},
        {"amountMax": "1_0"},
    ],
)
def test_a_value_that_is_none_is_refused(api: httpx.Client, query: dict[str, str]) -> None:
    assert refusal(api.get("/transactions", params=query)) == (400, "VALIDATION_ERROR")


def test_the_fee_by_status(service: Service, api: httpx.Client, sandbox: Sandbox) -> None:
    sandbox.account(KEY).fee = Decimal("2.50")
    service.stk()
    service.stk(phone=phone_for(Outcome.cancelled))
    service.payout(phone=phone_for(Outcome.reversed))

    def fees() -> list[tuple[str, float]]:
        return [(item["status"], item["transactionFee"]) for item in _list(api)["items"]]

    assert fees() == [("PENDING", 2.5)] * 3
    sandbox.advance(10)
    assert fees() == [("PROCESSING", 0), ("CANCELLED", 0), ("PROCESSING", 0)]
    sandbox.advance(25)
    assert fees() == [("FAILED", 0), ("CANCELLED", 0), ("SUCCESS", 2.5)]
    sandbox.advance(10)
    assert fees()[0] == ("REVERSED", 0)


def test_reading_in_both_styles(service: Service, api: httpx.Client, sandbox: Sandbox) -> None:
    sent = service.stk(accountReference=None)
    camel = service.read(sent)
    assert set(camel) == {
        "transactionId",
        "tenantId",
        "type",
        "status",
        "amount",
        "currency",
        "phone",
        "channelId",
        "accountReference",
        "transactionDesc",
        "provider",
        "providerRequestId",
        "providerCheckoutId",
        "resultCode",
        "resultDesc",
        "createdAt",
        "updatedAt",
    }
    sandbox.account(KEY).switches.naming = "snake_case"
    snake = service.read(sent)
    assert snake == {
        "transaction_id": camel["transactionId"],
        "type": "STK",
        "status": "PENDING",
        "amount": 100,
        "currency": "KES",
        "phone_number": "254712345678",
        "external_reference": None,
        "transaction_fee": 1,
        "provider_request_id": camel["providerRequestId"],
        "provider_checkout_id": camel["providerCheckoutId"],
        "result_code": None,
        "result_desc": None,
        "created_at": camel["createdAt"],
        "updated_at": camel["updatedAt"],
    }
    (item,) = _list(api)["items"]
    assert item["transaction_fee"] == 1
    assert "transactionFee" not in item


def test_an_unknown_transaction_and_another_accounts(service: Service, sandbox: Sandbox) -> None:
    sent = transaction_id(service.stk())
    with httpx.Client(base_url=sandbox.base_url, auth=("pk_test_other", ""), trust_env=False) as other:
        assert refusal(other.get(f"/transactions/{sent}")) == (404, "TRANSACTION_NOT_FOUND")
        assert _list(other)["overview"]["total"] == 0
    for unknown in ("nope", "a%2Fb", "%00", "a%20b"):
        assert refusal(service.api.get(f"/transactions/{unknown}")) == (404, "TRANSACTION_NOT_FOUND")
    sandbox.account(KEY).switches.transaction_not_found_status = 400
    assert refusal(service.api.get("/transactions/nope")) == (400, "TRANSACTION_NOT_FOUND")


def test_list_lag_hides_the_newest_from_one_list_or_one_payment_from_all(
    service: Service, api: httpx.Client, sandbox: Sandbox
) -> None:
    old = transaction_id(service.stk())
    sandbox.advance(61)
    new = transaction_id(service.stk())
    sandbox.fail_next("GET", "/transactions", Fault.list_lag)
    page = _list(api)
    assert (_ids(page), page["overview"]["total"]) == ([old], 1)
    assert _ids(_list(api)) == [new, old]
    sandbox.fail_next("POST", "/b2c/payouts", Fault.list_lag)
    hidden = transaction_id(service.payout())
    assert _ids(_list(api)) == [new, old]
    assert _list(api)["overview"]["total"] == 2
    assert data(api.get(f"/transactions/{hidden}"))["status"] == "PENDING"
    sandbox.advance(60)
    assert _ids(_list(api)) == [hidden, new, old]


def _filled(count: int) -> tuple[ServiceState, AccountState]:
    world = ServiceState()
    book = world.account_of("pk_test_many", START)
    book.account.service_balance = Decimal(10**9)
    body = StkBody.model_validate({"amount": Decimal(5), "phone": "0712345678", "accountReference": "x"})
    for number in range(count):
        initiate_stk(world, book, body, START + timedelta(milliseconds=number))
    return world, book


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(1, 100), st.booleans())
def test_walking_all_pages_gives_each_transaction_once(count: int, limit: int, scan: bool) -> None:
    _, book = _filled(count)
    seen: list[int] = []
    query = {"limit": str(limit), **({"q": "x"} if scan else {})}
    while True:
        page = list_page(book, parse_filters(query), START)
        assert page.overview["total"] == count
        seen += [transaction.number for transaction in page.items]
        if page.next_cursor is None:
            break
        query["cursor"] = page.next_cursor
    assert seen == list(range(count))[::-1]


def test_the_hundred_thousandth_costs_no_more_than_the_first() -> None:
    world, book = _filled(1)
    first = book.history[0]
    for number in range(1, 100_000):
        created_at = START + timedelta(milliseconds=number)
        world.insert(replace(first, id=str(uuid4()), number=number, created_at=created_at))

    def seconds(before: int | None) -> float:
        best = 1.0
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(20):
                list_page(book, Filters(limit=100, before=before), START)
            best = min(best, time.perf_counter() - started)
        return best

    top, bottom = seconds(None), seconds(150)
    assert bottom < 3 * top + 0.002
    assert top / 20 < 0.01
