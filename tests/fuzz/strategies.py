"""What the fuzz tests draw from, and how many examples: a long run sets FUZZ_EXAMPLES=1000000 in the environment."""

import json
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

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


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = [(key, value[key]) for key in value]  # pyright: ignore[reportUnknownVariableType]  JSON, as it comes
    if isinstance(value, list):
        inner = list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType]  as above
    return [path, *(found for key, each in inner for found in _paths(each, (*path, key)))]


def _changed(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None], new: Any) -> Any:
    copied = json.loads(json.dumps(value))
    if not path:
        return new
    place = copied
    for key in path[:-1]:
        place = place[key]
    change(place, path[-1])
    return copied


@st.composite
def mutated(draw: st.DrawFn, whole: Any) -> Any:
    """Draw the same JSON with one to three places changed, dropped, or added to."""
    value = whole
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(_paths(value)))
        new = draw(JSON)
        kind = draw(st.sampled_from(["change", "drop", "add"]))

        def change(place: Any, key: Any, kind: str = kind, new: Any = new) -> None:
            if kind == "drop":
                del place[key]
            elif kind == "add" and isinstance(place, dict):
                place[str(new)[:8]] = new
            else:
                place[key] = new

        value = _changed(value, path, change, new)
    return value


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
