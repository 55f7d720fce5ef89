"""The classes of events; tests/core/test_events.py tests what is reported."""

import dataclasses
import pickle
import typing
from typing import Any

import pytest

from in_turn import in_turn
from momopay import events


@in_turn("name", sorted(set(events.__all__) - {"CallbackOutcome", "Event"}))
def test_events_are_frozen_and_their_hints_resolve(name: str) -> None:
    kind: Any = getattr(events, name)
    assert set(typing.get_type_hints(kind)) >= {"operation", "call_id", "at"}
    event = kind(**dict.fromkeys((field.name for field in dataclasses.fields(kind)), 1))
    assert not hasattr(event, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.operation = "another"
    assert pickle.loads(pickle.dumps(event)) == event
    assert name == "BaseEvent" or kind in typing.get_args(events.Event)
