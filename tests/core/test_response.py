"""Responses, byte for byte: what is a success, a definite refusal, a failure of the server, or nothing specified."""

import json
import math
import pickle
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import CoreSchema, core_schema

import momopay
from core.kit import SUCCESS, reach
from drivers import session_of
from in_turn import in_turn
from momopay._core.call import Call
from momopay._core.endpoint import Endpoint
from momopay._core.operation import run_sync
from momopay._core.response import (
    check_success,
    failure_from_response,
    failure_without_response,
    http_date,
    parse_envelope,
    remaining_requests,
    retry_after,
    transaction_id_in,
)
from momopay._core.retry import MAY_HAVE_EXECUTED, SAFE, AttemptFailed, FailureKind
from momopay._ratelimit.budget import Lane
from momopay._transport.attempt import Headers, NoReplyError, NoResponseError, NotSentError, RawResponse
from momopay.errors import ERRORS_BY_CODE
from momopay.models.records import Envelope, Record
from momopay.models.transactions import StkTransaction, WalletBalance

URL = "https://api.example:8443/v1/wallets/service/balance"
BALANCE = {"walletId": "w", "availableBalance": 5, "ledgerBalance": 6, "updatedAt": "2026-11-20T10:00:00Z"}


def response(status: int, body: object = b"", **headers: str) -> RawResponse:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return RawResponse(status, Headers({name.replace("_", "-"): text for name, text in headers.items()}), content)


def error_body(code: Any, **fields: Any) -> dict[str, Any]:
    return {"success": False, "error": {"code": code, "message": "no", "details": {}}, "requestId": "r", **fields}


REFUSES = response(200, error_body("CHANNEL_IN_USE"))


def failed(answer: RawResponse) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as caught:
        parse_envelope(answer, Envelope[WalletBalance], URL)
    return caught.value


def test_an_interrupt_while_a_parser_is_built_stays_an_interrupt_and_nothing_was_sent() -> None:
    class Interrupting:
        @property
        def value(self) -> str:
            raise KeyboardInterrupt

    class Balance(Record):
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
            return core_schema.enum_schema(Interrupting, [Interrupting()])

    endpoint = Endpoint("wallet.balance", "GET", SAFE, Lane.READ, Envelope[Balance])
    client, service = reach(SUCCESS)
    with pytest.raises(KeyboardInterrupt):
        run_sync(Call(session_of(client), endpoint, "/wallets/service/balance").run())
    assert service.sent == []


@in_turn("status", [200, 201, 202, 299])
def test_any_2xx_with_data_is_a_success(status: int) -> None:
    parsed = parse_envelope(
        response(status, {"success": True, "data": BALANCE, "requestId": "r"}), Envelope[WalletBalance], URL
    )
    assert parsed.data.available_balance == 5
    assert parsed.request_id == "r"


@pytest.mark.usefixtures("in_nairobi")
def test_what_the_response_to_a_payment_lacks_is_known() -> None:
    requested: dict[str, object] = {"amount": Decimal(5), "phone": "254712345678", "reference": "INV-42"}
    for request_id, expected in (("r", "r"), (7, None)):
        body = {"success": True, "data": {"transactionId": "t-1"}, "requestId": request_id}
        parsed = parse_envelope(response(200, body), Envelope[StkTransaction], URL, requested)
        assert (parsed.success, parsed.request_id, parsed.data.transaction_id) == (True, expected, "t-1")
        assert parsed.data.amount == 5
        assert abs(datetime.now(UTC) - parsed.data.created_at) < timedelta(minutes=1)
    dated = response(200, body, date="Sat, 28 Nov 2026 10:00:00 GMT")
    parsed = parse_envelope(dated, Envelope[StkTransaction], URL, requested)
    assert parsed.data.created_at == datetime(2026, 11, 28, 10, tzinfo=UTC)


