"""Responses whose head, JSON or size is hostile: a typed error or a usable record, and no payment taken for refused.

Which encodings are read is tested in tests/transport/test_attempt.py.
"""

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import momopay
import wire
from bodies import encoded, envelope, refusal
from drivers import Drive
from fuzz.test_fuzz import parsed
from hostile import endpoints
from hostile.endpoints import BALANCE, MARK, PAGE, PAYOUT, READ, Call, Responses, outcome, places
from models.kit import PAYLOAD
from wire import MEBIBYTE

BODY = b"<body>"
"""Is replaced by the normal response to a payout."""
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: <length>\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"

NO_ANSWER = {
    "silence": b"",
    "no_status_line": BODY,
    "junk": b"\x00\xff\r\n\r\n",
    "http_2": b"HTTP/2 200 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "status_of_zero": b"HTTP/1.1 000 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "status_above_all": b"HTTP/1.1 999 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "switching_protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + BODY,
    "informational_and_no_more": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 1000,
    "length_below_zero": OK + b"Content-Length: -1\r\n\r\n" + BODY,
    "length_without_end": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + BODY,
    "two_lengths": OK + LENGTH + b"Content-Length: 3\r\n\r\n" + BODY,
    "length_too_long": OK + b"Content-Length: 100000\r\n\r\n" + BODY,
    "chunk_of_no_size": OK + CHUNKED + b"zz\r\n" + BODY,
    "unknown_transfer_encoding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + BODY,
    "null_in_a_header": OK + b"X-Odd: a\x00b\r\n" + LENGTH + b"\r\n" + BODY,
    "header_of_a_mebibyte": OK + b"X-Odd: " + b"x" * wire.MEBIBYTE + b"\r\n" + LENGTH + b"\r\n" + BODY,
    "trailers_by_the_hundred_thousand": OK + CHUNKED + b"1\r\n \r\n0\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    "encoding_that_was_not_asked_for": OK + b"Content-Encoding: br\r\n" + LENGTH + b"\r\n" + BODY,
}
AN_ANSWER = {
    "no_reason": b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + BODY,
    "http_1_0_until_closed": b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
    "line_folding": OK + b"X-Odd: a\r\n b\r\n\tc\r\n" + LENGTH + b"\r\n" + BODY,
    "informational_first": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + OK + LENGTH + b"\r\n" + BODY,
    "odd_success_status": b"HTTP/1.1 299 Fine\r\n" + LENGTH + b"\r\n" + BODY,
}


def answer_with(template: bytes) -> wire.Step:
    body = encoded(envelope(PAYOUT.data))
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
SHAPES = (endpoints.STK, PAYOUT, endpoints.DELETE, endpoints.CHANNELS, endpoints.ONE_CHANNEL, endpoints.LIST, BALANCE)
"""One call for each shape of a response. Parsing knows no difference between the clients, so one of them is used."""


ANSWERS = [(call, 200, encoded(envelope(call.data))) for call in SHAPES] + [
    (call, status, encoded(refusal("INSUFFICIENT_FUNDS"))) for call in (PAYOUT, READ) for status in (200, 409, 500)
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


MOST = 384 * MEBIBYTE
"""A body of 8 MiB, and what JSON's readers and Python's objects make of it at the worst."""

CHILD = """
import json, sys, time
import httpx, momopay
from drivers import Driver

mode, base_url, times = sys.argv[1:]
driver = None if mode == "httpx" else Driver(mode, base_url=base_url, max_attempts=1)

def call():
    if driver is None:
        return str(len(httpx.get(base_url + "/transactions", trust_env=False).content))
    try:
        return repr(driver(lambda client: client.transactions.list()))
    except momopay.MomoPayError as error:
        return type(error).__name__

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

print(json.dumps([[call(), peak(), time.monotonic()] for _ in range(int(times))]))
"""


def measure(mode: str, *steps: wire.Step) -> list[tuple[str, int, float]]:
    """Return how each call ended, by how many bytes the process's peak had then grown, and after how many seconds."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process's memory is read from /proc")
    small = wire.answers(200, encoded(envelope(PAGE)))  # so that what is loaded is loaded
    with wire.serve(small, *steps) as server:
        command = [sys.executable, "-W", "ignore", "-c", CHILD, mode, server.base_url, str(len(steps) + 1)]
        done = subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=Path(wire.__file__).parent)
        assert len(server.requests) == len(steps) + 1
    start, *found = json.loads(done.stdout)
    began = [each[2] for each in (start, *found)]
    return [(name, peak - start[1], at - before) for (name, peak, at), before in zip(found, began, strict=False)]


@cache
def blanks() -> bytes:
    deflate = zlib.compressobj(1, wbits=15)
    mebibyte = b" " * MEBIBYTE
    pieces = [deflate.compress(encoded(envelope(PAGE))), *(deflate.compress(mebibyte) for _ in range(320))]
    return b"".join([*pieces, deflate.flush()])


def filled(unit: bytes) -> bytes:
    count = (8 * MEBIBYTE - 1000) // (len(unit) + 1)
    return encoded(envelope({**PAGE, "items": "ITEMS"})).replace(b'"ITEMS"', b"[" + b",".join([unit] * count) + b"]")


def compressed(encoding: str, body: bytes) -> wire.Step:
    return wire.answers(200, body, headers={"Content-Encoding": encoding}, commits=True)


@pytest.mark.parametrize("mode", ["blocking", "async"])
def test_a_bomb_takes_little_memory_and_little_time(mode: str) -> None:
    thrown = {
        "deflate": compressed("deflate", blanks()),
        "gzip of many members": compressed("gzip", gzip.compress(b"") * 1000 + blanks()),
        "gzip in gzip": compressed("gzip, gzip", gzip.compress(blanks())),
        "millions of items that are none": wire.answers(200, filled(b"1")),
        "millions of items that lack all": wire.answers(200, filled(b"{}")),
        "millions of lists beside the point": wire.answers(200, filled(b"[]").replace(b'"items"', b'"more"')),
        "millions of texts beside the point": wire.answers(200, filled(b'"ab"').replace(b'"items"', b'"more"')),
        "a million names": wire.answers(200, json.dumps(dict.fromkeys(map(str, range(600_000)))).encode()),
    }
    found = dict(zip(thrown, measure(mode, *thrown.values()), strict=True))
    assert {name: outcome for name, (outcome, _, _) in found.items()} == dict.fromkeys(found, "ProtocolError")
    assert {name: grown for name, (_, grown, _) in found.items() if grown > MOST} == {}
    assert {name: seconds for name, (_, _, seconds) in found.items() if seconds > 10} == {}


def test_the_ruler_can_tell() -> None:
    """httpx by itself inflates the bomb."""
    ((_, grown, _),) = measure("httpx", compressed("deflate", blanks()))
    assert grown > MOST
