"""Each request: the fields of the service page, their limits, and the paths that carry an id."""

import json
import pickle
import traceback
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

import momopay
from in_turn import in_turn
from models.kit import CHANNEL, ID, ITEM, PAGE, PHONE, callback_with, parse
from momopay import ChannelType, RequestValidationError
from momopay._redaction import clear_frames
from momopay.models import requests
from momopay.models.requests import Fit, Request, Search, StkRequest, TopUpRequest, TransactionQuery, channel_path

VALID: dict[type[Request], dict[str, Any]] = {
    StkRequest: {"amount": 1, "phone": PHONE},
    requests.PayoutRequest: {"amount": 10, "phone": PHONE, "reference": "PAY-7"},
    TopUpRequest: {"amount": 1, "phone": PHONE, "idempotency_key": "k-1"},
    requests.ChannelRequest: {"name": "Shop", "type": "TILL_NUMBER", "shortcode": "600100"},
    requests.ChannelChanges: {"channel_id": CHANNEL},
    TransactionQuery: {},
    Search: {"reference": "INV-42", "since": datetime(2025, 3, 1, 10, 15, tzinfo=UTC)},
}


def refused(kind: type[Request], **changes: Any) -> set[str]:
    with pytest.raises(RequestValidationError) as caught:
        kind.checked(**{**VALID[kind], **changes})
    assert "712345678" not in f"{caught.value}"
    return set(caught.value.fields)


def test_a_page_size_is_the_limit_of_each_page() -> None:
    query = TransactionQuery.checked(page_size=7, q="jane")
    assert query.after(None).to_query() == "?q=jane&limit=7"
    assert query.after("c2").to_query() == "?q=jane&limit=7&cursor=c2"
    assert query.to_query() == "?q=jane&limit=7"


@in_turn(("kind", "minimum"), [(StkRequest, 1), (requests.PayoutRequest, 10), (TopUpRequest, 1)])
def test_the_minimum_is_accepted_and_less_is_refused(kind: type[Request], minimum: int) -> None:
    least: dict[str, Any] = {**VALID[kind], "amount": minimum}
    assert json.loads(kind.checked(**least).to_json())["amount"] == minimum
    assert refused(kind, amount=minimum - Decimal("0.01")) == {"amount"}


def test_an_amount_is_a_number_in_a_body_and_exact() -> None:
    for amount, text in (("1E+2", b"100"), ("99.90", b"99.9"), ("9999999999999.99", b"9999999999999.99")):
        body = StkRequest.checked(amount=Decimal(amount), phone="0712345678").to_json()
        assert body == b'{"amount":%b,"phone":"254712345678"}' % text


def test_a_query_is_percent_encoded_and_empty_without_arguments() -> None:
    query = TransactionQuery.checked(amount_min=Decimal("99.90"), q="a&b=c é +/#").to_query()
    assert query == "?amountMin=99.90&q=a%26b%3Dc%20%C3%A9%20%2B%2F%23"
    assert TransactionQuery.checked().to_query() == ""


def test_a_member_of_an_enum_goes_out_as_its_text() -> None:
    class Ours(str, Enum):  # noqa: UP042  an enum whose str() is the name of the member
        PAID = "SUCCESS"

    assert TransactionQuery.checked(status=Ours.PAID).to_query() == "?status=SUCCESS"
    assert (
        b'"accountReference":"SUCCESS"'
        in StkRequest.checked(**VALID[StkRequest], account_reference=Ours.PAID).to_json()
    )


def test_the_error_is_chained_and_no_link_shows_a_value() -> None:
    with pytest.raises(RequestValidationError) as caught:
        StkRequest.checked(amount=1, phone="254712345678x", transaction_desc=["canary"])
    error = caught.value
    assert isinstance(error.__cause__, ValidationError)
    clear_frames(error)
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame for part in (report, report.__cause__) if part for frame in part.stack]
    ours = [frame.locals for frame in frames if "/tests/" not in frame.filename]
    shown = f"{error} {error!r} {error.__cause__} {error.__cause__!r} {ours}"
    for value in ("712345678", "canary"):
        assert value not in shown
        assert value.encode() not in pickle.dumps(error)


def test_a_filter_by_amount_may_be_nothing_but_not_less() -> None:
    assert TransactionQuery.checked(amount_min=0, amount_max=0).to_query() == "?amountMin=0&amountMax=0"
    assert refused(TransactionQuery, amount_min=-1, amount_max=-1) == {"amount_min", "amount_max"}