def test_a_call_that_returns_nothing_needs_no_envelope_but_no_refusal_either() -> None:
    for answer in (response(204), response(200, b"done"), response(200, {"success": True})):
        check_success(answer, URL)
    for answer, kind in ((response(404, b"<html>"), FailureKind.INVALID_RESPONSE), (REFUSES, FailureKind.REFUSED)):
        with pytest.raises(AttemptFailed) as caught:
            check_success(answer, URL)
        assert caught.value.kind is kind
        assert (URL in str(caught.value.error)) is (kind is FailureKind.INVALID_RESPONSE)


def test_a_5xx_or_a_408_may_have_executed_whatever_its_body_says() -> None:
    refused: tuple[object, str] = (error_body("INSUFFICIENT_FUNDS"), "INSUFFICIENT_FUNDS")
    for status, (body, code) in product((408, 500, 503), ((b"<html>", None), refused)):
        answer = response(status, body, retry_after="7")
        failure = failure_from_response(answer, URL)
        assert (failure.kind, failure.retry_after, failure.body) == (FailureKind.SERVER_ERROR, 7, answer.body)
        assert isinstance(failure.error, momopay.APIError)
        assert (failure.error.code, failure.error.status_code) == (code, status)


KNOWN_CODES = [each for each in ERRORS_BY_CODE.items() if each[0] != "RATE_LIMIT_EXCEEDED"]


@in_turn(
    ("status", "code", "kind"),
    [
        *((400, "INVALID_PHONE", momopay.InvalidPhoneError), (429, "STK_TEMP_BANNED", momopay.StkTempBannedError)),
        *((status, "SOMETHING_NEW", momopay.APIError) for status in (400, 402, 404, 410, 413, 415, 422)),
        (400, "A" * 500, momopay.APIError),
        *((401, "TENANT_INACTIVE", momopay.InvalidApiKeyError), (401, "HTTP_401", momopay.InvalidApiKeyError)),
        *((403, "ACCOUNT_INACTIVE", momopay.KycNotVerifiedError), (403, "SOMETHING_NEW", momopay.KycNotVerifiedError)),
        *((401, "INVALID_PHONE", momopay.InvalidPhoneError), (403, "CHANNEL_IN_USE", momopay.ChannelInUseError)),
        *((409, code, momopay.APIError) for code in ("CREDENTIAL_INACTIVE", "WALLET_INACTIVE", "DUPLICATE_SHORTCODE")),
        *((status, *known) for known in KNOWN_CODES for status in (200, 405, 409, 425, 499)),
    ],
)
def test_the_code_chooses_the_error(status: int, code: str, kind: type[momopay.APIError]) -> None:
    failure = failed(response(status, error_body(code)))
    assert failure.kind is FailureKind.REFUSED
    assert type(failure.error) is kind
    assert isinstance(failure.error, momopay.APIError)
    assert (failure.error.code, failure.error.status_code, failure.error.request_id) == (code, status, "r")
    endless = failed(
        response(status, error_body(code, error={"code": code, "message": "no" * 300}, requestId="r" * 600))
    )
    assert isinstance(endless.error, momopay.APIError)
    assert (endless.error.message, endless.error.request_id) == ("no" * 250, "r" * 500)
    odd = failed(response(status, error_body(code, requestId=7))).error
    assert isinstance(odd, momopay.APIError)
    assert odd.request_id is None


@in_turn("status", [101, 200, 201, 299, 405, 409, 425, 430, 499])
def test_a_new_code_elsewhere_refuses_nothing_for_certain(status: int) -> None:
    failure = failed(response(status, error_body("SOMETHING_NEW")))
    assert (failure.kind, type(failure.error)) == (FailureKind.UNKNOWN_CODE, momopay.APIError)


def test_a_code_of_no_class_of_its_own_has_no_remedy_of_another() -> None:
    for status, code, own in ((401, "INVALID_API_KEY", "TENANT_INACTIVE"), (403, "KYC_NOT_VERIFIED", "NO_SCOPE")):
        specified, other = (
            failed(response(status, error_body(code))).error,
            failed(response(status, error_body(own))).error,
        )
        assert type(specified) is type(other)
        assert (specified.remedy == type(other).remedy, other.remedy) == (True, momopay.APIError.remedy)
        assert pickle.loads(pickle.dumps(other)).remedy == other.remedy


