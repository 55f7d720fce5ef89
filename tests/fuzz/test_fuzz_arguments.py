"""Any argument to every operation: refused by name with nothing sent, or sent once and exactly as meant."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from drivers import Driver, unique_key
from fuzz.strategies import JSON, fuzz

DECIMALS = (
    st.decimals()
    | st.sampled_from(
        ["1e999999999999", "-0", "0.001", "1e-999999999", "sNaN", "9" * 5000, "1e13", "9999999999999.99"]
    ).map(Decimal)
    | st.integers()
    | st.sampled_from([10**400, -(10**5000)])
)
TEXTS = st.text(alphabet=st.characters(), max_size=30)
PHONES = st.from_regex(r"\A\+?(254|0)[17]?[0-9 ()\-]{6,14}\Z") | TEXTS
ANYTHING: st.SearchStrategy[Any] = (
    JSON | DECIMALS | PHONES | st.binary(max_size=8) | st.datetimes() | st.dates() | st.uuids() | st.builds(object)
)
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "stk": (
        "stk.initiate",
        {"amount": 1, "phone": "0712345678", "account_reference": "A", "transaction_desc": "B", "channel_id": "c"}
        | {"callback_url": "https://shop.example/momo", "credential_id": "d"},
    ),
    "payout": (
        "payouts.initiate",
        {"amount": 10, "phone": "0712345678", "reference": "A", "description": "B", "currency": "KES"},
    ),
    "top_up": ("wallet.top_up", {"amount": 1, "phone": "0712345678", "account_reference": "A", "idempotency_key": "k"}),
    "create": (
        "channels.create",
        {"name": "A", "type": "PAYBILL", "shortcode": "1", "account_number": "2", "is_default": True},
    ),
    "update": ("channels.update", {"channel_id": "c", "name": "A", "account_number": "2", "is_default": True}),
    "list": (
        "transactions.list",
        {"limit": 5, "cursor": "c", "status": "SUCCESS", "type": "STK", "from_": datetime(2026, 1, 1, tzinfo=UTC)}
        | {"to": "2026-02-01", "channel_id": "c", "amount_min": 1, "amount_max": Decimal("2.50"), "q": "x"},
    ),
    "find": (
        "transactions.find",
        {
            "reference": "A",
            "since": datetime(2026, 1, 1, tzinfo=UTC),
            "amount": 1,
            "phone": "0712345678",
            "type": "B2C",
        },
    ),
    "read": ("transactions.get", {"transaction_id": "t"}),
    "channel": ("channels.get", {"channel_id": "c"}),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_argument_is_sent_once_or_refused_by_name(drive: Callable[..., Driver], operation: str) -> None:
    name, usual = OPERATIONS[operation]
    sent = list[httpx.Request]()

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(422, json={"success": False, "error": {"code": "SEEN", "message": "", "details": {}}})

    driver = drive(api_key=unique_key(), transport=httpx.MockTransport(handler))

    @fuzz
    @given(st.dictionaries(st.sampled_from(sorted(usual)), ANYTHING, min_size=1, max_size=2))
    def check(odd: dict[str, Any]) -> None:
        sent.clear()
        with pytest.raises(momopay.MomoPayError) as caught:
            driver(lambda client: attrgetter(name)(client)(**{**usual, **odd}))
        if isinstance(caught.value, momopay.RequestValidationError):
            assert sent == []
            assert set(caught.value.fields) <= set(usual)
        else:
            assert type(caught.value) is momopay.APIError
            (request,) = sent
            assert request.url.raw_path.startswith(b"/v1/")
            assert_exact(request, usual | odd)

    check()


def assert_exact(request: httpx.Request, given: dict[str, Any]) -> None:
    """Compare what was sent with what was given: amounts to the cent, phones normalised, texts as they were."""
    if request.method == "GET":
        query = parse_qs(urlsplit(str(request.url)).query, keep_blank_values=True, errors="strict")
        for wire_name, name in (("q", "q"), ("cursor", "cursor"), ("status", "status")):
            if isinstance(given.get(name), str) and wire_name in query:
                assert query[wire_name] == [given[name]]
        return
    body = json.loads(request.content, parse_float=Decimal)
    if "amount" in body:
        assert body["amount"] == given["amount"]
        assert Decimal(body["amount"]) >= 1
    if "phone" in body:
        assert re.fullmatch("254[0-9]{9}", body["phone"])
        assert body["phone"].endswith(re.sub("[^0-9]", "", given["phone"])[-9:])
    for wire_name, name in (("reference", "reference"), ("accountReference", "account_reference"), ("name", "name")):
        if wire_name in body:
            assert body[wire_name] == given[name]


@pytest.mark.parametrize("since", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize("made", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
def test_a_search_works_at_the_ends_of_the_calendar(drive: Callable[..., Driver], since: datetime, made: str) -> None:
    item = {"transactionId": "t", "type": "STK", "status": "PENDING", "amount": 1, "phone": "2547"}
    page = {"items": [{**item, "createdAt": made, "updatedAt": made}], "nextCursor": None}
    data = {**page, "overview": {"total": 1, "completed": 0, "failed": 0, "pending": 1}}
    answer = {"success": True, "data": data, "requestId": "r"}
    driver = drive(api_key=unique_key(), transport=httpx.MockTransport(lambda _: httpx.Response(200, json=answer)))
    assert driver(lambda client: client.transactions.find(reference="A", since=since)) == []
