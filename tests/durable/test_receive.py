"""What a callback is answered with, what is handled and recorded, and what is released when a handler fails."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import httpx
import pytest

import momopay
from bodies import envelope, refusal, transaction
from drivers import KEY
from durable import receiving
from durable.receiving import (
    BODY,
    CALLBACK,
    QUERY,
    SIGNER,
    CallbackHandler,
    ConfirmingService,
    Receive,
    blocking,
    client_of,
    handle_later,
    record_like,
    to_receiver,
)
from events_kit import Watcher
from in_turn import in_turn
from journal.constants import ACCEPTED, PHONE, REFUSED, UNKNOWN
from journal.database_kit import before_each, execute, in_threads, just_before, locked
from journal.kit import found, put, put_collection, state_of
from journal.records import callback_body, payout
from momopay import BudgetExhaustedError, CallbackError, CallbackMismatchError, EntryKind, Journal, Payment
from momopay._core.config import is_async
from momopay.events import CallbackReceived, JournalChanged
from momopay.integrations.fastapi import callback_endpoint as fastapi_endpoint
from momopay.integrations.flask import callback_endpoint as flask_endpoint

each_way = pytest.mark.parametrize("way", [blocking, receiving.awaited, receiving.threaded])
OTHERS = SIGNER.url("https://shop.example/momo", reference="SAL-2").partition("?")[2]
FORGED = [
    *("", QUERY[:-1] + ("0" if QUERY[-1] != "0" else "1"), f"{QUERY}&{QUERY}", "momo_token=%C3%A9"),
    momopay.CallbackSigner("x" * 16).url("https://x.example/", reference="SAL-1").partition("?")[2],
    *(OTHERS, OTHERS + "&reference=SAL-1"),  # the reference of another one, and this one in clear
]


def received(body: bytes | dict[str, Any], *options: Any, query: str = QUERY) -> tuple[int, list[str]]:
    """Return the status of the response to a callback, and the ends that were handled."""
    handler = CallbackHandler()
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return blocking(handler, *options)(query, sent), handler.ends


@each_way
@in_turn("query", FORGED)
def test_a_forged_url_is_403_and_costs_no_request(way: Receive, query: str, caplog: pytest.LogCaptureFixture) -> None:
    handler, service = CallbackHandler(), ConfirmingService()
    receive = way(handler, SIGNER, None, service=service)
    assert receive(query, BODY) == 403
    assert receive(query, b"not even a callback") == (400 if OTHERS in query else 403)
    assert (handler.calls, service.requests) == ([], [])
    assert "a callback was refused: " in caplog.text or "was not handled: " in caplog.text
    assert receive(QUERY, BODY) == 200  # the genuine one is accepted


def yielding(payment: Payment) -> Any:
    yield payment


async def yielding_async(payment: Payment) -> Any:
    yield payment


class Yielding:
    def __call__(self, payment: Payment) -> Any:
        yield payment


@in_turn("handler", [yielding, yielding_async, partial(yielding), Yielding(), Yielding().__call__])
def test_a_generator_is_refused_as_a_handler(handler: Any, journal: Journal) -> None:
    """A call of it would return at once, and count as delivered, although its body had not run."""
    client = client_of(journal)
    for give in (
        lambda: client.transactions.receive("", BODY, handler),
        lambda: client.transactions.sweep(handler=handler, journal=journal),
        *(partial(view, handler, client=client) for view in (fastapi_endpoint, flask_endpoint)),
    ):
        with pytest.raises(momopay.ConfigurationError, match="generator"):
            give()


@each_way
def test_a_handler_that_returns_a_generator_has_not_run(way: Receive, journal: Journal) -> None:
    put(journal, "SAL-1", UNKNOWN)

    class Wrapped(CallbackHandler):
        def handle(self, payment: Payment) -> Any:
            return (each for each in [super().handle(payment)])

        async def handle_async(self, payment: Payment) -> Any:
            return self.handle(payment)

    assert way(Wrapped(), SIGNER, journal)(QUERY, BODY) == 500
    assert [each.what for each in journal.history("SAL-1")][-1] == "delivery failed"


@in_turn("text", [None, 7, b"momo_token=", "x" * 20_000, "\ud800"])
def test_nothing_in_a_request_raises(text: Any) -> None:
    for signer in (SIGNER, None):
        assert received(b"{", signer, None, query=text)[0] == (403 if signer else 400)
        assert blocking(CallbackHandler(), signer, None)(text, text) == (403 if signer else 400)


def test_a_reference_in_another_unicode_form_is_the_same(journal: Journal) -> None:
    composed, decomposed = normalize("NFC", "Café-1"), normalize("NFD", "Café-1")
    for signed, stated, with_journal in ((composed, decomposed, None), (decomposed, composed, journal)):
        query = SIGNER.url("https://shop.example/momo", reference=signed).partition("?")[2]
        assert received(callback_body("x", external_reference=stated), SIGNER, with_journal, query=query)[0] == 200


def test_the_id_of_a_callback_writes_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    body = callback_body("SAL-1", id=f"x\nCRITICAL {PHONE}")
    assert blocking(CallbackHandler(CallbackError("no")), None, None)("", json.dumps(body).encode()) == 503
    assert "x\\nCRITICAL 2547*****678" in caplog.text


@pytest.mark.parametrize(("code", "status"), [("INVALID_UUID", 403), ("INVALID_REQUEST", 503)])
def test_an_id_of_a_form_that_the_service_never_makes_is_a_forgery(code: str, status: int) -> None:
    service = ConfirmingService()
    service.transport = httpx.MockTransport(lambda _: httpx.Response(400, json=refusal(code)))
    assert blocking(CallbackHandler(), None, None, service=service)("", BODY) == status


# Record, then handle


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
def test_an_end_whose_handler_failed_is_recorded_and_comes_again(
    way: Receive, trouble: Exception, status: int, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "momopay")
    put(journal, "SAL-1", UNKNOWN)
    handler = CallbackHandler(trouble)
    receive = way(handler, SIGNER, journal)
    assert receive(QUERY, BODY) == status
    assert found(journal, "SAL-1").status == "SUCCESS"
    assert [receive(QUERY, BODY) for _ in range(2)] == [200, 200]
    assert len(handler.calls) == 2  # the failed one and its repeat; the third is acknowledged alone
    assert found(journal, "SAL-1").transaction_id == CALLBACK.transaction_id
    assert CALLBACK.transaction_id in caplog.text
    assert PHONE not in caplog.text
    if status == 500:
        assert "RuntimeError: no such order for 2547*****678, says pk_live_*****\n" in caplog.text
        assert "raise self._troubles.pop(0)" in caplog.text


@each_way
def test_what_a_handler_gets_is_the_payment_as_the_journal_has_it_now(way: Receive, journal: Journal) -> None:
    put(journal, "INV-1", kind=EntryKind.COLLECTION, amount=10, transaction_id="the-id")
    execute(journal, "UPDATE momopay_payments SET metadata = '{\"cart\": 7}'")
    handler, service = CallbackHandler(RuntimeError("refund it")), ConfirmingService()
    receive = way(handler, None, journal, service=service)
    order = callback_body("INV-1", type="STK", momo_receipt="QK12", transaction_fee=3)
    assert receive("", json.dumps(order).encode()) == 500
    put(journal, "INV-1-R1", refund_of="INV-1", amount=4, transaction_id="back")
    assert receive("", json.dumps(order).encode()) == 200
    before, paid = handler.calls
    assert [before.receipt, before.fee] == ["QK12", 3]
    shown: Any = paid.kind, paid.reference, paid.is_paid, paid.amount, paid.receipt, paid.fee, paid.metadata
    assert shown == (EntryKind.COLLECTION, "INV-1", True, 10, "QK12", 3, {"cart": 7})
    assert [paid.is_new, paid.refund_of, before.refunded, paid.refunded] == [False, None, 0, 4]
    assert paid.transaction is not None
    assert paid.transaction.transaction_id == "the-id"
    assert receive("", json.dumps(callback_body("INV-1-R1", "back", amount=4)).encode()) == 200
    refund = handler.calls[-1]
    assert (refund.kind, refund.reference, refund.refund_of) == (EntryKind.PAYOUT, "INV-1-R1", "INV-1")
    assert [each.in_journal for each in handler.calls] == [True] * 3
    service.records["the-id"] = transaction("the-id", "REVERSED", type="STK", amount=10, accountReference="INV-1")
    assert receive("", json.dumps(order | {"event_type": "x"}).encode()) == 200  # its SUCCESS was delivered


@each_way
def test_an_end_that_no_entry_knows_is_handled_once(way: Receive, journal: Journal) -> None:
    handler = CallbackHandler()
    receive = way(handler, None, journal)
    body = json.dumps(callback_body("METER-1", "link", type="STK", momo_receipt="QK12")).encode()
    assert [receive("", body) for _ in range(3)] == [200] * 3
    (paid,) = handler.calls
    assert (paid.kind, paid.reference, paid.metadata, paid.receipt) == (EntryKind.COLLECTION, "METER-1", None, "QK12")
    assert paid.in_journal is False
    assert journal.get("METER-1") is None
    assert [(each.kind, each.what) for each in journal.history("METER-1")] == [(EntryKind.COLLECTION, "delivered")]
    put(journal, "METER-1", kind=EntryKind.COLLECTION, transaction_id="link")  # an entry that learns of it late
    assert (receive("", body), len(handler.calls)) == (200, 1)
    assert found(journal, "METER-1", EntryKind.COLLECTION).status == "SUCCESS"


def test_without_a_journal_each_delivery_is_handled() -> None:
    handler = CallbackHandler()
    receive = blocking(handler, None, None)
    assert [receive("", BODY) for _ in range(2)] == [200, 200]
    assert handler.ends == ["the-id SUCCESS"] * 2
    assert {each.in_journal for each in handler.calls} == {False}


@pytest.mark.parametrize("by", ["record", "callback"])
def test_what_a_handler_gets_without_a_journal(by: str) -> None:
    handler, service = CallbackHandler(), ConfirmingService()
    record = transaction("the-id", "CANCELLED", type="B2C", amount=10, phone=None, accountReference=None)
    service.records["the-id"] = record | ({"resultCode": "1032"} if by == "record" else {})
    stated = callback_body(status="CANCELLED", external_reference=None, phone_number=None)
    stated["transaction"] |= {"result_code": "1032"} if by == "callback" else {}
    assert blocking(handler, None, None, service=service)("", json.dumps(stated).encode()) == 200
    (ended,) = handler.calls
    shown: Any = ended.kind, ended.reference, ended.amount, ended.phone, ended.status, ended.result_code
    assert shown == (EntryKind.PAYOUT, "", 10, "", "CANCELLED", "1032")


@each_way
@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_of_many_copies_at_once_one_is_handled(way: Receive, journal: Journal) -> None:
    put(journal, "SAL-1", UNKNOWN)
    handler = CallbackHandler(RuntimeError("the first fails"))
    receive = way(handler, SIGNER, journal)

    def deliver() -> int:
        while (status := receive(QUERY, BODY)) != 200:
            pass
        return status

    assert in_threads(20, deliver) == [200] * 20
    assert handler.ends == ["the-id SUCCESS"] * 2  # the failed one too
    told = [each.what for each in journal.history("SAL-1") if each.what.startswith("deliver")]
    assert told == ["delivery failed", "delivered"]


@pytest.mark.parametrize("first", ["callback", "sweep"])
def test_an_end_is_delivered_once_in_either_order_of_callback_and_sweep(journal: Journal, first: str) -> None:
    put(journal, "SAL-1", transaction_id="the-id")
    handler, service = CallbackHandler(), ConfirmingService()
    now = datetime.now(UTC).isoformat()
    service.records["the-id"] = transaction("the-id", "SUCCESS", type="B2C", amount=10, accountReference="SAL-1")
    service.records["the-id"] |= {"createdAt": now, "updatedAt": now}
    receive = blocking(handler, SIGNER, journal, service=service)
    with momopay.Client(
        KEY, base_url="https://api.example/v1", budget=None, transport=service.transport, journal=journal
    ) as client:
        sweep = partial(client.transactions.sweep, handler=handler.handle)
        steps: list[Callable[[], object]] = [partial(receive, QUERY, BODY), sweep]
        for step in steps if first == "callback" else steps[::-1]:
            step()
    assert handler.ends == ["the-id SUCCESS"]


DELIVERED = "INSERT ON momopay_history WHEN NEW.what = 'delivered'"
LONG = "order-2026-11-22-0042"
LONG_QUERY = SIGNER.url("https://shop.example/momo", reference=LONG).partition("?")[2]


def order_body(reference: str | None) -> dict[str, Any]:
    body: dict[str, Any] = callback_body(reference or "", f"{LONG}-0", type="STK", external_reference=reference)
    return body


def test_a_url_signed_for_an_order_admits_the_reference_that_the_service_has_alone(journal: Journal) -> None:
    """The order's own reference is too long for the service, which has a token in its place."""
    put(journal, LONG)  # a payout may have the reference of an order
    put_collection(journal, LONG, 10, ["PENDING"])
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'J2PX4MQ7KD5A' WHERE kind = 'COLLECTION'")
    of_payout = callback_body("J2PX4MQ7KD5A", put(journal, "J2PX4MQ7KD5A").transaction_id or "")
    for body in (of_payout, *map(order_body, ("J2PX4MQ7KD5B", "SAL-1"))):
        for query in (LONG_QUERY, OTHERS):  # the other one is of no order
            assert received(body, SIGNER, journal, query=query) == (403, [])
    for gap in ("", None):
        assert received(order_body(gap), SIGNER, journal, query=OTHERS) == (403, [])
    handled = [received(order_body(each), SIGNER, journal, query=LONG_QUERY) for each in (None, "J2PX4MQ7KD5A", "")]
    assert handled == [(200, [f"{LONG}-0 SUCCESS"]), (200, []), (200, [])]