@in_turn("code", ["RATE_LIMIT_EXCEEDED", "RATE_LIMITED", "RATE_LIMIT", "HTTP_429", "SOMETHING_NEW"])
def test_any_code_of_a_429_is_a_rate_limit(code: str) -> None:
    failure = failed(response(429, error_body(code), retry_after="7"))
    assert (failure.kind, failure.retry_after) == (FailureKind.RATE_LIMITED, 7)
    assert isinstance(failure.error, momopay.RateLimitExceededError)
    assert (failure.error.code, failure.error.retry_after) == (code, 7)


@in_turn("status", [200, 400, 401, 409, 422, 429])
def test_a_key_that_was_sent_before_is_no_refusal(status: int) -> None:
    failure = failed(response(status, error_body("DUPLICATE_IDEMPOTENCY_KEY")))
    assert failure.kind is FailureKind.SENT_BEFORE
    assert failure.kind in MAY_HAVE_EXECUTED


@in_turn(
    ("message", "text"),
    [
        (
            ["phone must be a string", "amount must not be less than 10"],
            "phone must be a string; amount must not be less than 10",
        ),
        *(([], ""), (None, ""), (["", "no", None], "no"), ([["a"], "b"], "a; b"), (7, "7")),
        ({"phone": ["is bad"]}, '{"phone":["is bad"]}'),
        ([{"field": "phone"}], '{"field":"phone"}'),
        (["x" * 600] * 20, "; ".join(["x" * 500] * 20)[:4000]),
    ],
)
def test_a_message_may_be_a_list_of_texts(message: object, text: str) -> None:
    body = error_body("HTTP_400", error={"code": "HTTP_400", "message": message, "details": {}})
    error = failed(response(400, body)).error
    assert isinstance(error, momopay.APIError)
    assert (error.code, error.message) == ("HTTP_400", text)


@in_turn(
    ("fields", "details"),
    [
        *(({"details": {"a": 1}}, {"a": 1}), ({"details": None}, {}), ({}, {}), ({"details": []}, {})),
        *(({"details": ["a", "b"]}, {"details": ["a", "b"]}), ({"details": "why"}, {"details": "why"})),
        ({"errors": [1], "a": 2, "details": {"a": 1}}, {"errors": [1], "a": 1}),
    ],
)
def test_what_else_a_refusal_says_is_in_its_details(fields: dict[str, object], details: dict[str, object]) -> None:
    error = failed(response(400, error_body("X", error={"code": "X", "message": "no", **fields}))).error
    assert isinstance(error, momopay.APIError)
    assert error.details == details


