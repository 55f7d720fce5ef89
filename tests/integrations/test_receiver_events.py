"""What a callback view reports of each request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from events_kit import Watcher
from integrations.apps import APPS
from integrations.kit import BODY, CALLBACK, QUERY, SIGNER, Handler, Receive, awaited, blocking, handle_later, threaded
from journal.kit import PHONE, callback_body, put
from momopay import CallbackError, CallbackMismatchError, ConfigurationError, Journal, JournalState
from momopay.events import CallbackReceived, JournalChanged
from momopay.integrations._receiver import CallbackReceiver

each_way = pytest.mark.parametrize("way", [blocking, awaited, threaded])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'payouts.db'}"


@pytest.fixture
def seen() -> Watcher:
    return Watcher()


@each_way
def test_a_callback_and_its_repeat(way: Receive, journal: Journal, seen: Watcher) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    receive = way(Handler(), SIGNER, journal, seen)
    assert receive("POST", QUERY, BODY) == 200
    changed, received = seen.events
    assert isinstance(changed, JournalChanged)
    assert (changed.kind, changed.reference, changed.old_state, changed.new_state, changed.transaction_status) == (
        "PAYOUT",
        "SAL-1",
        "UNKNOWN",
        "ACCEPTED",
        "SUCCESS",
    )
    assert isinstance(received, CallbackReceived)
    assert (received.outcome, received.status, received.error, received.reference) == ("accepted", 200, None, "SAL-1")
    assert (received.transaction_id, received.transaction_type, received.transaction_status) == (
        CALLBACK.transaction_id,
        "B2C",
        "SUCCESS",
    )
    assert received.seconds > 0
    assert {each.operation for each in seen.events} == {"callbacks.receive"}
    assert changed.call_id == received.call_id
    seen.take()
    assert receive("POST", QUERY, BODY) == 200
    assert seen.take() == ["CallbackReceived duplicate SUCCESS"]


@each_way
def test_refusals(way: Receive, journal: Journal, seen: Watcher) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    receive = way(Handler(), SIGNER, journal, seen)
    receive("GET", QUERY, BODY)
    assert seen.take() == []
    receive("POST", "", BODY)
    receive("POST", QUERY, b"{")
    other_amount = json.dumps(callback_body("SAL-1", amount=11)).encode()
    receive("POST", QUERY, other_amount)
    with journal.handling(CALLBACK):
        receive("POST", QUERY, BODY)
    assert [each.status for each in seen.of(CallbackReceived)] == [403, 400, 503, 503]
    assert seen.take() == [
        "CallbackReceived forged ForgedCallbackError",
        "CallbackReceived invalid InvalidCallbackError",
        "CallbackReceived mismatch CallbackMismatchError",
        "CallbackReceived busy CallbackError",
    ]


@each_way
def test_a_handler_that_fails(way: Receive, seen: Watcher) -> None:
    mismatch = CallbackMismatchError("another amount", transaction_id="x", fields=["amount"])
    receive = way(Handler(ValueError(PHONE), mismatch), None, None, seen)
    assert [receive("POST", "", BODY) for _ in range(3)] == [500, 503, 200]
    assert seen.take() == [
        "CallbackReceived failed ValueError",
        "CallbackReceived mismatch CallbackMismatchError",
        "CallbackReceived accepted SUCCESS",
    ]


@each_way
def test_a_callback_error_of_the_handler_does_not_report_another_call(
    way: Receive, journal: Journal, seen: Watcher
) -> None:
    receive = way(Handler(CallbackError("do not act on it")), SIGNER, journal, seen)
    assert [receive("POST", QUERY, BODY) for _ in range(2)] == [503, 200]
    assert seen.take() == ["CallbackReceived failed CallbackError", "CallbackReceived accepted SUCCESS"]


@each_way
def test_an_observer_that_fails_changes_no_response(way: Receive, journal: Journal) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    handler, seen = Handler(), Watcher(every=ValueError("a bug"))
    assert way(handler, SIGNER, journal, seen)("POST", QUERY, BODY) == 200
    assert handler.calls == [CALLBACK]
    assert len(seen.events) == 2


def test_no_phone_is_shown_that_a_forger_states(seen: Watcher) -> None:
    forged = json.dumps(callback_body(PHONE, PHONE, PHONE)).encode()
    assert blocking(Handler(ValueError("unknown")), None, None, seen)("POST", "", forged) == 500
    (event,) = seen.of(CallbackReceived)
    assert (event.reference, event.transaction_id, event.transaction_status) == ("2547*****678", "2547*****678", None)
    assert PHONE not in seen.texts()


def test_a_cancelled_request_is_reported(seen: Watcher) -> None:
    async def main() -> None:
        receiver = CallbackReceiver(handle_forever, None, None, seen)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receiver.receive_async("POST", "", BODY), 0.05)

    asyncio.run(main())
    (event,) = seen.of(CallbackReceived)
    assert (event.outcome, event.status, event.error) == ("failed", None, asyncio.CancelledError)


async def handle_forever(_callback: Any) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("adapter", APPS)
def test_each_adapter_takes_an_observer(adapter: str) -> None:
    app, _ = APPS[adapter]
    app(handle_later, on_event=Watcher())
    with pytest.raises(ConfigurationError, match="on_event"):
        app(handle_later, on_event=7)
