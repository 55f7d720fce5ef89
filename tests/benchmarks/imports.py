"""What fresh interpreters pay: for importing, with bytecode caches warm, and until the first answer, on loopback."""

from functools import partial

from benchmarks.answers import ID
from benchmarks.measure import Row, Scale, take_turns
from benchmarks.processes import AUTHORIZATION, KEY, serving, told_by, wall_and_cpu_until_told

# /proc tells this process's own peak; getrusage would tell that of the one which started it.
_CHILD = """
import time
begun = time.process_time()
{statement}
print((time.process_time() - begun) * 1e3)
try:
    print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
except OSError:
    pass
"""
_BUILD = f"import momopay; client = momopay.Client({KEY!r}, base_url='http://127.0.0.1:1/v1')"
_FLOOR = "import httpx, tenacity; from pydantic import BaseModel"
_STATEMENTS = {
    "momopay": "import momopay",
    "callbacks": "from momopay import parse_callback",
    "client": _BUILD,
    "resource": f"{_BUILD}; client.transactions",
    # pydantic loads its fields and types only once there is a model, and httpx httpcore once there is a client.
    "model": "from pydantic import BaseModel\nclass Record(BaseModel, defer_build=True):\n    name: str",
    "floor": _FLOOR,
    "sketch": f"{_FLOOR}\nclass Record(BaseModel):\n    name: str\nclient = httpx.Client(verify=False)",
}
_NAMES = {"model": "a BaseModel, deferred", "floor": "httpx, tenacity, pydantic", "sketch": "those, a model, a client"}
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
    """Time each import, and hold memory against the floor where the system tells it."""
    codes = {name: _CHILD.format(statement=statement) for name, statement in _STATEMENTS.items()}
    taken = take_turns({name: partial(told_by, code) for name, code in codes.items()}, scale)
    cost = {name: [figures[0] for figures in rounds] for name, rounds in taken.items()}

    def row(work: str, side: str, other: str, goal: float | None = None) -> Row:
        return Row(work, "ms CPU", cost[side], _NAMES[other], cost[other], goal)

    rows = [
        row("import momopay", "momopay", "floor", 0.02),
        row("from momopay import parse_callback", "callbacks", "model", 1.10),
        row("import, build a client", "client", "floor", 0.35),
        row("import, client.transactions", "resource", "sketch"),
    ]
    if all(len(figures) > 1 for rounds in taken.values() for figures in rounds):
        peak = {name: [figures[1] for figures in rounds] for name, rounds in taken.items()}
        for work, side, other, goal in (
            ("build a client: memory", "client", "floor", 3.0),
            ("client.transactions: memory", "resource", "sketch", None),
        ):
            rows.append(Row(work, "MB", peak[side], _NAMES[other], peak[other], goal, is_difference=True))
    return rows


def measure_cold_start(scale: Scale) -> list[Row]:
    """Time whole processes from outside: what a script or a serverless call waits for."""
    with serving("answers.py") as (url,):
        codes = {"momopay": _MOMOPAY, "httpx": _HTTPX}
        filled = {name: code.format(url=url, key=KEY, headers=AUTHORIZATION, id=ID) for name, code in codes.items()}
        taken = take_turns({name: partial(wall_and_cpu_until_told, code) for name, code in filled.items()}, scale)
    rows: list[Row] = []
    for place, unit in enumerate(("ms wall", "ms CPU")):
        ours, theirs = ([each[place] for each in taken[name]] for name in codes)
        rows.append(Row("cold start to first answer", unit, ours, "httpx", theirs, 1.45))
    return rows
