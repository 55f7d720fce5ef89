"""Any response to every call: a record or an error of this package, one request, no payment taken for refused."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from drivers import Driver
from fuzz.strategies import JSON, fuzz, mutated, scratched
from hostile.endpoints import CALLS, PAYOUT, Call, is_definite_refusal, outcome, refusal, success
from momopay._core.retry import retry_after
from momopay._core.session import StkPause
from momopay.errors import ERRORS_BY_CODE
from virtual import virtual_client

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
REFUSALS = st.sampled_from(CODES).map(refusal)


def bodies(call: Call) -> st.SearchStrategy[bytes]:
    """Noise, JSON, and what is nearly a response of the service."""
    whole = success(call.data)
    refused = st.sampled_from(CODES).flatmap(lambda code: mutated(json.loads(refusal(code))))
    text = JSON | mutated(json.loads(whole)) | refused
    return (
        st.binary(max_size=200)
        | text.map(lambda value: json.dumps(value).encode())
        | text.map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass"))
        | scratched(whole)
        | REFUSALS.flatmap(scratched)
        | REFUSALS
    )


class Script:
    """What the next response is, and how many requests came."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 200, dict[str, str](), b""
        self.requests = 0

    def __call__(self, _request: httpx.Request) -> httpx.Response:
        self.requests += 1
        return httpx.Response(self.status, headers=self.headers, content=self.body)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_any_response_is_a_record_or_an_error_of_this_package(drive: Callable[..., Driver], call: Call) -> None:
    script = Script()
    driver = drive(transport=httpx.MockTransport(script), max_attempts=1)

    @fuzz
    @given(STATUSES, HEADERS, bodies(call))
    def check(status: int, headers: dict[str, str], body: bytes) -> None:
        script.status, script.headers, script.body, script.requests = status, headers, body, 0
        driver.client._session.stk_pause = StkPause()  # the ban of one example is not the next one's
        found = outcome(driver, call)
        assert script.requests == 1
        assert isinstance(f"{found!r}{found}", str)
        assert isinstance(pickle.loads(pickle.dumps(found)), type(found))
        if not isinstance(found, momopay.MomoPayError):
            assert 200 <= status < 300
        elif call.needs_reconciliation:
            assert isinstance(found, momopay.OutcomeUnknownError | momopay.APIError)
            assert found.may_have_executed or is_definite_refusal(status, body)

    check()


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_whatever_the_response_no_payment_is_sent_twice(call: Call) -> None:
    """In virtual time, with all repeats allowed: only after a definite refusal may a payment go out again."""
    answers = list[tuple[int, bytes]]()
    client, port = virtual_client(lambda _method, _path: answers[min(len(port.requests), len(answers)) - 1])

    @fuzz
    @given(st.lists(st.tuples(STATUSES, bodies(call)), min_size=1, max_size=4))
    def check(some: list[tuple[int, bytes]]) -> None:
        answers[:] = some
        port.requests.clear()
        client._session.stk_pause = StkPause()
        with contextlib.suppress(momopay.MomoPayError):
            call.use(client)
        assert 1 <= len(port.requests) <= 4
        if call.once:
            for status, body in answers[: len(port.requests) - 1]:
                assert is_definite_refusal(status, body)
                assert b"RATE_LIMIT_EXCEEDED" in body

    check()


@pytest.mark.parametrize("code", CODES)
def test_what_the_fuzz_tests_start_from_is_a_definite_refusal(drive: Callable[..., Driver], code: str) -> None:
    for status in (200, 400, 402, 409, 429):
        response = httpx.Response(status, content=refusal(code))
        driver = drive(transport=httpx.MockTransport(lambda _, response=response: response), max_attempts=1)
        found = outcome(driver, PAYOUT)
        assert type(found) is ERRORS_BY_CODE[code]
        assert not found.may_have_executed


WORDS = ["Wed,", "Sun", "21", "0", "99", "Oct", "May", "2015", "9999", "1", "07:28:00", "24:00:00", "7:8", "12:30:60"]
ZONES = [
    "GMT",
    "UTC",
    "EST",
    "Z",
    "+0000",
    "-2400",
    "+9999",
    "+99999999999",
    "(comment",
    "\\",
    '"',
    "-",
    ",",
    ";",
    "1e9",
    "\u0663",
]
PAUSES = (
    st.lists(st.sampled_from(WORDS + ZONES), max_size=9).map(" ".join)
    | st.datetimes().map(lambda when: format_datetime(when.replace(tzinfo=UTC), usegmt=True))
    | st.integers().map(str)
    | st.text(alphabet=st.characters(), max_size=40)
)


@fuzz
@given(PAUSES)
def test_any_retry_after_is_a_pause_or_none(text: str) -> None:
    seconds = retry_after({"retry-after": text})
    assert seconds is None or 0 <= seconds < 1e12


@fuzz
@given(st.integers(0, 10**8))
def test_a_pause_that_is_stated_is_kept(seconds: int) -> None:
    assert retry_after({"retry-after": str(seconds)}) == seconds
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds + 1), usegmt=True)
    found = retry_after({"retry-after": until})
    assert found is not None
    assert abs(found - seconds) < 5
