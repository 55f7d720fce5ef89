"""From the start of an interpreter to the first answer, on loopback: what a script or a serverless call waits for."""

from __future__ import annotations

from functools import partial

from benchmarks.answers import ID
from benchmarks.measure import Row, Scale, take_turns
from benchmarks.peers import COLD_STARTS
from benchmarks.processes import AUTHORIZATION, KEY, serving, wall_and_cpu_until_told

_MOMOPAY = """
import momopay
client = momopay.Client({key!r}, base_url={url!r})
assert client.transactions.get({id!r}).status == "SUCCESS"
"""
_HTTPX = """
import httpx
client = httpx.Client(base_url={url!r}, headers={headers!r}, trust_env=False)
assert client.get("/transactions/" + {id!r}).json()["data"]["status"] == "SUCCESS"
"""


def measure(scale: Scale) -> list[Row]:
    """Time whole processes, from outside."""
    with serving("answers.py") as (url,):
        codes = {"momopay": _MOMOPAY, "httpx": _HTTPX, **COLD_STARTS}
        filled = {name: code.format(url=url, key=KEY, headers=AUTHORIZATION, id=ID) for name, code in codes.items()}
        sides = {name: partial(wall_and_cpu_until_told, code) for name, code in filled.items()}
        taken = take_turns(sides, scale)
    rows: list[Row] = []
    for place, unit in enumerate(("ms wall", "ms CPU")):
        mine, bare, *theirs = ([figures[place] for figures in taken[name]] for name in codes)
        rows.append(Row("cold start to first answer", unit, mine, "httpx", bare, 1.53))
        for name, its in zip(COLD_STARTS, theirs, strict=True):
            rows.append(Row("cold start to first answer", unit, its, "httpx", bare, side=name))
    return rows