@each_way
@pytest.mark.parametrize(("write", "before"), [("UPDATE ON momopay_payments", UNKNOWN), (DELIVERED, ACCEPTED)])
def test_a_callback_survives_a_full_disk(way: Receive, write: str, before: Any, journal: Journal) -> None:
    """Nothing is handled before it is recorded; what was handled and could not be marked is handled again."""
    put(journal, "SAL-1", UNKNOWN)
    execute(journal, f"CREATE TRIGGER full BEFORE {write} BEGIN SELECT RAISE(ABORT, 'full'); END")
    handler = CallbackHandler()
    receive = way(handler, SIGNER, journal)
    assert receive(QUERY, BODY) == 503
    assert (len(handler.calls), state_of(journal, "SAL-1")) == (int(before is ACCEPTED), before)
    execute(journal, "DROP TRIGGER full")
    handled = len(handler.calls) + 1
    assert [receive(QUERY, BODY) for _ in range(2)] == [200, 200]
    assert (len(handler.calls), state_of(journal, "SAL-1")) == (handled, ACCEPTED)


@pytest.mark.parametrize("missing", [["amount"], ["amount", "phone_number", "type", "created_at", "updated_at"]])
def test_what_a_callback_lacks_is_read(missing: list[str], journal: Journal) -> None:
    put(journal, "SAL-1", UNKNOWN)
    fields: dict[str, Any] = dict.fromkeys(missing)
    body = callback_body("SAL-1", **fields)
    assert received(body, SIGNER, journal) == (200, ["the-id SUCCESS"])
    assert state_of(journal, "SAL-1") is ACCEPTED


