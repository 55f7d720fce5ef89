"""What the fuzz tests draw from, and how many examples: a long run sets FUZZ_EXAMPLES=1000000 in the environment."""

import json
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from hostile.endpoints import MARK, places

fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "25")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,  # a long run draws other examples each time
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The settings of a fuzz test. A failure prints what replays it."""

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=20)
    | st.sampled_from(["", "t-1", "SUCCESS", "FAILED", "INSUFFICIENT_FUNDS", "2026-01-05T09:00:00Z", "1e999999999", 0])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, whole: Any) -> Any:
    """Draw the same JSON with one to three places changed, dropped, or added to."""

    def unmarked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in pairs if value != MARK}

    for _ in range(draw(st.integers(1, 3))):
        marked = json.dumps(draw(st.sampled_from(places(whole))))
        changed = marked.replace(json.dumps(MARK), json.dumps(draw(JSON | st.just(MARK))))
        whole = json.loads(changed, object_pairs_hook=unmarked)  # what is still marked is dropped
    return whole


@st.composite
def scratched(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw the same bytes with some overwritten, dropped, doubled or cut off."""
    body = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(body) - 1, 0)))
        length = draw(st.integers(0, 8))
        kind = draw(st.sampled_from(["write", "drop", "double", "cut"]))
        if kind == "write":
            body[at : at + length] = draw(st.binary(max_size=8))
        elif kind == "drop":
            del body[at : at + length]
        elif kind == "double":
            body[at:at] = body[at : at + length]
        else:
            del body[at:]
    return bytes(body)
