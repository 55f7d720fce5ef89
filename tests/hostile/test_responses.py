"""Responses whose head, JSON or size is hostile: a typed error or a usable record, and no payment taken for refused.

Which encodings are read is tested in tests/transport/test_attempt.py.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

import momopay
import wire
from drivers import Drive
from fuzz.test_fuzz import parsed
from hostile.endpoints import (
    BALANCE,
    CHANNELS,
    DELETE,
    LIST,
    MARK,
    ONE_CHANNEL,
    PAYOUT,
    READ,
    STK,
    Call,
    Responses,
    outcome,
    places,
)
from test_callbacks import PAYLOAD

BODY = b"<body>"
"""Is replaced by the normal response to a payout."""
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: <length>\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"

NO_ANSWER = {
    "silence": b"",
    "no_status_line": BODY,
    "junk": b"\x00\xff\r\n\r\n",
    "another_protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "tls_alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "http_2": b"HTTP/2 200 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "status_of_two_digits": b"HTTP/1.1 20 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "status_of_zero": b"HTTP/1.1 000 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "status_below_informational": b"HTTP/1.1 099 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "status_in_letters": b"HTTP/1.1 OK 200\r\n" + LENGTH + b"\r\n" + BODY,
    "status_above_all": b"HTTP/1.1 999 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "switching_protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + BODY,
    "informational_and_no_more": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 1000,
    "length_below_zero": OK + b"Content-Length: -1\r\n\r\n" + BODY,
    "length_with_a_sign": OK + b"Content-Length: +5\r\n\r\n" + BODY,
    "length_in_hexadecimal": OK + b"Content-Length: 0x10\r\n\r\n" + BODY,
    "length_without_end": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + BODY,
    "two_lengths": OK + LENGTH + b"Content-Length: 3\r\n\r\n" + BODY,
    "length_too_long": OK + b"Content-Length: 100000\r\n\r\n" + BODY,
    "length_too_short": OK + b"Content-Length: 7\r\n\r\n" + BODY,
    "no_length_at_all": OK + b"Content-Length: 0\r\n\r\n" + BODY,
    "chunk_of_no_size": OK + CHUNKED + b"zz\r\n" + BODY,
    "chunk_below_zero": OK + CHUNKED + b"-5\r\n" + BODY,
    "chunk_without_end": OK + CHUNKED + b"f" * 500 + b"\r\n" + BODY,
    "chunk_of_terabytes": OK + CHUNKED + b"ffffffffff\r\n" + BODY,
    "unknown_transfer_encoding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + BODY,
    "null_in_a_header": OK + b"X-Odd: a\x00b\r\n" + LENGTH + b"\r\n" + BODY,
    "header_without_a_name": OK + b": x\r\n" + LENGTH + b"\r\n" + BODY,
    "header_without_a_colon": OK + b"odd\r\n" + LENGTH + b"\r\n" + BODY,
    "header_of_a_mebibyte": OK + b"X-Odd: " + b"x" * wire.MEBIBYTE + b"\r\n" + LENGTH + b"\r\n" + BODY,
    "reason_of_a_mebibyte": b"HTTP/1.1 200 " + b"x" * wire.MEBIBYTE + b"\r\n" + LENGTH + b"\r\n" + BODY,
    "headers_by_the_hundred_thousand": OK + b"X: y\r\n" * 100_000 + LENGTH + b"\r\n" + BODY,
    "trailers_by_the_hundred_thousand": OK + CHUNKED + b"1\r\n \r\n0\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    "encoding_that_was_not_asked_for": OK + b"Content-Encoding: br\r\n" + LENGTH + b"\r\n" + BODY,
    "encoding_in_no_alphabet": OK + b"Content-Encoding: \xff\xfe\r\n" + LENGTH + b"\r\n" + BODY,
}
AN_ANSWER = {
    "no_reason": b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + BODY,
    "http_1_0_until_closed": b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
    "line_folding": OK + b"X-Odd: a\r\n b\r\n\tc\r\n" + LENGTH + b"\r\n" + BODY,
    "headers_by_the_thousand": OK + b"X: y\r\n" * 5000 + LENGTH + b"\r\n" + BODY,
    "the_same_length_twice": OK + LENGTH + LENGTH + b"\r\n" + BODY,
    "bytes_above_ascii": OK + b"X-Odd: \xff\xe9\r\n" + LENGTH + b"\r\n" + BODY,
    "informational_first": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + OK + LENGTH + b"\r\n" + BODY,
    "odd_success_status": b"HTTP/1.1 299 Fine\r\n" + LENGTH + b"\r\n" + BODY,
}


def answer_with(template: bytes) -> wire.Step:
    body = wire.envelope(PAYOUT.data)
    data = template.replace(b"<length>", str(len(body)).encode()).replace(BODY, body)
    return wire.sends(lambda _: data, stays_open=False)


@pytest.mark.parametrize("template", NO_ANSWER.values(), ids=NO_ANSWER)
def test_what_is_no_response_proves_nothing(reach: Drive, template: bytes) -> None:
    with wire.serve(answer_with(template)) as server:
        error = outcome(reach(server, max_attempts=4), PAYOUT)

        assert type(error) is momopay.OutcomeUnknownError
        assert len(str(error)) < 2000
        assert len(server.requests) == 1


@pytest.mark.parametrize("template", AN_ANSWER.values(), ids=AN_ANSWER)
def test_what_is_only_odd_is_a_response(reach: Drive, template: bytes) -> None:
    with wire.serve(answer_with(template)) as server:
        assert (outcome(reach(server), PAYOUT).transaction_id, len(server.requests)) == (wire.TRANSACTION_ID, 1)


DEEP = 100_000
ODD = {
    "deep_arrays": "[" * DEEP + "]" * DEEP,
    "deep_objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "deep_and_open": "[" * DEEP,
    "deep_just_so": "[" * 150 + "]" * 150,
    "huge_integer": "9" * 100_000,
    "huge_negative_integer": "-" + "9" * 100_000,
    "longest_integer": "9" * 4300,
    "huge_fraction": "0." + "3" * 100_000,
    "huge_exponent": "1e999999999",
    "nan": "NaN",
    "infinity": "-Infinity",
    "lone_surrogate": '"\\ud800"',
    "surrogates_turned_round": '"\\udc00\\ud800"',
    "null_character": '"\\u0000"',
    "long_text": '"' + "x" * 20_000 + '"',
    "object_of_many_keys": "{" + ",".join(f'"{n}":{n}' for n in range(2000)) + "}",
    "object_of_one_key_many_times": "{" + ",".join(['"a":1'] * 2000) + "}",
}
SHAPES = (STK, PAYOUT, DELETE, CHANNELS, ONE_CHANNEL, LIST, BALANCE)
"""One call for each shape of a response. Parsing knows no difference between the clients, so one of them is used."""


ANSWERS = [(call, 200, wire.envelope(call.data)) for call in SHAPES] + [
    (call, status, wire.error_envelope("INSUFFICIENT_FUNDS")) for call in (PAYOUT, READ) for status in (200, 409, 500)
]


@pytest.mark.parametrize("client_kind", ["blocking"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("call", "status", "body"), ANSWERS, ids=[f"{call} {status}" for call, status, _ in ANSWERS])
def test_oddities_in_every_place_of_an_answer(drive: Drive, call: Call, status: int, body: bytes, odd: str) -> None:
    responses = Responses(drive)
    for changed in places(json.loads(body)):
        responses.check(call, status, json.dumps(changed).replace(f'"{MARK}"', odd).encode())


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_oddities_in_every_place_of_a_callback(odd: str) -> None:
    for changed in places(PAYLOAD):
        text = json.dumps(changed).replace(f'"{MARK}"', odd)
        assert repr(parsed(text)) == repr(parsed(text.encode(errors="surrogatepass")))


OPENINGS: list[Callable[[Any], Any]] = [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)]


@pytest.mark.parametrize("opening", OPENINGS, ids=["lists", "mappings", "tuples"])
def test_a_mapping_that_is_too_deep_is_no_callback(opening: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(DEEP):
        value = opening(value)
    with pytest.raises(momopay.InvalidCallbackError):
        momopay.parse_callback({**PAYLOAD, "more": value})