@pytest.mark.parametrize("signer", [SIGNER, None])
@pytest.mark.parametrize("fields", [{"amount": 11}, {"phone_number": "254712345679"}, {"amount": 11, "type": None}])
def test_what_contradicts_its_entry_is_not_handled(fields: dict[str, Any], signer: Any, journal: Journal) -> None:
    entry, handler, service = put(journal, "SAL-1", transaction_id="the-id"), CallbackHandler(), ConfirmingService()
    receive = blocking(handler, signer, journal, service=service)
    assert receive(QUERY, json.dumps(callback_body("SAL-1", **fields)).encode()) == 503
    assert len(service.requests) == (0 if signer else 1)  # a signed one is compared first
    assert (found(journal, "SAL-1"), handler.calls) == (entry, [])
    assert receive(QUERY, BODY) == 200


@pytest.mark.parametrize("signer", [SIGNER, None])
def test_a_type_that_the_service_does_not_have_contradicts_nothing(signer: Any, journal: Journal) -> None:
    put(journal, "SAL-1", transaction_id="the-id")
    service, handler = ConfirmingService(), CallbackHandler()
    service.records["the-id"] = record_like(callback_body("SAL-1")["transaction"])
    for kind, status, ends in (("STK", 503, []), ("PAYMENT", 200, ["the-id SUCCESS"])):  # the first one contradicts
        body = json.dumps(callback_body("SAL-1", type=kind)).encode()
        assert blocking(handler, signer, journal, service=service)(QUERY, body) == status
        assert handler.ends == ends


