"""What is small on the wire stays small in memory, and quick: the system measures it in a process of its own.

Which encodings are read is tested in tests/transport/test_attempt.py.
"""

import gzip
import json
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path

import pytest

import wire
from hostile.endpoints import PAGE
from wire import MEBIBYTE

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
    small = wire.answers(200, wire.envelope(PAGE))  # so that what is loaded is loaded
    with wire.serve(small, *steps) as server:
        command = [sys.executable, "-W", "ignore", "-c", CHILD, mode, server.base_url, str(len(steps) + 1)]
        done = subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=Path(wire.__file__).parent)
        assert len(server.requests) == len(steps) + 1
    start, *found = json.loads(done.stdout)
    began = [each[2] for each in (start, *found)]
    return [(name, peak - start[1], at - before) for (name, peak, at), before in zip(found, began, strict=False)]


@cache
def blanks() -> bytes:
    """A page and 320 MiB of blanks behind it, compressed."""
    deflate = zlib.compressobj(1, wbits=15)
    mebibyte = b" " * MEBIBYTE
    pieces = [deflate.compress(wire.envelope(PAGE)), *(deflate.compress(mebibyte) for _ in range(320))]
    return b"".join([*pieces, deflate.flush()])


def filled(unit: bytes) -> bytes:
    """A page of 8 MiB."""
    count = (8 * MEBIBYTE - 1000) // (len(unit) + 1)
    return wire.envelope({**PAGE, "items": "ITEMS"}).replace(b'"ITEMS"', b"[" + b",".join([unit] * count) + b"]")


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