REFUSED = json.dumps(error_body("INSUFFICIENT_FUNDS"))
PAID = json.dumps({"success": True, "data": {"transactionId": "t"}, "requestId": "r"})
ALMOST_A_REFUSAL: dict[str, object] = {
    "byte_order_mark": "\ufeff".encode() + REFUSED.encode(),
    "utf_16": REFUSED.encode("utf-16"),
    "utf_32": REFUSED.encode("utf-32"),
    "not_utf_8": REFUSED.replace("no", "n\udcff").encode(errors="surrogateescape"),
    "surrogate_in_utf_8": REFUSED.replace("no", "n\ud800").encode(errors="surrogatepass"),
    "overlong_utf_8": REFUSED.encode().replace(b"no", b"n\xc0\xaf"),
    "two_answers": (REFUSED + PAID).encode(),
    "comma_at_the_end": REFUSED[:-1].encode() + b",}",
    "comment": b"/* no */" + REFUSED.encode(),
    "single_quotes": REFUSED.replace('"', "'").encode(),
    "refused_and_paid": REFUSED[:-1].encode() + b"," + PAID[1:].encode(),
    "paid_and_refused": PAID[:-1].encode() + b"," + REFUSED[1:].encode(),
    "refused_with_a_transaction": error_body("INSUFFICIENT_FUNDS", data={"transactionId": "t-1"}),
    "refused_with_a_transaction_by_another_name": error_body("INSUFFICIENT_FUNDS", data=[{"id": 7}]),
    "blank_code": error_body("  "),
    "endless_code": error_body("A" * 501),
    "code_is_a_number": error_body(409),
    "code_is_a_list": error_body(["INSUFFICIENT_FUNDS"]),
    "no_code": {"success": False, "error": {}},
    "no_error": {"success": False},
    "success_is_zero": REFUSED.replace("false", "0").encode(),
    "success_is_null": REFUSED.replace("false", "null").encode(),
    "success_is_text": REFUSED.replace("false", '"false"').encode(),
    "success_is_missing": {"error": {"code": "INSUFFICIENT_FUNDS"}},
    "error_is_text": {"success": False, "error": "INSUFFICIENT_FUNDS"},
    "error_is_a_list": {"success": False, "error": [{"code": "INSUFFICIENT_FUNDS"}]},
    "list_of_refusals": f"[{REFUSED}]".encode(),
    "refusal_as_text": json.dumps(REFUSED).encode(),
    "nested": b'{"success": false, "error": {"code": "A", "details": ' + b"[" * 100_000,
}
NOT_SPECIFIED = [
    *(response(302, b"", location="/elsewhere"), response(302, error_body("MOVED")), response(304)),
    *(response(404, b"<html>"), response(429), response(400, {"success": True, "data": {}})),
    *(response(status, body) for body in ALMOST_A_REFUSAL.values() for status in (200, 409)),
]


@in_turn("answer", NOT_SPECIFIED)
def test_what_is_not_specified_refuses_nothing_for_certain(answer: RawResponse) -> None:
    failure = failure_from_response(answer, URL)
    assert (failure.kind, failure.body) == (FailureKind.INVALID_RESPONSE, answer.body)
    assert type(failure.error) is momopay.ProtocolError
    assert failure.error.status_code == answer.status


@in_turn(
    ("error", "kind", "text"),
    [
        (NotSentError("refused"), FailureKind.NOT_SENT, "not sent to api.example:8443: refused"),
        (
            NoReplyError("too late", partial=b'{"data"'),
            FailureKind.NO_REPLY,
            "no reply from api.example:8443: too late",
        ),
        (
            NoResponseError("a body over 8 MiB"),
            FailureKind.INVALID_RESPONSE,
            f"{URL} answered with a body over 8 MiB. That is not this service's",
        ),
    ],
)
def test_a_missing_response_names_where_it_was_expected(error: NoResponseError, kind: FailureKind, text: str) -> None:
    failure = failure_without_response(error, URL)
    assert (failure.kind, failure.error.__cause__) == (kind, error)
    assert failure.body == (error.partial if isinstance(error, NoReplyError) else b"")
    assert isinstance(failure.error, momopay.APIConnectionError) is (kind is not FailureKind.INVALID_RESPONSE)
    assert str(failure.error).startswith(text)


@in_turn(
    ("body", "found"),
    [
        (b'{"data": {"transactionId": "t-1", "status": "PEND', "t-1"),
        *((b'{"success": true, "data": {"transaction_id": "t-1"}}', "t-1"), (b'{"data": {"transactionId": "t', None)),
        *((b'{"data": {"transactionId": "%b"}}' % each, None) for each in (b" ", b".", b"..", b"x" * 256)),
        (b'{"data": {"transactionId": "%b"}}' % (b"x" * 255), "x" * 255),
        *((b'{"data": {"transactionId": 7}}', None), (b'{"error": {"transactionId": "t-1"}}', None), (b"<html>", None)),
        (b"", None),
    ],
)
def test_a_transaction_id_is_found_in_what_arrived(body: bytes, found: str | None) -> None:
    assert transaction_id_in(body) == found