def test_a_placeholder_does_not_keep_a_receipt_away(journal: Journal) -> None:
    put(journal, "SAL-1", transaction_id="the-id")
    for shown in ("N/A", "QK12"):
        assert received(callback_body("SAL-1", momo_receipt=shown), SIGNER, journal)[0] == 200
    assert found(journal, "SAL-1").receipt == "QK12"


def test_another_body_under_a_key_that_was_handled_settles_nothing(journal: Journal) -> None:
    service, handler = ConfirmingService(), CallbackHandler()
    receive = blocking(handler, SIGNER, journal, service=service)
    assert receive(QUERY, BODY) == 200
    service.records["the-id"] = record_like(json.loads(BODY)["transaction"])
    put(journal, "SAL-2", REFUSED)
    lie = callback_body("SAL-2")  # the id and status of the first
    assert (receive(OTHERS, json.dumps(lie).encode()), handler.ends) == (503, ["the-id SUCCESS"])
    assert state_of(journal, "SAL-2") is REFUSED


@pytest.mark.parametrize("signer", [SIGNER, None])
def test_the_receipt_of_the_first_confirmed_callback_is_kept(journal: Journal, signer: Any) -> None:
    put(journal, "SAL-1", transaction_id="the-id")
    for receipt in ("QK12", "another"):
        assert received(callback_body("SAL-1", momo_receipt=receipt, type=None), signer, journal)[0] == 200
    assert journal.by_receipt("QK12") == found(journal, "SAL-1")


