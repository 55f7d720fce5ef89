"""JSON at its edges, in every place of a response: a typed error or a usable record, never a refusal by mistake."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest

import momopay
from drivers import Driver, unique_key
from hostile.endpoints import (
    BALANCE,
    CHANNELS,
    DELETE,
    LIST,
    ONE_CHANNEL,
    PAYOUT,
    READ,
    STK,
    Call,
    is_definite_refusal,
    outcome,
    refusal,
    success,
)
from test_callbacks import PAYLOAD

Drive = Callable[..., Driver]

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
MARK = "@@@"
SHAPES = (STK, PAYOUT, DELETE, CHANNELS, ONE_CHANNEL, LIST, BALANCE)
"""One call for each shape of a response. Parsing knows no difference between the clients, so one of them is used."""


@pytest.fixture
def client_kind() -> str:
    return "blocking"


def places(value: Any) -> list[Any]:
    """The same value, with the mark at one place after another."""
    found: list[Any] = [MARK]
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        for key, inner in mapping.items():
            found += [{**mapping, key: changed} for changed in places(inner)]
        found.append({**mapping, "more": MARK})
    if isinstance(value, list):
        found += [[changed] for changed in places(cast("Any", value)[0])]
    return found


def answering(drive: Drive, answer: list[Any]) -> tuple[Driver, list[httpx.Request]]:
    """Return a client whose every response has this status and body, and the requests that it makes."""
    sent = list[httpx.Request]()

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(answer[0], content=answer[1], headers={"Content-Type": "application/json"})

    return drive(api_key=unique_key(), transport=httpx.MockTransport(handler), max_attempts=1), sent


def check(driver: Driver, call: Call, answer: list[Any], sent: list[Any]) -> None:
    sent.clear()
    found = outcome(driver, call)
    assert len(sent) == 1
    assert isinstance(repr(found) + str(found), str)
    if isinstance(found, momopay.MomoPayError):
        assert len(str(found)) < 3000
        assert isinstance(pickle.loads(pickle.dumps(found)), type(found))
        if call.needs_reconciliation and not found.may_have_executed:
            assert is_definite_refusal(*answer)
    elif found is not None and not isinstance(found, list):
        assert copy.deepcopy(found) == found


ANSWERS = [(call, 200, success(call.data)) for call in SHAPES] + [
    (call, status, refusal("INSUFFICIENT_FUNDS")) for call in (PAYOUT, READ) for status in (200, 409, 500)
]


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("call", "status", "body"), ANSWERS, ids=[f"{call} {status}" for call, status, _ in ANSWERS])
def test_oddities_in_every_place_of_an_answer(drive: Drive, call: Call, status: int, body: bytes, odd: str) -> None:
    answer: list[Any] = [status, b""]
    driver, sent = answering(drive, answer)
    for changed in places(json.loads(body)):
        answer[1] = json.dumps(changed).replace(f'"{MARK}"', odd).encode()
        check(driver, call, answer, sent)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_oddities_in_every_place_of_a_callback(odd: str) -> None:
    for changed in places(PAYLOAD):
        text = json.dumps(changed).replace(f'"{MARK}"', odd)
        for body in (text, text.encode(errors="surrogatepass"), bytearray(text.encode(errors="surrogatepass"))):
            try:
                callback = momopay.parse_callback(body)
            except momopay.InvalidCallbackError:
                continue
            assert pickle.loads(pickle.dumps(callback)).key == callback.key


def deep(opening: Callable[[Any], Any]) -> Any:
    inner: Any = 1
    for _ in range(DEEP):
        inner = opening(inner)
    return inner


OPENINGS: list[Callable[[Any], Any]] = [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)]


@pytest.mark.parametrize("opening", OPENINGS, ids=["lists", "mappings", "tuples"])
def test_depth_in_every_place_of_a_mapping(opening: Callable[[Any], Any]) -> None:
    value = deep(opening)

    def put(into: Any) -> Any:
        if isinstance(into, dict):
            mapping = cast("dict[str, Any]", into)
            return {key: put(inner) for key, inner in mapping.items()}
        return value if into == MARK else into

    for changed in places(PAYLOAD)[1:]:
        with pytest.raises(momopay.InvalidCallbackError):
            momopay.parse_callback(put(changed))