# How long a refusal asks to wait.


def limited(details: Any, retry_after: str | None = None) -> float | None:
    body = error_body("RATE_LIMIT_EXCEEDED")
    body["error"]["details"] = details
    headers = {} if retry_after is None else {"retry_after": retry_after}
    return failed(response(429, body, **headers)).retry_after


@in_turn(
    ("reset", "retry_after", "seconds"),
    [(30, "0", 30), (0, "30", 30), (30, "soon", 30), ("soon", "30", 30), (20, "30", 30), (30, "-5", 30)],
)
def test_the_longer_of_two_pauses_counts(reset: Any, retry_after: str, seconds: float) -> None:
    assert limited({"resetInSeconds": reset}, retry_after) == seconds


@in_turn("reset", [-30, "30", True, [30], {}, float("inf"), 10**400])
def test_a_pause_that_is_no_number_is_ignored(reset: Any) -> None:
    assert limited({"resetInSeconds": reset}) is None
    assert limited([reset]) is None


def test_an_endless_pause_stays_a_number() -> None:
    assert limited({"resetInSeconds": 10**30}) == 1e30


def test_a_point_in_time_counts_only_where_no_seconds_are_stated() -> None:
    end = datetime.now(UTC) + timedelta(seconds=100)
    assert limited({"blockedUntil": end.isoformat(), "retryAfterSeconds": 30}) == 30
    pause = limited({"blockedUntil": end.isoformat()})
    assert pause is not None
    assert 90 < pause <= 100
    assert retry_after({"retry-after": format_datetime(end, usegmt=True)}) == pytest.approx(95, abs=5)
    assert limited({"blockedUntil": "2020-01-01T00:00:00Z"}) == 0


# Times and counts in headers.


@in_turn(
    ("text", "seconds"),
    [
        *(("0", 0.0), ("17", 17.0), (" 17 ", 17.0), ("-1", None), ("1.5", None), ("soon", None), ("", None)),
        *(("٣", None), ("9" * 400, 1e9), ("Wed, 99 Nov 2026 07:28:00 GMT", None)),
        *(("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 21 Oct 2015 07:28:00", 0.0)),
    ],
)
def test_retry_after_is_digits_or_a_date_and_junk_is_ignored(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds


WORDS = (
    r'Wed, Sun 21 0 99 Oct May 9999 07:28:00 24:00:00 7:8 GMT EST Z +0000 -2400 +99999999999 (comment \ " - , ; 1e9 ٣'
)


@given(st.text() | st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join))
def test_any_header_at_all_is_a_pause_or_none(text: str) -> None:
    seconds = retry_after({"retry-after": text})
    assert seconds is None or 0 <= seconds < 1e12


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
DATE = {"date": "Sun, 22 Nov 2026 12:00:00 GMT"}
RESET = int(NOON.timestamp())


@in_turn(
    ("remaining", "reset", "date", "found"),
    [
        *(
            ("7", str(RESET + 1), DATE, (7, 1.0)),
            ("7", str(RESET + 30), DATE, (7, 30.0)),
            ("0", str(RESET + 60), DATE, (0, 60.0)),
        ),
        *(("7", str(RESET + 9999), DATE, (7, 60.0)), ("7", str(RESET), DATE, None), ("7", str(RESET - 1), DATE, None)),
        *(("7", str(RESET), {}, (7, 60.0)), ("7", "30", {"date": "soon"}, (7, 60.0)), ("7", "", DATE, None)),
        *((text, str(RESET + 30), DATE, None) for text in ("", "-1", "7.0", "NaN", "7, 8", "9" * 5000, "\u0663", " 7")),
        *(("7", text, DATE, None) for text in ("-1", "inf", f"{RESET + 30}, {RESET + 40}", "9" * 5000, "soon")),
    ],
)
def test_what_is_left_of_the_services_window(
    remaining: str, reset: str, date: dict[str, str], found: tuple[int, float] | None
) -> None:
    headers = {"x-ratelimit-remaining": remaining, "x-ratelimit-reset": reset}
    assert remaining_requests({**headers, **date}) == found
    assert [remaining_requests({name: text, **date}) for name, text in headers.items()] == [None, None]


