"""What a receiver responds, what it handles, what it settles, and what it releases when it is cancelled."""

import asyncio
import json
import logging
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

import momopay
from events_kit import Watcher
from in_turn import in_turn
from integrations import kit
from integrations.apps import APPS
from integrations.kit import BODY, CALLBACK, QUERY, SIGNER, Handler, Receive, blocking, handle_later, to_receiver
from journal.kit import PHONE, callback_body, execute, found, just_before, payout, put, put_collection, state_of
from momopay import BudgetExhaustedError, Callback, CallbackError, CallbackMismatchError, Journal, JournalState
from momopay._core.handlers import is_async
from momopay.events import CallbackReceived, JournalChanged
from momopay.integrations._receiver import CallbackReceiver

each_way = pytest.mark.parametrize("way", [blocking, kit.awaited, kit.threaded])
OTHERS = SIGNER.url("https://shop.example/momo", reference="SAL-2").partition("?")[2]
FORGED = [
    *("", QUERY[:-1] + ("0" if QUERY[-1] != "0" else "1"), f"{QUERY}&{QUERY}", "momo_token=%C3%A9"),
    momopay.CallbackSigner("x" * 16).url("https://x.example/", reference="SAL-1").partition("?")[2],
    *(OTHERS, OTHERS + "&reference=SAL-1"),  # the reference of another one, and this one in clear
]


def received(body: bytes | dict[str, Any], *options: Any, query: str = QUERY) -> tuple[int, list[Callback]]:
    """Return the status of the response to a callback, and the callbacks that were handled."""
    handler = Handler()
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return blocking(handler, *options)("POST", query, sent), handler.calls


@each_way
@in_turn("query", FORGED)
def test_a_forged_url_is_403(way: Receive, query: str, caplog: pytest.LogCaptureFixture) -> None:
    handler = Handler()
    assert way(handler, SIGNER, None)("POST", query, BODY) == 403
    assert way(handler, SIGNER, None)("POST", query, b"not even a callback") == (400 if OTHERS in query else 403)
    assert handler.calls == []
    assert "a callback was refused: " in caplog.text
    assert way(handler, SIGNER, None)("POST", QUERY, BODY) == 200  # the genuine one is accepted


def test_a_reference_in_another_unicode_form_is_the_same(journal: Journal) -> None:
    composed, decomposed = normalize("NFC", "Café-1"), normalize("NFD", "Café-1")
    for signed, stated, with_journal in ((composed, decomposed, None), (decomposed, composed, journal)):
        query = SIGNER.url("https://shop.example/momo", reference=signed).partition("?")[2]
        assert received(callback_body("x", external_reference=stated), SIGNER, with_journal, query=query)[0] == 200


@in_turn("reference", ["SAL-2", "", None])
def test_a_callback_of_another_reference_than_its_url_is_403(reference: str | None) -> None:
    assert received(callback_body("x", external_reference=reference), SIGNER, None) == (403, [])


def test_the_id_of_a_callback_writes_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    body = callback_body("SAL-1", id=f"x\nCRITICAL {PHONE}")
    assert blocking(Handler(CallbackError("no")), None, None)("POST", "", json.dumps(body).encode()) == 503
    assert "x\\nCRITICAL 2547*****678" in caplog.text


@each_way
@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (RuntimeError(f"no such order for {PHONE}, says pk_live_8f3a"), 500),
        *((CallbackError("do not act on it"), 503), (momopay.InvalidCallbackError("not ours"), 503)),
        (CallbackMismatchError("too early", transaction_id="x", fields=["status"]), 503),
        (BudgetExhaustedError("no slot", retry_after=3), 503),
        (momopay.ForgedCallbackError("signed by another"), 403),
    ],
)
def test_a_callback_whose_handler_failed_comes_again(
    way: Receive, trouble: Exception, status: int, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "momopay")
    put(journal, "SAL-1", JournalState.UNKNOWN)
    handler = Handler(trouble)
    receive = way(handler, SIGNER, journal)
    assert receive("POST", QUERY, BODY) == status
    assert state_of(journal, "SAL-1") is JournalState.UNKNOWN
    assert [receive("POST", QUERY, BODY) for _ in range(2)] == [200, 200]
    assert len(handler.calls) == 2  # the failed one and its repeat; the third is acknowledged alone
    assert state_of(journal, "SAL-1") is JournalState.ACCEPTED
    assert found(journal, "SAL-1").transaction_id == CALLBACK.transaction_id
    assert CALLBACK.transaction_id in caplog.text
    assert PHONE not in caplog.text
    if status == 500:
        assert "RuntimeError: no such order for 2547*****678, says pk_live_*****\n" in caplog.text
        assert "raise self._troubles.pop(0)" in caplog.text