@in_turn(
    ("kind", "name", "limit"),
    [
        *((StkRequest, "account_reference", 12), (StkRequest, "transaction_desc", 13)),
        *((TopUpRequest, "account_reference", 120), (TopUpRequest, "transaction_desc", 255)),
        *((requests.PayoutRequest, "reference", 120), (requests.PayoutRequest, "description", 255)),
        *((requests.ChannelRequest, "name", 120), (requests.ChannelRequest, "shortcode", 50)),
        *((requests.ChannelRequest, "account_number", 50), (requests.ChannelChanges, "account_number", 50)),
        (requests.ChannelChanges, "name", 120),
    ],
)
def test_longer_text_is_refused_and_not_cut(kind: type[Request], name: str, limit: int) -> None:
    longest: dict[str, Any] = {**VALID[kind], name: "x" * limit}
    kind.checked(**longest)
    assert refused(kind, **{name: (PHONE + "x" * limit)[: limit + 1]}) == {name}


ALL_WRONG: list[tuple[type[Request], dict[str, Any]]] = [
    (
        StkRequest,
        {"amount": 0.5, "phone": "07123456789", "account_reference": "x" * 13, "transaction_desc": "x" * 14}
        | {"callback_url": "http://shop.example", "channel_id": "", "credential_id": 5},
    ),
    (
        requests.PayoutRequest,
        {"amount": 9, "phone": "+25471234567890", "reference": " ", "description": 5, "currency": "USD"}
        | {"channel_id": "", "callback_url": "https://localhost", "credential_id": " "},
    ),
    (
        TopUpRequest,
        {"amount": 0, "phone": None, "account_reference": "x" * 121, "transaction_desc": "x" * 256}
        | {"idempotency_key": "a\nb"},
    ),
    (requests.ChannelRequest, {"name": 5, "type": " ", "shortcode": 5, "account_number": 5, "is_default": "yes"}),
    (requests.ChannelChanges, {"channel_id": "", "name": 5, "account_number": 5, "is_default": "yes"}),
    (
        TransactionQuery,
        {"limit": 0, "page_size": 0, "cursor": 5, "status": 5, "type": 5, "from_": 5, "to": 5, "channel_id": ""}
        | {"amount_min": 1.5, "amount_max": True, "q": 5},
    ),
    (Search, {"reference": "", "since": "2025-03-01", "amount": 1.5, "phone": "x", "type": 5}),
]


@in_turn(("kind", "arguments"), ALL_WRONG)
def test_each_field_is_checked(kind: type[Request], arguments: dict[str, Any]) -> None:
    of_the_journal = {"is_measured", "known"}  # no caller gives them
    assert set(arguments) == set(kind.model_fields) - of_the_journal
    assert refused(kind, **arguments, unknown=PHONE) == {*arguments, "unknown"}


@in_turn("account_number", [None, "", "  "])
def test_a_paybill_channel_needs_an_account_number(account_number: Any) -> None:
    arguments = {"type": ChannelType.PAYBILL, "account_number": account_number}
    assert refused(requests.ChannelRequest, **arguments) == {"account_number"}
    requests.ChannelRequest.checked(**{**VALID[requests.ChannelRequest], "account_number": account_number})


@in_turn("kind", [StkRequest, requests.PayoutRequest])
def test_a_callback_url_is_neither_local_nor_longer_unless_the_service_is_local(kind: type[Request]) -> None:
    longest = "https://shop.example/".ljust(500, "x")
    for url, on_loopback in (("http://127.0.0.1:8000/momo", True), (longest, False)):
        kind.checked(on_loopback=on_loopback, **VALID[kind], callback_url=url)
        assert refused(kind, callback_url=url + "x") == {"callback_url"}


# Search.
SENT = VALID[Search]["since"]


def item(**changes: Any) -> momopay.types.TransactionSummary:
    found: momopay.types.TransactionSummary = parse(momopay.types.TransactionSummary, {**ITEM.camel, **changes})
    return found


SEARCH = Search.checked(**VALID[Search], amount=Decimal("99.99"), phone=PHONE, type="WALLET_TOPUP")


@in_turn(
    ("changes", "fit"),
    [
        *(({}, Fit.EXACT), ({"phone": "2547*****678"}, Fit.EXACT), ({"type": "wallet_topup"}, Fit.EXACT)),
        ({"createdAt": (SENT - timedelta(minutes=5)).isoformat()}, Fit.EXACT),
        ({"createdAt": (SENT + timedelta(days=9)).isoformat()}, Fit.EXACT),
        ({"createdAt": (SENT - timedelta(minutes=5, seconds=1)).isoformat()}, Fit.NEAR),
        *(({"accountReference": " INV-42 "}, Fit.NEAR), ({"amount": 99.98}, Fit.NEAR)),
        *(({"phone": "254712345679"}, Fit.NEAR), ({"phone": "07*****678"}, Fit.NEAR), ({"type": "STK"}, Fit.NEAR)),
        *(({"accountReference": "inv-42"}, Fit.NONE), ({"phone": "N/A"}, Fit.NEAR)),
        *(({"accountReference": gap}, Fit.NEAR) for gap in (None, "")),
        *(({"accountReference": None, name: other}, Fit.NONE) for name, other in (("amount", 1), ("type", "STK"))),
        ({"accountReference": None, "phone": "254712345679"}, Fit.NONE),
        *(({"accountReference": None, "phone": gap}, Fit.NEAR) for gap in ("2547*****678", "N/A", "")),
        ({"accountReference": None, "createdAt": (SENT - timedelta(minutes=5, seconds=1)).isoformat()}, Fit.NONE),
        ({"accountReference": None, "createdAt": "1970-01-01T00:00:00Z"}, Fit.NEAR),
    ],
)
def test_a_search_compares_all_that_is_known(changes: dict[str, Any], fit: Fit) -> None:
    assert SEARCH.fit(item(**changes)) is fit