@in_turn("seconds", [30, 59, 120, -5, -30])
def test_without_a_date_what_is_left_counts_by_this_machines_clock(seconds: int) -> None:
    """A clock that is wrong makes no wait longer than a window, and none that the service did not ask for shorter."""
    reset = time.time() + seconds
    expected = min(60, seconds) if seconds > 0 else 60
    for text in (str(math.ceil(reset)), str(round(reset * 1000))):
        found = remaining_requests({"x-ratelimit-remaining": "0", "x-ratelimit-reset": text})
        assert found is not None
        assert (found[0], abs(found[1] - expected) < 1.5) == (0, True)


@given(st.text(), st.text(), st.text() | st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join))
def test_any_headers_at_all_leave_some_seconds_or_say_nothing(remaining: str, reset: str, date: str) -> None:
    for given_reset in (reset, str(RESET)):
        headers = {"x-ratelimit-remaining": "1", "x-ratelimit-reset": given_reset, "date": date}
        found = remaining_requests(headers)
        assert found is None or 0 < found[1] <= 60
        assert remaining.isdigit() or remaining_requests({**headers, "x-ratelimit-remaining": remaining}) is None


@in_turn(
    ("text", "found"),
    [
        *((f"Sun, 22 Nov 2026 {time}", NOON) for time in ("12:00:00 GMT", "15:00:00 +0300", "12:00:00 -0000")),
        *((text, None) for text in ("", "30", "Sun, 22 Nov 2026 14:00 +99999999999999", f"Sun, {10**20} Nov 2026")),
    ],
)
def test_a_date_has_a_zone_and_anything_else_is_none(text: str, found: datetime | None) -> None:
    assert http_date(text) == found


def test_where_nothing_is_stated_the_window_of_the_rate_limit_counts() -> None:
    window = {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1795860030", "date": "Sat, 28 Nov 2026 10:00:00 GMT"}
    assert failed(response(429, error_body("RATE_LIMITED"), **window)).retry_after == 30
    assert failed(response(429, error_body("RATE_LIMITED"), retry_after="5", **window)).retry_after == 5


def test_a_point_in_time_is_compared_with_the_services_own_clock() -> None:
    date = {"date": "Fri, 20 Nov 2026 10:00:00 GMT"}
    assert retry_after({"retry-after": "Fri, 20 Nov 2026 10:00:30 GMT", **date}) == 30
    body = error_body("RATE_LIMIT_EXCEEDED")
    body["error"]["details"] = {"blockedUntil": "2026-11-20T13:08:00+03:00"}
    assert failed(response(429, body, **date)).retry_after == 480


@in_turn(
    "answer",
    [
        response(404, b"<html>", content_type="text/html"),
        response(200, b""),
        response(200, [1]),
        response(302, error_body("X")),
    ],
)
def test_an_answer_that_is_not_the_services_names_the_address_and_asks_whether_it_is_right(answer: RawResponse) -> None:
    error, kind = failed(answer).error, answer.headers.get("content-type", "no content type")
    assert str(error).startswith(f"{URL} answered HTTP {answer.status} with {len(answer.body)} bytes of {kind}: ")
    assert "is base_url right" in str(error)


def test_an_answer_of_the_service_that_lacks_something_does_not_ask_for_the_address() -> None:
    error = failed(response(200, {"success": True, "data": {}, "requestId": "r"})).error
    assert str(error).startswith(f"{URL} answered HTTP 200 with")
    assert "data.availableBalance" in str(error)
    assert isinstance(error.__cause__, ValidationError)
    assert str(error).endswith("Field required")
    with pytest.raises(AttemptFailed) as caught:
        parse_envelope(response(200, {"success": True, "data": {}}), Envelope[StkTransaction], URL)
    assert "transactionId" in str(caught.value.error)
