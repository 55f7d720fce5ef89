"""The CPU of fresh interpreters: for importing, with bytecode caches warm, and until the first answer, on loopback."""

from functools import partial

from benchmarks.answers import ID
from benchmarks.measure import Scale, take_turns
from benchmarks.processes import AUTHORIZATION, KEY, cpu_until_the_end, serving

_STATEMENTS = {
    "momopay": "import momopay",
    "callbacks": "from momopay import parse_callback",
    "client": f"import momopay; client = momopay.Client({KEY!r}, base_url='http://127.0.0.1:1/v1')",
    # pydantic loads its fields and types only once there is a model.
    "a deferred BaseModel": "from pydantic import BaseModel\nclass Record(BaseModel, defer_build=True):\n    name: str",
    "httpx, tenacity, pydantic": "import httpx, tenacity; from pydantic import BaseModel",
}
_COLD = {
    "momopay": """
import momopay
client = momopay.Client({key!r}, base_url={url!r})
assert client.transactions.get({id!r}).status == "SUCCESS"
""",
    "httpx": """
import httpx
client = httpx.Client(base_url={url!r}, headers={headers!r}, trust_env=False)
assert client.get("/transactions/" + {id!r}).json()["data"]["status"] == "SUCCESS"
""",
}


def imports(scale: Scale) -> dict[str, list[float]]:
    timed = "import time; begun = time.process_time()\n"
    return take_turns({name: partial(cpu_until_the_end, timed + code) for name, code in _STATEMENTS.items()}, scale)


def cold_start(scale: Scale) -> dict[str, list[float]]:
    """Measure whole interpreters: what a script or a serverless call pays."""
    with serving("answers.py") as url:
        filled = {name: code.format(url=url, key=KEY, headers=AUTHORIZATION, id=ID) for name, code in _COLD.items()}
        return take_turns(
            {name: partial(cpu_until_the_end, f"begun = 0\n{code}") for name, code in filled.items()}, scale
        )
