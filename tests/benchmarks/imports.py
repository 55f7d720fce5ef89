"""What importing costs: CPU inside fresh interpreters, beyond their own start, with bytecode caches warm."""

from __future__ import annotations

from functools import partial

from benchmarks.measure import Row, Scale, take_turns
from benchmarks.peers import IMPORTS
from benchmarks.processes import KEY, told_by

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
_PYDANTIC = "from pydantic import BaseModel"
_FLOOR = f"import httpx, tenacity; {_PYDANTIC}"
_STATEMENTS = {
    "momopay": "import momopay",
    "callbacks": "from momopay import parse_callback",
    "client": _BUILD,
    "resource": f"{_BUILD}; client.transactions",
    "pydantic": _PYDANTIC,
    # pydantic loads its fields and types only once there is a model, and httpx httpcore once there is a client.
    "model": f"{_PYDANTIC}\nclass Record(BaseModel, defer_build=True):\n    name: str",
    "floor": _FLOOR,
    "sketch": f"{_FLOOR}\nclass Record(BaseModel):\n    name: str\nclient = httpx.Client(verify=False)",
}
_NAMES = {
    "pydantic": "pydantic's BaseModel",
    "model": "a BaseModel, deferred",
    "floor": "httpx, tenacity, pydantic",
    "sketch": "those, a model, a client",
}


def measure(scale: Scale) -> list[Row]:
    """Time each import, and hold memory against the floor where the system tells it."""
    codes = {name: _CHILD.format(statement=statement) for name, statement in (_STATEMENTS | IMPORTS).items()}
    taken = take_turns({name: partial(told_by, code) for name, code in codes.items()}, scale)
    cost = {name: [figures[0] for figures in rounds] for name, rounds in taken.items()}

    def row(work: str, side: str, other: str, goal: float | None = None) -> Row:
        return Row(work, "ms CPU", cost[side], _NAMES[other], cost[other], goal)

    rows = [
        row("import momopay", "momopay", "floor", 0.05),
        # No pydantic model costs less than the second one.
        row("from momopay import parse_callback", "callbacks", "pydantic"),
        row("from momopay import parse_callback", "callbacks", "model", 1.05),
        row("import, build a client", "client", "floor", 1.10),
        row("import, client.transactions", "resource", "floor"),
        row("import, client.transactions", "resource", "sketch"),
    ]
    rows += [Row("import", "ms CPU", cost[name], _NAMES["floor"], cost["floor"], side=name) for name in IMPORTS]
    if all(len(figures) > 1 for rounds in taken.values() for figures in rounds):
        peak = {name: [figures[1] for figures in rounds] for name, rounds in taken.items()}
        for work, side, other, goal in (
            ("build a client: memory", "client", "floor", 3.0),
            ("client.transactions: memory", "resource", "sketch", None),
        ):
            rows.append(Row(work, "MB", peak[side], _NAMES[other], peak[other], goal, is_difference=True))
    return rows