def test_a_receipt_is_kept_if_a_sweep_handled_the_end_first(journal: Journal) -> None:
    put(journal, "SAL-1", transaction_id="the-id")
    journal.settle(payout("SAL-1"))
    with journal.handling(payout("SAL-1")):
        pass
    for receipt, signer in (("forged", None), ("QK12", SIGNER), ("another", SIGNER)):  # without one, it adds nothing
        assert received(callback_body("SAL-1", momo_receipt=receipt), signer, journal) == (200, [])
    assert found(journal, "SAL-1").receipt == "QK12"


def test_when_an_end_was_learned_is_recorded_by_the_services_clock(journal: Journal) -> None:
    put(journal, "SAL-1", transaction_id="the-id")
    service, ahead = ConfirmingService(), datetime.now(UTC) + timedelta(hours=1)
    answer = envelope(transaction("the-id", "SUCCESS", type="B2C", amount=10, accountReference="SAL-1"))
    dated = {"date": format_datetime(ahead, usegmt=True)}
    service.transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer, headers=dated))
    assert blocking(CallbackHandler(), SIGNER, journal, service=service)(QUERY, BODY) == 200
    ((learned,),) = execute(journal, "SELECT learned_at_service FROM momopay_transactions")
    assert abs(datetime.fromisoformat(learned) - ahead) < timedelta(minutes=1)


