"""JSON at its edges, in every place of a response: a typed error or a usable record, never a refusal by mistake."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import momopay
import wire
from drivers import Drive
from fuzz.test_fuzz_callbacks import parsed
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
    places,
)
from test_callbacks import PAYLOAD

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


@pytest.fixture
def client_kind() -> str:
    return "blocking"


ANSWERS = [(call, 200, wire.envelope(call.data)) for call in SHAPES] + [
    (call, status, wire.error_envelope("INSUFFICIENT_FUNDS")) for call in (PAYOUT, READ) for status in (200, 409, 500)
]


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