def test_a_search_ignores_what_is_not_known_and_how_an_accent_is_written() -> None:
    search = Search.checked(**VALID[Search])
    assert search.fit(item(amount=1, phone="254112345678", type="B2C")) is Fit.EXACT
    known = search.model_copy(update={"known": frozenset({ID})})
    assert [known.fit(each) for each in (item(), item(accountReference="INV-43"))] == [Fit.KNOWN, Fit.NONE]
    accented = Search.checked(reference="Jos\u00e9", since=SENT)
    assert accented.fit(item(accountReference="Jose\u0301")) is Fit.EXACT


def test_a_field_that_a_record_lacks_does_not_differ() -> None:
    payment = requests.RequestedPayment("INV-42", Decimal(1), "254112345678", "B2C")
    assert payment.differences(None, callback_with(amount=None, phone_number=None, type=None).transaction) == []
    assert payment.differences("INV-43", callback_with().transaction) == ["reference", "amount", "phone", "type"]


def test_a_search_that_begins_earlier_reaches_further_back() -> None:
    early = item(createdAt=(SENT - timedelta(hours=1)).isoformat())
    assert (SEARCH.fit(early), SEARCH.shifted(3600).fit(early)) == (Fit.NEAR, Fit.EXACT)


def test_where_no_clock_was_compared_a_search_reaches_a_day_further() -> None:
    unmeasured, early = SEARCH.model_copy(update={"is_measured": False}), SENT - timedelta(hours=1)
    assert (SEARCH.earliest, unmeasured.earliest) == (SENT, SENT - timedelta(days=1))
    assert unmeasured.fit(item(createdAt=early.isoformat())) is Fit.NEAR  # what it finds there, a person compares


@in_turn("offset", [-3, 0, 3])
def test_a_search_from_the_first_time_of_the_calendar_begins_no_earlier(offset: int) -> None:
    since = datetime.min.replace(tzinfo=timezone(timedelta(hours=offset)))
    search = Search.checked(reference="INV-42", since=since, is_measured=False)
    assert search.earliest == search.shifted(3600).since == since


def test_a_search_is_past_a_page_whose_last_item_is_older() -> None:
    ages = timedelta(minutes=6), timedelta(days=1, minutes=6)
    old, older = ({**ITEM.camel, "createdAt": (SENT - age).isoformat()} for age in ages)
    new, missing = ITEM.camel, {**ITEM.camel, "createdAt": "1970-01-01T00:00:00Z"}
    unmeasured = SEARCH.model_copy(update={"is_measured": False})
    for *items, past in ((False,), (old, new, False), (new, old, True), (new, missing, False), (old, missing, True)):
        page = parse(momopay.types.TransactionPage, {**PAGE, "items": items})
        assert (SEARCH.is_past(page), unmeasured.is_past(page)) == (past, False)
    assert unmeasured.is_past(parse(momopay.types.TransactionPage, {**PAGE, "items": [older]}))


# Paths.
PATHS = pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        (requests.transaction_path, "/transactions/", "transaction_id"),
        (channel_path, "/payment-wallet/channels/", "channel_id"),
    ],
)


@PATHS
@given(text=st.text(alphabet=st.characters()))
@example(text="../x")
@example(text="a?b=c#d")
@example(text="%2e")
@example(text="..")
def test_any_id_is_one_segment_or_refused(path: Any, folder: str, name: str, text: str) -> None:
    try:
        segment = path(text).removeprefix(folder)
    except RequestValidationError as error:
        assert set(error.fields) == {name}  # noqa: PT017  either is right
        assert isinstance(error.__cause__, ValueError)  # noqa: PT017
        assert text not in {"../x", "a?b=c#d", "%2e"}
    else:
        assert text != ".."
        assert not set("/?#") & set(segment)
        assert segment not in {"", ".", ".."}
        assert unquote(segment, errors="strict") == text


@in_turn(
    ("reference", "wire_reference"),
    [("order-000042", "order-000042"), ("order-2026-000042", "MOCQYFU2MEBY"), ("order-2026-000043", "5WTZJHVDLSR3")],
)
def test_a_long_reference_of_an_order_is_sent_as_the_same_token_for_ever(reference: str, wire_reference: str) -> None:
    """By another one, no release of this package would find the prompts of an order again."""
    assert requests.OrderRequest.checked(reference=reference).wire_reference == wire_reference
