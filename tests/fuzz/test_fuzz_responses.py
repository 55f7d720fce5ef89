"""Any response to every call: a record or an error of this package, one request, no payment taken for refused."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
import wire
from drivers import Drive, session_of
from fuzz.strategies import JSON, fuzz, mutated, scratched
from hostile.endpoints import CALLS, Call, Responses, is_definite_refusal
from in_turn import in_turn
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
REFUSALS = st.sampled_from(CODES).map(wire.error_envelope)


def bodies(call: Call) -> st.SearchStrategy[bytes]:
    """Noise, JSON, and what is nearly a response of the service."""
    whole = wire.envelope(call.data)
    refused = st.sampled_from(CODES).flatmap(lambda code: mutated(json.loads(wire.error_envelope(code))))
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
