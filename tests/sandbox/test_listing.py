"""Lists: filters, cursor, overview, and the styles of items."""

from typing import Any

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Fault, Outcome, Refusal, Sandbox, Switches, phone_for
from momopay.sandbox._listing import parse_filters
from sandbox.kit import KEY, Routes, client, data, error_of, transaction_id


def listed(api: httpx.Client, **query: Any) -> Any:
    return data(api.get("/transactions", params=query))


def ids_of(page: Any) -> list[str]:
    return [item["transactionId"] for item in page["items"]]


def test_pages_are_newest_first_and_stay_put_under_new_arrivals(service: Routes, api: httpx.Client) -> None:
    ids = [transaction_id(service.stk()) for _ in range(25)][::-1]
    first = listed(api)
    assert ids_of(first) == ids[:20]
    service.stk()
    second = listed(api, cursor=first["nextCursor"])
    assert (ids_of(second), second["nextCursor"]) == (ids[20:], None)
    assert second["overview"]["total"] == 26
    exact = listed(api, limit=26)
    assert exact["nextCursor"] is None
    query: dict[str, Any] = {"limit": 1, "q": "inv-42"}
    walked: list[str] = []
    while query.get("cursor", "") is not None:
        page = listed(api, **query)
        walked += ids_of(page)
        query["cursor"] = page["nextCursor"]
    assert walked == ids_of(exact)


def test_every_filter(service: Routes, api: httpx.Client, sandbox: Sandbox) -> None:
    channel = data(service.channel())["id"]
    stk = transaction_id(service.stk(amount=100, channelId=channel, accountReference="Älpha"))
    sandbox.advance(3600)
    payout = transaction_id(service.payout(amount=200.5, phone=phone_for(Outcome.reversed)))
    top_up = transaction_id(service.top_up(amount=300, transactionDesc="float"))
    second = data(api.get(f"/transactions/{payout}"))["createdAt"]
    sandbox.advance(44)
    nothing, both, everything = set[str](), {payout, top_up}, {stk, payout, top_up}
    queries: list[tuple[dict[str, str], set[str]]] = [
        *(({}, everything), ({"q": ""}, everything), ({"type": "STK"}, {stk}), ({"type": "B2C"}, {payout})),
        *(({"status": "SUCCESS"}, {stk}), ({"status": "FAILED"}, {payout}), ({"status": "PROCESSING"}, {top_up})),
        *(({"type": "STK", "status": "FAILED"}, nothing), ({"channelId": channel}, {stk})),
        *(({"channelId": "nope"}, nothing), ({"amountMin": "200.5"}, both), ({"amountMax": "200.50"}, {stk, payout})),
        *(
            ({"amountMin": "100.01", "amountMax": "299.99"}, {payout}),
            ({"q": "äLPHA"}, {stk}),
            ({"q": "FLOAT"}, {top_up}),
        ),
        *(({"q": text}, {payout}) for text in ("salary", "254712349942", payout[:13])),
        *(({"from": second}, both), ({"from": second[:-1]}, both), ({"to": second}, everything)),
        ({"from": second.replace("Z", "+00:00"), "q": "nope"}, nothing),
        *(({"to": second[:10]}, everything), ({"to": "9999-12-31"}, everything), ({"to": "2020-01-01"}, nothing)),
    ]
    for query, found in queries:
        page = listed(api, **query)
        assert (set(ids_of(page)), page["overview"]["total"]) == (found, len(page["items"])), query
    assert set(ids_of(listed(api, **{"from": second[:10]}))) >= both
    assert error_of(api.get("/transactions?limit=101")) == (400, "VALIDATION_ERROR")


def test_the_overview_counts_what_the_filters_leave(service: Routes, api: httpx.Client, sandbox: Sandbox) -> None:
    for outcome in (Outcome.success, Outcome.risk_limit, Outcome.cancelled, Outcome.expired, Outcome.by_hand):
        service.stk(phone=phone_for(outcome))
    service.payout(phone=phone_for(Outcome.reversed))
    service.payout(phone=phone_for(Outcome.never_answers))
    sandbox.advance(61)
    whole = {"total": 7, "completed": 1, "failed": 4, "pending": 2}
    page = listed(api, limit=2)
    assert page["overview"] == whole
    assert listed(api, limit=2, cursor=page["nextCursor"])["overview"] == whole
    assert listed(api, q="254")["overview"] == whole
    assert listed(api, type="B2C")["overview"] == {"total": 2, "completed": 0, "failed": 1, "pending": 1}
    assert listed(api, status="PENDING")["overview"] == {"total": 1, "completed": 0, "failed": 0, "pending": 1}


@in_turn(
    "query",
    [
        *({"limit": "0"}, {"limit": "101"}, {"limit": "ten"}, {"limit": "-1"}, {"limit": ""}, {"limit": "1.0"}),
        *({"status": "EXPIRED"}, {"status": "success"}, {"status": ""}, {"type": "WALLET_TOPUP"}, {"type": "stk"}),
        *({"cursor": "nope"}, {"cursor": ""}, {"cursor": "\u00e9"}, {"cursor": "before--1"}, {"cursor": "before-01"}),
        *({"cursor": "before-\u0661"}, {"from": "yesterday"}, {"to": "2026-13-01"}),
        *({"from": "0001-01-01T00:00:00+23:00"}, {"amountMin": "much"}, {"amountMax": "NaN"}, {"amountMax": "1_0"}),
    ],
)
def test_a_value_that_is_not_valid_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(Refusal, match=f"VALIDATION_ERROR: {next(iter(query))}"):
        parse_filters(query, Switches())


def test_an_unknown_transaction_and_another_accounts(service: Routes, sandbox: Sandbox) -> None:
    sent = transaction_id(service.stk())
    with client(sandbox.base_url, "pk_test_other") as other:
        assert error_of(other.get(f"/transactions/{sent}")) == (404, "TRANSACTION_NOT_FOUND")
        assert listed(other)["overview"]["total"] == 0
    for unknown in ("nope", "a%2Fb", "%00", "a%20b"):
        assert error_of(service.api.get(f"/transactions/{unknown}")) == (404, "TRANSACTION_NOT_FOUND")
    sandbox.account(KEY).switches.transaction_not_found_status = 400
    assert error_of(service.api.get("/transactions/nope")) == (400, "TRANSACTION_NOT_FOUND")


def test_list_lag_hides_the_newest_or_one_payment(service: Routes, api: httpx.Client, sandbox: Sandbox) -> None:
    old = transaction_id(service.stk())
    sandbox.advance(61)
    new = transaction_id(service.stk())
    sandbox.fail_next("GET", "/transactions", Fault.list_lag)
    page = listed(api)
    assert (ids_of(page), page["overview"]["total"]) == ([old], 1)
    assert ids_of(listed(api)) == [new, old]
    sandbox.fail_next("POST", "/b2c/payouts", Fault.list_lag)
    hidden = transaction_id(service.payout())
    assert (ids_of(listed(api)), listed(api)["overview"]["total"]) == ([new, old], 2)
    assert data(api.get(f"/transactions/{hidden}"))["status"] == "PENDING"
    sandbox.advance(60)
    assert ids_of(listed(api)) == [hidden, new, old]