LONG = "order-2026-11-22-0042"
LONG_QUERY = SIGNER.url("https://shop.example/momo", reference=LONG).partition("?")[2]


def order_body(reference: str | None) -> dict[str, Any]:
    body: dict[str, Any] = callback_body(reference or "", f"{LONG}-0", type="STK", external_reference=reference)
    return body


@pytest.fixture
def long_order(journal: Journal) -> Journal:
    """An order whose reference is too long for the service, which has a token in its place."""
    put_collection(journal, LONG, 10)
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'J2PX4MQ7KD5A'")
    return journal


def test_a_url_signed_for_an_order_admits_the_reference_that_the_service_has(long_order: Journal) -> None:
    status, handled = received(order_body("J2PX4MQ7KD5A"), SIGNER, long_order, query=LONG_QUERY)
    assert (status, len(handled)) == (200, 1)


@in_turn("reference", ["J2PX4MQ7KD5B", "SAL-1", "", None])
def test_a_url_signed_for_an_order_admits_no_other_reference(long_order: Journal, reference: str | None) -> None:
    for query in (LONG_QUERY, OTHERS):  # the other one is of no order
        assert received(order_body(reference), SIGNER, long_order, query=query) == (403, [])


def test_a_url_signed_for_an_order_admits_no_payout(long_order: Journal) -> None:
    put(long_order, "J2PX4MQ7KD5A", JournalState.ACCEPTED)
    body = callback_body("J2PX4MQ7KD5A", found(long_order, "J2PX4MQ7KD5A").transaction_id or "")
    assert received(body, SIGNER, long_order, query=LONG_QUERY) == (403, [])


def test_a_callback_that_contradicts_its_entry_reaches_no_handler_without_a_signer_either(journal: Journal) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    assert received(callback_body("SAL-1", amount=11), None, journal, query="") == (503, [])


def test_a_callback_without_a_signer_settles_nothing(journal: Journal) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    assert received(BODY, None, journal) == (200, [CALLBACK])
    assert state_of(journal, "SAL-1") is JournalState.UNKNOWN


def test_another_body_under_a_key_that_was_handled_settles_nothing(journal: Journal) -> None:
    assert received(BODY, SIGNER, journal) == (200, [CALLBACK])
    put(journal, "SAL-2", JournalState.REFUSED)
    lie = callback_body("SAL-2")  # the id and status of the first
    assert received(lie, SIGNER, journal, query=OTHERS) == (200, [])
    assert state_of(journal, "SAL-2") is JournalState.REFUSED


@each_way
@pytest.mark.parametrize(("table", "state"), [("payments", JournalState.UNKNOWN), ("callbacks", JournalState.ACCEPTED)])
def test_a_callback_survives_a_full_disk(way: Receive, table: str, state: JournalState, journal: Journal) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    fails = "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    execute(journal, f"CREATE TRIGGER full BEFORE UPDATE ON momopay_{table} {fails}")
    handler = Handler()
    receive = way(handler, SIGNER, journal)
    assert receive("POST", QUERY, BODY) == 503
    assert (len(handler.calls), found(journal, "SAL-1").state) == (1, state)
    execute(journal, "DROP TRIGGER full")
    assert [receive("POST", QUERY, BODY) for _ in range(2)] == [200, 200]
    assert (len(handler.calls), found(journal, "SAL-1").state) == (2, JournalState.ACCEPTED)


SHORT = {
    "without amount": {"amount": None},
    "without phone": {"phone_number": None},
    "of a collection": {"type": "STK"},
    "without all three": {"amount": None, "phone_number": None, "type": None, "created_at": None, "updated_at": None},
}


@pytest.mark.parametrize("fields", SHORT.values(), ids=SHORT)
def test_a_callback_without_the_whole_payout_settles_nothing(fields: dict[str, Any], journal: Journal) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    status, handled = received(callback_body("SAL-1", **fields), SIGNER, journal)
    assert (status, len(handled)) == (200, 1)
    assert state_of(journal, "SAL-1") is JournalState.UNKNOWN


