"""What fresh interpreters pay: for importing, with bytecode caches warm, and until the first answer, on loopback."""

from functools import partial

from benchmarks.answers import ID
from benchmarks.measure import Row, Scale, take_turns
from benchmarks.processes import AUTHORIZATION, KEY, serving, told_by, wall_and_cpu_until_told

_CHILD = """
import time
begun = time.process_time()
{statement}
print((time.process_time() - begun) * 1e3)
"""
_STATEMENTS = {
    "momopay": "import momopay",
    "callbacks": "from momopay import parse_callback",
    "client": f"import momopay; client = momopay.Client({KEY!r}, base_url='http://127.0.0.1:1/v1')",
    # pydantic loads its fields and types only once there is a model.
    "a deferred BaseModel": "from pydantic import BaseModel\nclass Record(BaseModel, defer_build=True):\n    name: str",
    "httpx, tenacity, pydantic": "import httpx, tenacity; from pydantic import BaseModel",
}
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
    codes = {name: _CHILD.format(statement=statement) for name, statement in _STATEMENTS.items()}
    cost = take_turns({name: partial(told_by, code) for name, code in codes.items()}, scale)
    return [
        Row(work, "ms CPU", cost[side], other, cost[other], goal)
        for work, side, other, goal in (
            ("import momopay", "momopay", "httpx, tenacity, pydantic", 0.02),
            ("from momopay import parse_callback", "callbacks", "a deferred BaseModel", 1.10),
            ("import, build a client", "client", "httpx, tenacity, pydantic", 0.35),
        )
    ]


def measure_cold_start(scale: Scale) -> list[Row]:
    """Time whole processes from outside: what a script or a serverless call waits for."""
    with serving("answers.py") as url:
        codes = {"momopay": _MOMOPAY, "httpx": _HTTPX}
        filled = {name: code.format(url=url, key=KEY, headers=AUTHORIZATION, id=ID) for name, code in codes.items()}
        taken = take_turns({name: partial(wall_and_cpu_until_told, code) for name, code in filled.items()}, scale)
    rows: list[Row] = []
    for place, unit in enumerate(("ms wall", "ms CPU")):
        ours, theirs = ([each[place] for each in taken[name]] for name in codes)
        rows.append(Row("cold start to first answer", unit, ours, "httpx", theirs, 1.45))
    return rows
