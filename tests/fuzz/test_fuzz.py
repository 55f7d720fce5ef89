"""Any argument, response and body: a typed error or what was meant. A long run sets FUZZ_EXAMPLES=1000000.

Only with the blocking client: what is drawn is read and checked by the same code in both clients.
"""

import contextlib
import json
import os
import pickle
import re
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import momopay
from bodies import encoded, envelope, refusal
from drivers import Drive, session_of, unique_key
from hostile.endpoints import CALLS, MARK, Call, Responses, is_definite_refusal, places
from in_turn import in_turn
from models.kit import PAYLOAD
from momopay._core.state import StkPause
from momopay.errors import ERRORS_BY_CODE
from resources.kit import Recorder
from virtual import virtual_client


@pytest.fixture
def client_kind() -> str:
    return "blocking"


fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "25")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,  # a long run draws other examples each time
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The settings of a fuzz test. A failure prints what replays it."""

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=20)
    | st.sampled_from(["", "t-1", "SUCCESS", "FAILED", "INSUFFICIENT_FUNDS", "2026-01-05T09:00:00Z", "1e999999999", 0])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, whole: Any) -> Any:
    """Draw the same JSON with one to three places changed, dropped, or added to."""

    def unmarked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in pairs if value != MARK}

    for _ in range(draw(st.integers(1, 3))):
        marked = json.dumps(draw(st.sampled_from(places(whole))))
        changed = marked.replace(json.dumps(MARK), json.dumps(draw(JSON | st.just(MARK))))
        whole = json.loads(changed, object_pairs_hook=unmarked)  # what is still marked is dropped
    return whole


@st.composite
def scratched(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw the same bytes with some overwritten, doubled, dropped or cut off."""
    body = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(body) - 1, 0)))
        length = draw(st.integers(0, 8))
        end = draw(st.sampled_from([at + length, len(body)]))
        body[at:end] = draw(st.binary(max_size=8) | st.just(bytes(body[at : at + length]) * 2) | st.just(b""))
    return bytes(body)


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
PAYMENT: dict[str, Any] = {"amount": 10, "phone": "0712345678"}
DAY = datetime(2026, 1, 1, tzinfo=UTC)
OPERATIONS: dict[str, dict[str, Any]] = {
    "stk.initiate": {**PAYMENT, "account_reference": "A", "transaction_desc": "B", "channel_id": "c"}
    | {"callback_url": "https://shop.example/momo", "credential_id": "d"},
    "payouts.initiate": {**PAYMENT, "reference": "A", "description": "B", "currency": "KES"},
    "wallet.top_up": {**PAYMENT, "account_reference": "A", "idempotency_key": "k"},
    "channels.create": {"name": "A", "type": "PAYBILL", "shortcode": "1", "account_number": "2", "is_default": True},
    "channels.update": {"channel_id": "c", "name": "A", "account_number": "2", "is_default": True},
    "transactions.list": {"limit": 5, "cursor": "c", "status": "SUCCESS", "type": "STK", "from_": DAY, "q": "x"}
    | {"to": "2026-02-01", "channel_id": "c", "amount_min": 1, "amount_max": Decimal("2.50")},
    "transactions.find": {**PAYMENT, "reference": "A", "since": DAY, "type": "B2C"},
    "transactions.get": {"transaction_id": "t"},
    "channels.get": {"channel_id": "c"},
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_argument_is_sent_once_or_refused_by_name(drive: Drive, operation: str) -> None:
    usual = OPERATIONS[operation]
    error: dict[str, Any] = {"code": "SEEN", "message": "", "details": {}}
    service = Recorder(httpx.Response(422, json={"success": False, "error": error}))
    driver = drive(api_key=unique_key(), transport=service.transport)

    @fuzz
    @given(st.dictionaries(st.sampled_from(sorted(usual)), ANYTHING, min_size=1, max_size=2))
    def check(odd: dict[str, Any]) -> None:
        service.requests.clear()
        with pytest.raises(momopay.MomoPayError) as caught:
            driver(lambda client: attrgetter(operation)(client)(**{**usual, **odd}))
        if isinstance(caught.value, momopay.RequestValidationError):
            assert service.requests == []
            assert set(caught.value.fields) <= set(usual)
        else:
            assert type(caught.value) is momopay.APIError
            (request,) = service.requests
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


@in_turn("since", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@in_turn("made", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
def test_a_search_works_at_the_ends_of_the_calendar(drive: Drive, since: datetime, made: str) -> None:
    item = {"transactionId": "t", "type": "STK", "status": "PENDING", "amount": 1, "phone": "2547"}
    page = Recorder({"items": [{**item, "createdAt": made, "updatedAt": made}], "nextCursor": None})
    sdk = drive(api_key=unique_key(), transport=page.transport)
    assert sdk(lambda client: client.transactions.find(reference="A", since=since)) == []


def parsed(body: Any) -> momopay.Callback | None:
    try:
        callback = momopay.parse_callback(body)
    except momopay.InvalidCallbackError as error:
        assert "254712345678" not in f"{error}{error!r}"  # noqa: PT017  either is right
        return None
    assert "254712345678" not in f"{callback}{callback!r}"
    assert repr(pickle.loads(pickle.dumps(callback))) == repr(callback)  # of all fields; NaN is equal to nothing
    assert callback.key == (callback.transaction.id, callback.transaction.status)
    stated = callback.transaction
    assert stated.amount is None or stated.amount.is_finite()
    assert stated.created_at is None or stated.created_at.utcoffset() is not None
    return callback


BODIES = (mutated(PAYLOAD) | JSON).map(json.dumps).map(str.encode)


@fuzz
@given(BODIES | scratched(json.dumps(PAYLOAD).encode()) | st.binary(max_size=100))
@example(json.dumps({**PAYLOAD, "unknown": [float("nan")]}).encode())
def test_any_body_is_a_callback_or_refused_and_the_same_in_every_form(body: bytes) -> None:
    found = repr(parsed(body))
    assert repr(parsed(bytearray(body))) == repr(parsed(memoryview(body))) == found
    with contextlib.suppress(ValueError):
        text = body.decode()
        assert repr(parsed(text)) == found
        parsed(json.loads(text))


CODES = sorted(ERRORS_BY_CODE)
STATUSES = st.sampled_from([200, 201, 202, 204, 299, 400, 402, 404, 408, 409, 418, 429, 500, 503]) | st.integers(
    200, 999
)
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "Content-Type", "X-Request-Id", "Date", "Location", "Content-Language"]),
    st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
    | st.sampled_from(["9" * 400, "-1", "Wed, 99 Nov 2026 07:28:00 GMT", "application/json"]),
    max_size=3,
)
REFUSALS = st.sampled_from(CODES).map(lambda code: encoded(refusal(code)))