@pytest.mark.parametrize("fields", [{"amount": 11}, {"phone_number": "254712345679"}, {"amount": 11, "type": None}])
def test_a_signed_callback_that_contradicts_its_entry_is_not_handled(fields: dict[str, Any], journal: Journal) -> None:
    entry = put(journal, "SAL-1", JournalState.ACCEPTED, transaction_id="the-id")
    assert received(callback_body("SAL-1", **fields), SIGNER, journal) == (503, [])
    assert found(journal, "SAL-1") == entry
    assert received(BODY, SIGNER, journal) == (200, [CALLBACK])


def test_a_signed_callback_of_the_transaction_of_another_reference_is_refused(journal: Journal) -> None:
    entry = put(journal, "SAL-2", JournalState.ACCEPTED, transaction_id="the-id")
    assert received(BODY, SIGNER, journal) == (503, [])
    assert found(journal, "SAL-2") == entry


def test_the_receipt_of_a_signed_callback_is_kept(journal: Journal) -> None:
    put(journal, "SAL-1", JournalState.ACCEPTED, transaction_id="the-id")
    assert received(callback_body("SAL-1", momo_receipt="QK12", type=None), SIGNER, journal)[0] == 200
    assert journal.by_receipt("QK12") == (entry := found(journal, "SAL-1"))
    assert entry.status == "SUCCESS"


def test_a_receipt_is_kept_if_a_sweep_handled_the_end_first(journal: Journal) -> None:
    put(journal, "SAL-1", JournalState.ACCEPTED, transaction_id="the-id")
    journal.settle(payout("SAL-1"))
    assert journal.first_seen(payout("SAL-1"))
    for receipt, signer in (("forged", None), ("QK12", SIGNER), ("another", SIGNER)):  # without one, it adds nothing
        assert received(callback_body("SAL-1", momo_receipt=receipt), signer, journal) == (200, [])
    assert found(journal, "SAL-1").receipt == "QK12"


class HandleLater:
    async def __call__(self, callback: Callback) -> None:
        await handle_later(callback)


@pytest.mark.parametrize(
    "handler", [handle_later, HandleLater(), partial(handle_later)], ids=["def", "call", "partial"]
)
def test_what_is_async_is_awaited(handler: Any, journal: Journal) -> None:
    assert is_async(handler)
    assert asyncio.run(to_receiver(handler, journal)()) == 200
    assert not journal.first_seen(CALLBACK)


def test_a_result_that_must_be_awaited_is_not_acknowledged(caplog: pytest.LogCaptureFixture, journal: Journal) -> None:
    receiver = CallbackReceiver(lambda callback: handle_later(callback), None, journal)  # noqa: PLW0108  not async itself
    assert receiver.receive("POST", "", BODY) == 500
    assert asyncio.run(receiver.receive_async("POST", "", BODY)) == 500
    assert "make it an async def" in caplog.text
    assert journal.first_seen(CALLBACK)


def test_a_cancelled_handler_releases_its_callback(journal: Journal) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handle(_callback: Callback) -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(to_receiver(handle, journal)())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    threads = list[threading.Thread]()
    with just_before("DELETE", journal, lambda: threads.append(threading.current_thread())):
        asyncio.run(main())
    assert threads != [threading.main_thread()]  # as it would be if the garbage collection released it
    assert journal.first_seen(CALLBACK)


def test_cancelled_before_the_handler_nothing_is_handled_or_held(journal: Journal, tmp_path: Path) -> None:
    handler = Handler()

    async def main() -> None:
        with kit.locked(tmp_path / "shop.db"):
            task = asyncio.create_task(to_receiver(handler.handle_async, journal)())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()  # the thread is waited for, so that it leaves nothing behind
        with pytest.raises(asyncio.CancelledError):
            await task

    assert journal.get("-") is None  # creates the tables before the database is locked
    asyncio.run(main())
    assert handler.calls == []
    assert journal.first_seen(CALLBACK)


def test_cancelled_after_the_handler_what_was_handled_counts(journal: Journal, tmp_path: Path) -> None:
    async def main() -> None:
        lock, handled = kit.locked(tmp_path / "shop.db"), asyncio.Event()

        async def handle(_callback: Callback) -> None:
            lock.__enter__()
            handled.set()

        task = asyncio.create_task(to_receiver(handle, journal)())
        await handled.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.02)
        assert not task.done()
        lock.__exit__(None, None, None)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not journal.first_seen(CALLBACK)


