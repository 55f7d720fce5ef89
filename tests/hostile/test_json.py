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


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("call", SHAPES, ids=str)
def test_oddities_in_every_place_of_a_success(drive: Drive, call: Call, odd: str) -> None:
    answer: list[Any] = [200, b""]
    driver, sent = answering(drive, answer)
    for changed in places(json.loads(success(call.data))):
        answer[1] = json.dumps(changed).replace(f'"{MARK}"', odd).encode()
        check(driver, call, answer, sent)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("call", [PAYOUT, READ], ids=lambda call: call.name)
def test_oddities_in_every_place_of_a_refusal(drive: Drive, call: Call, odd: str) -> None:
    answer: list[Any] = [0, b""]
    driver, sent = answering(drive, answer)
    for status in (200, 409, 500):
        for changed in places(json.loads(refusal("INSUFFICIENT_FUNDS"))):
            answer[:] = [status, json.dumps(changed).replace(f'"{MARK}"', odd).encode()]
            check(driver, call, answer, sent)


REFUSED = refusal("INSUFFICIENT_FUNDS").decode()
PAID = success(PAYOUT.data).decode()
UNCLEAR = {
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
    "refused_with_a_transaction": refusal("INSUFFICIENT_FUNDS", data={"transactionId": "t-1"}),
    "refused_with_a_transaction_in_snake_case": refusal("INSUFFICIENT_FUNDS", data={"transaction_id": "t-1"}),
    "refused_with_a_transaction_by_another_name": refusal("INSUFFICIENT_FUNDS", data=[{"id": 7}]),
    "code_of_a_mebibyte": refusal("X" * 1024 * 1024),
    "code_is_empty": refusal(""),
    "code_is_a_number": refusal(409),
    "code_is_a_list": refusal(["INSUFFICIENT_FUNDS"]),
    "success_is_zero": REFUSED.replace("false", "0").encode(),
    "success_is_null": REFUSED.replace("false", "null").encode(),
    "success_is_text": REFUSED.replace("false", '"false"').encode(),
    "success_is_missing": b'{"error":' + REFUSED.split('"error":')[1].encode(),
    "error_is_text": b'{"success": false, "error": "INSUFFICIENT_FUNDS"}',
    "error_is_a_list": b'{"success": false, "error": [{"code": "INSUFFICIENT_FUNDS"}]}',
    "list_of_refusals": f"[{REFUSED}]".encode(),
    "refusal_as_text": json.dumps(REFUSED).encode(),
}


@pytest.mark.parametrize("status", [200, 409])
@pytest.mark.parametrize("body", UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_almost_a_refusal_refuses_nothing(drive: Drive, status: int, body: bytes) -> None:
    driver, sent = answering(drive, [status, body])
    found = outcome(driver, PAYOUT)
    if status == 200 and isinstance(found, momopay.Payout):
        assert json.loads(body)["success"] is True  # the same name twice: the last one counts, here as everywhere
    else:
        assert type(found) is momopay.OutcomeUnknownError
    assert len(sent) == 1


def test_the_refusal_that_those_resemble_is_definite(drive: Drive) -> None:
    driver, _ = answering(drive, [409, REFUSED.encode()])
    assert type(outcome(driver, PAYOUT)) is momopay.InsufficientFundsError


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