# Handlers, and their cancellation


class HandleLater:
    async def __call__(self, payment: Payment) -> None:
        await handle_later(payment)


def is_free(journal: Journal) -> bool:
    """Return whether the end was neither delivered nor is held."""
    with journal.handling(CALLBACK) as is_first:
        return is_first


@pytest.mark.parametrize(
    "handler", [handle_later, HandleLater(), partial(handle_later)], ids=["def", "call", "partial"]
)
def test_what_is_async_is_awaited(handler: Any, journal: Journal) -> None:
    assert is_async(handler)
    assert asyncio.run(to_receiver(handler, journal)()) == 200
    assert not is_free(journal)


def test_a_result_that_must_be_awaited_is_not_acknowledged(caplog: pytest.LogCaptureFixture, journal: Journal) -> None:
    class Forgetful(CallbackHandler):
        def handle(self, payment: Payment) -> Any:
            return handle_later(payment)

    for way in (blocking, receiving.threaded):
        assert way(Forgetful(), None, journal)("", BODY) == 500
    assert "make it an async def" in caplog.text
    assert is_free(journal)


def test_a_handler_that_this_client_cannot_call_is_refused() -> None:
    with momopay.Client("pk_test_1", base_url="https://api.example/v1") as client:
        for handler in (None, handle_later):
            wrong: Any = handler
            with pytest.raises(momopay.ConfigurationError, match="handler must be a function"):
                client.transactions.receive("", BODY, wrong)


def test_a_cancelled_handler_releases_its_end(journal: Journal) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handle(_payment: Payment) -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(to_receiver(handle, journal)())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    threads = list[threading.Thread]()
    with before_each(lambda text: threads.append(threading.current_thread()) if "history" in text else None, journal):
        asyncio.run(main())
    assert threads != [threading.main_thread()]  # as it would be if the garbage collection released it
    assert is_free(journal)


def test_cancelled_before_the_handler_nothing_is_handled_or_held(journal: Journal, tmp_path: Path) -> None:
    handler = CallbackHandler()

    async def main() -> None:
        writes = threading.Event()
        with just_before("BEGIN", journal, writes.set), locked(f"sqlite:///{tmp_path / 'journal.db'}"):
            task = asyncio.create_task(to_receiver(handler.handle_async, journal)())
            while not writes.is_set():  # noqa: ASYNC110  a thread sets it
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()  # the thread is waited for, so that it leaves nothing behind
        with pytest.raises(asyncio.CancelledError):
            await task

    put(journal, "SAL-1")
    asyncio.run(main())
    assert handler.calls == []
    assert is_free(journal)


@pytest.mark.parametrize("blocks", [False, True])
def test_cancelled_after_the_handler_what_was_handled_counts(journal: Journal, tmp_path: Path, blocks: bool) -> None:
    async def main() -> None:
        lock, handled, go = locked(f"sqlite:///{tmp_path / 'journal.db'}"), asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        async def handle(_payment: Payment) -> None:
            lock.__enter__()
            handled.set()

        def handle_blocking(_payment: Payment) -> None:
            loop.call_soon_threadsafe(handled.set)
            assert go.wait(60)
            lock.__enter__()

        task = asyncio.create_task(to_receiver(handle_blocking if blocks else handle, journal)())
        await handled.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.02)
        assert not task.done()
        go.set()
        await asyncio.sleep(0.1)
        lock.__exit__(None, None, None)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not is_free(journal)


# Events


@pytest.fixture
def seen() -> Watcher:
    return Watcher()