def test_a_handler_that_blocks_ends_before_a_cancellation_and_counts(journal: Journal) -> None:
    begun, go = threading.Event(), threading.Event()

    def handle(_callback: Callback) -> None:
        begun.set()
        assert go.wait(60)

    async def main() -> None:
        task = asyncio.create_task(to_receiver(handle, journal)())
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not journal.first_seen(CALLBACK)


@pytest.fixture
def seen() -> Watcher:
    return Watcher()


@each_way
@pytest.mark.parametrize("known", [None, CALLBACK.transaction_id], ids=["unknown", "accepted"])
def test_the_events_of_a_callback(way: Receive, journal: Journal, seen: Watcher, known: str | None) -> None:
    put(journal, "SAL-1", before := JournalState.ACCEPTED if known else JournalState.UNKNOWN, transaction_id=known)
    receive = way(Handler(), SIGNER, journal, seen)
    assert receive("POST", QUERY, BODY) == 200
    changed, received = seen.events
    assert isinstance(changed, JournalChanged)
    states = changed.old_state, changed.new_state, changed.transaction_status
    assert (changed.kind, changed.reference, *states) == ("PAYOUT", "SAL-1", before, "ACCEPTED", "SUCCESS")
    assert isinstance(received, CallbackReceived)
    assert (received.outcome, received.status, received.error, received.reference) == ("accepted", 200, None, "SAL-1")
    stated = received.transaction_id, received.transaction_type, received.transaction_status
    assert stated == (CALLBACK.transaction_id, "B2C", "SUCCESS")
    assert received.seconds > 0
    assert {each.operation for each in seen.events} == {"callbacks.receive"}
    assert changed.call_id == received.call_id
    seen.take()
    assert receive("POST", QUERY, BODY) == 200
    assert seen.take() == ["CallbackReceived duplicate SUCCESS"]


@each_way
def test_the_events_of_refusals(way: Receive, journal: Journal, seen: Watcher) -> None:
    put(journal, "SAL-1", JournalState.UNKNOWN)
    handler = Handler()
    receive = way(handler, SIGNER, journal, seen)
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
    assert (receive("POST", QUERY, BODY), handler.calls) == (200, [])  # handled elsewhere


@each_way
def test_the_events_of_a_handler_that_fails(way: Receive, journal: Journal, seen: Watcher) -> None:
    mismatch = CallbackMismatchError("another amount", transaction_id="x", fields=["amount"])
    receive = way(Handler(ValueError(PHONE), mismatch, CallbackError("do not act on it")), SIGNER, journal, seen)
    assert [receive("POST", QUERY, BODY) for _ in range(4)] == [500, 503, 503, 200]
    assert seen.take() == [
        "CallbackReceived failed ValueError",
        "CallbackReceived mismatch CallbackMismatchError",
        "CallbackReceived failed CallbackError",  # not busy: no other call has it
        "CallbackReceived accepted SUCCESS",
    ]


def test_no_phone_is_shown_that_a_forger_states(seen: Watcher) -> None:
    forged = json.dumps(callback_body(PHONE, PHONE, PHONE)).encode()
    assert blocking(Handler(ValueError("unknown")), None, None, seen)("POST", "", forged) == 500
    (event,) = seen.of(CallbackReceived)
    assert (event.reference, event.transaction_id, event.transaction_status) == ("2547*****678", "2547*****678", None)
    assert PHONE not in seen.texts()


def test_a_cancelled_request_is_reported(seen: Watcher) -> None:
    async def handle_forever(_callback: Any) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        receiver = CallbackReceiver(handle_forever, None, None, seen)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receiver.receive_async("POST", "", BODY), 0.05)

    asyncio.run(main())
    (event,) = seen.of(CallbackReceived)
    assert (event.outcome, event.status, event.error) == ("failed", None, asyncio.CancelledError)


@in_turn("app", APPS)
def test_each_adapter_takes_an_observer(app: Any) -> None:
    app(handle_later, on_event=Watcher())
    with pytest.raises(momopay.ConfigurationError, match="on_event"):
        app(handle_later, on_event=7)