def bodies(call: Call) -> st.SearchStrategy[bytes]:
    """Noise, JSON, and what is nearly a response of the service."""
    whole = encoded(envelope(call.data))
    refused = st.sampled_from(CODES).flatmap(lambda code: mutated(refusal(code)))
    text = JSON | mutated(json.loads(whole)) | refused
    return (
        st.binary(max_size=200)
        | text.map(lambda value: json.dumps(value).encode())
        | text.map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass"))
        | scratched(whole)
        | REFUSALS.flatmap(scratched)
        | REFUSALS
    )


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_any_response_is_a_record_or_an_error_of_this_package(drive: Drive, call: Call) -> None:
    responses = Responses(drive)

    @fuzz
    @given(STATUSES, bodies(call), HEADERS)
    def check(status: int, body: bytes, headers: dict[str, str]) -> None:
        responses.check(call, status, body, headers)

    check()


@in_turn("call", [call for call in CALLS if call.once])
def test_whatever_the_response_no_payment_is_sent_twice(call: Call) -> None:
    """In virtual time, with all repeats allowed: only after a definite refusal may a payment go out again."""
    answers = list[tuple[int, bytes]]()
    client, port = virtual_client(lambda _method, _path: answers[min(len(port.requests), len(answers)) - 1])

    @fuzz
    @given(st.lists(st.tuples(STATUSES, bodies(call)), min_size=1, max_size=4))
    def check(some: list[tuple[int, bytes]]) -> None:
        answers[:] = some
        port.requests.clear()
        session_of(client).stk_pause = StkPause()
        with contextlib.suppress(momopay.MomoPayError):
            call.use(client)
        assert 1 <= len(port.requests) <= 4
        for status, body in answers[: len(port.requests) - 1]:
            assert is_definite_refusal(status, body)
            assert b"RATE_LIMIT_EXCEEDED" in body

    check()
