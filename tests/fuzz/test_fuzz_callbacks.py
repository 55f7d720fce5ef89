"""Any body: a callback that can be used, the same in every form, or InvalidCallbackError."""

import json
import pickle
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import momopay
from fuzz.strategies import JSON, fuzz, mutated, scratched
from test_callbacks import PAYLOAD


def parsed(body: Any) -> momopay.Callback | None:
    try:
        callback = momopay.parse_callback(body)
    except momopay.InvalidCallbackError as error:
        assert "254712345678" not in f"{error}{error!r}"  # noqa: PT017  either is right
        return None
    assert "254712345678" not in f"{callback}{callback!r}"
    assert repr(pickle.loads(pickle.dumps(callback))) == repr(callback)  # of all fields; NaN is equal to nothing
    assert callback.key == (callback.transaction.id, callback.transaction.status)
    stated = callback.transaction
    assert stated.amount is None or stated.amount.is_finite()
    assert stated.created_at is None or stated.created_at.utcoffset() is not None
    return callback


@fuzz
@given(mutated(PAYLOAD) | JSON)
@example({**PAYLOAD, "unknown": [float("nan")]})
def test_any_json_parses_to_the_same_in_every_form(value: Any) -> None:
    text = json.dumps(value)
    found = parsed(text)
    for same in (text.encode(), bytearray(text.encode()), memoryview(text.encode())):
        assert repr(parsed(same)) == repr(found)
    if isinstance(value, dict):
        parsed(value)


@fuzz
@given(scratched(json.dumps(PAYLOAD).encode()) | st.binary(max_size=100))
def test_any_bytes_are_a_callback_or_refused(body: bytes) -> None:
    found = parsed(body)
    assert repr(parsed(memoryview(body))) == repr(found)
    parsed(body.decode("latin-1"))