@each_way
@pytest.mark.parametrize("known", [None, CALLBACK.transaction_id], ids=["unknown", "accepted"])
def test_the_events_of_a_callback(way: Receive, journal: Journal, seen: Watcher, known: str | None) -> None:
    put(journal, "SAL-1", before := ACCEPTED if known else UNKNOWN, transaction_id=known)
    put(journal, "SAL-1", kind=EntryKind.COLLECTION)
    receive = way(CallbackHandler(), SIGNER, journal, seen)
    assert receive(QUERY, BODY) == 200
    changed, received = seen.events
    assert isinstance(changed, JournalChanged)
    states = changed.old_state, changed.new_state, changed.transaction_status
    assert (changed.kind, changed.reference, *states) == ("PAYOUT", "SAL-1", before, "ACCEPTED", "SUCCESS")
    assert isinstance(received, CallbackReceived)
    assert (received.outcome, received.status, received.error, received.reference) == ("accepted", 200, None, "SAL-1")
    stated = received.transaction_id, received.transaction_type, received.transaction_status
    assert stated == (CALLBACK.transaction_id, "B2C", "SUCCESS")
    assert received.seconds > 0
    assert {each.operation for each in seen.events} == {"transactions.receive"}
    assert changed.call_id == received.call_id
    seen.take()
    assert receive(QUERY, BODY) == 200
    assert seen.take() == ["CallbackReceived duplicate SUCCESS"]


@each_way
def test_the_events_of_refusals(way: Receive, journal: Journal, seen: Watcher) -> None:
    put(journal, "SAL-1", UNKNOWN)
    handler = CallbackHandler()
    receive = way(handler, SIGNER, journal, seen)
    receive("", BODY)
    receive(QUERY, b"{")
    other_amount = json.dumps(callback_body("SAL-1", amount=11)).encode()
    receive(QUERY, other_amount)
    receive(QUERY, json.dumps(callback_body("SAL-1", status="PENDING")).encode())
    with journal.handling(CALLBACK):
        receive(QUERY, BODY)
    assert [each.status for each in seen.of(CallbackReceived)] == [403, 400, 503, 200, 503]
    assert [each for each in seen.take() if "JournalChanged" not in each] == [
        "CallbackReceived forged ForgedCallbackError",
        "CallbackReceived invalid InvalidCallbackError",
        "CallbackReceived mismatch CallbackMismatchError",
        "CallbackReceived accepted PENDING",
        "CallbackReceived busy CallbackError",
    ]
    assert (receive(QUERY, BODY), handler.calls) == (200, [])  # handled elsewhere


@each_way
def test_the_events_of_a_handler_that_fails(way: Receive, journal: Journal, seen: Watcher) -> None:
    mismatch = CallbackMismatchError("another amount", transaction_id="x", fields=["amount"])
    receive = way(
        CallbackHandler(ValueError(PHONE), mismatch, CallbackError("do not act on it")), SIGNER, journal, seen
    )
    assert [receive(QUERY, BODY) for _ in range(4)] == [500, 503, 503, 200]
    assert seen.take() == [
        "CallbackReceived failed ValueError",
        "CallbackReceived mismatch CallbackMismatchError",
        "CallbackReceived failed CallbackError",  # not busy: no other call has it
        "CallbackReceived accepted SUCCESS",
    ]


def test_no_phone_is_shown_that_a_forger_states(seen: Watcher) -> None:
    forged = json.dumps(callback_body(PHONE, PHONE, PHONE)).encode()
    service = ConfirmingService()
    assert blocking(CallbackHandler(), None, None, seen, service)("", forged) == 200  # no end: not handled
    assert [each.outcome for each in seen.of(CallbackReceived)] == ["accepted"]
    service.records[PHONE] = transaction(PHONE, "SUCCESS", amount=7)
    assert blocking(CallbackHandler(), None, None, seen, service)("", forged) == 503
    event = seen.of(CallbackReceived)[-1]
    assert (event.reference, event.transaction_id, event.transaction_status) == ("2547*****678", "2547*****678", None)


def test_a_cancelled_request_is_reported(seen: Watcher) -> None:
    async def handle_forever(_payment: Any) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(to_receiver(handle_forever, None, on_event=seen)(), 0.2)

    asyncio.run(main())
    (event,) = seen.of(CallbackReceived)
    assert (event.outcome, event.status, event.error) == ("failed", None, asyncio.CancelledError)
