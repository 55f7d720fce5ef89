"""An observer that remembers, and what the tests say about events."""

from dataclasses import fields
from typing import Any

from momopay.events import AttemptEnded, BudgetWaited, CallEnded, CallStarted, Event, JournalChanged, RetryScheduled


class Watcher:
    """Remembers events; raises what it is given for the classes that it is given it for."""

    def __init__(self, **troubles: BaseException) -> None:
        self.events: list[Event] = []
        self.troubles = troubles

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        trouble = self.troubles.get(type(event).__name__, self.troubles.get("every"))
        if trouble is not None:
            raise trouble

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def take(self) -> list[str]:
        events, self.events = self.events, []
        return [describe(event) for event in events]

    def changes(self) -> list[str]:
        return [str(each).removeprefix("JournalChanged ") for each in map(describe, self.of(JournalChanged))]

    def texts(self) -> str:
        return "\n".join(
            text
            for event in self.events
            for text in [repr(event), *(f"{getattr(event, each.name)}" for each in fields(event))]
        )


def describe(event: Event) -> str:
    """Describe an event by what a test of its order needs."""
    error = getattr(event, "error", None)
    words: list[object] = [type(event).__name__]
    match event:
        case CallStarted() | CallEnded():
            words.append(event.operation)
        case AttemptEnded() | RetryScheduled():
            words += [event.method, event.route, event.attempt, event.status]
        case BudgetWaited():
            words.append(event.lane)
        case JournalChanged():
            words += [event.old_state, "->", event.new_state, event.transaction_status]
        case _:
            words += [getattr(event, name, None) for name in ("outcome", "transaction_status") if hasattr(event, name)]
    if error is not None:
        words.append(error.__name__)
    return " ".join(str(word) for word in words if word is not None)
