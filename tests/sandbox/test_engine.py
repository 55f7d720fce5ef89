"""Virtual time, what happens as it passes, and the POSTs of callbacks."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from momopay.sandbox import Sandbox
from momopay.sandbox._engine import CallbackSender
from momopay.sandbox._records import PostResult
from patience import beside, until
from sandbox.kit import KEY, BusyReceiver, Receiver, Routes, data, own_sandbox, transaction_id


def test_advance_is_exact_and_refuses_to_go_back(sandbox: Sandbox) -> None:
    before = sandbox.now
    sandbox.advance(12.345)
    assert (sandbox.now - before).total_seconds() == 12.345
    sandbox.advance(0)
    for seconds in (-1, float("nan"), float("inf"), 1e30):
        with pytest.raises(ValueError, match="seconds"):
            sandbox.advance(seconds)


def test_without_advance_time_runs_by_itself_and_callbacks_go_out(receiver: Receiver) -> None:
    with own_sandbox(speed=1000) as (sandbox, service):
        receiver.answer = lambda _body: 200 if len(receiver.bodies) > 1 else 500
        sent = service.stk(callbackUrl=receiver.url)
        until(lambda: len(sandbox.callbacks) == 2, "a callback and its retry")
        assert [record.status for record in sandbox.callbacks] == [500, 200]
        assert service.read(sent)["status"] == "SUCCESS"


def test_a_handler_may_read_while_time_is_advanced(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    seen: list[str] = []

    def handle(body: dict[str, Any]) -> int:
        url = f"{sandbox.base_url}/transactions/{body['transaction']['id']}"
        seen.append(data(httpx.get(url, auth=(KEY, ""), trust_env=False, verify=False))["status"])
        assert sandbox.now == datetime.fromisoformat(body["transaction"]["updated_at"])
        return 200

    receiver.answer = handle
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(600)
    assert seen == ["SUCCESS"]


def test_advance_waits_for_a_callback_that_is_under_way_already(receiver: Receiver) -> None:
    busy = BusyReceiver(receiver)
    with own_sandbox(speed=0.001) as (sandbox, service):
        sandbox.cancel(transaction_id(service.stk(callbackUrl=receiver.url)))
        assert busy.arrived.wait(30)
        with beside(sandbox.advance, 0) as mover:
            mover.join(0.05)
            assert mover.is_alive()
            busy.release.set()
        assert [record.status for record in sandbox.callbacks] == [200]


def test_a_request_takes_nothing_from_an_advance(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    busy = BusyReceiver(receiver)
    sent = [service.stk(callbackUrl=receiver.url) for _ in range(2)]
    with beside(sandbox.advance, 35):
        assert busy.arrived.wait(30)
        service.read(sent[1])
        # The second callback is due at the same instant, and waits for the answer to the first.
        assert len(receiver.bodies) == 1
        busy.release.set()
    assert [body["transaction"]["id"] for body in receiver.bodies] == [transaction_id(one) for one in sent]


def test_one_advance_at_a_time(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    busy = BusyReceiver(receiver)
    service.stk(callbackUrl=receiver.url)
    before = sandbox.now
    with beside(sandbox.advance, 40), beside(sandbox.advance, 40):
        assert busy.arrived.wait(30)
        busy.release.set()
    assert (sandbox.now - before).total_seconds() == 80


def test_reset_forgets_a_callback_under_way(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    busy = BusyReceiver(receiver, status=500)
    service.stk(callbackUrl=receiver.url)
    with beside(sandbox.advance, 35):
        assert busy.arrived.wait(30)
        sandbox.reset()
        busy.release.set()
    sandbox.advance(86_400)
    assert (sandbox.callbacks, len(receiver.bodies)) == ([], 1)
    sandbox.reset()  # and back to the present
    assert abs((sandbox.now - datetime.now(UTC)).total_seconds()) < 3600


@pytest.mark.parametrize("by_route", [False, True])
def test_close_ends_an_advance_that_waits_for_an_answer(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, by_route: bool
) -> None:
    busy, seen = BusyReceiver(receiver), list[int]()

    def advance() -> None:
        if by_route:
            url = f"{sandbox.url}/sandbox/advance"
            seen.append(httpx.post(url, json={"seconds": 100}, trust_env=False, verify=False, timeout=30).status_code)
        else:
            with pytest.raises(RuntimeError, match="closed before the time had passed"):
                sandbox.advance(100)
            seen.append(503)

    with own_sandbox(speed=0, state=tmp_path / "state.db") as (sandbox, service):
        service.stk(callbackUrl=receiver.url)
        mover = threading.Thread(target=advance)
        mover.start()
        assert busy.arrived.wait(30)
    mover.join()
    assert busy.finished == []
    busy.release.set()
    assert (seen, caplog.records) == ([503], [])


def test_the_sandbox_runs_while_a_test_stops_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as frozen:
        frozen.setattr("time.monotonic", lambda: 1e9)  # as freezegun does
        sandbox = Sandbox().start()
        begun = sandbox.now
        assert httpx.get(f"{sandbox.base_url}/transactions", auth=("pk_test_a", ""), verify=False).is_success
    sandbox.close()  # whose timers were set while the time stood still
    assert sandbox.now - begun < timedelta(minutes=1)


def post(url: str, *, limit: float | None = None, hosts: tuple[str, ...] = ()) -> PostResult:
    async def run() -> PostResult:
        sender = CallbackSender(1.0, hosts)
        sender.limit = limit or sender.limit
        try:
            return await sender.post(url, {"event": "transaction.updated"})
        finally:
            await sender.close()

    return asyncio.run(run())


def test_the_result_is_the_status_and_the_beginning_of_the_answer(receiver: Receiver) -> None:
    receiver.text = b"x" * 100_000
    receiver.answer = lambda _body: 418
    assert (post(receiver.url), receiver.bodies) == (PostResult(418, "x" * 500), [{"event": "transaction.updated"}])
    busy = BusyReceiver(receiver)
    assert post(receiver.url, limit=0.02) == PostResult(error="no answer within 30 seconds", timed_out=True)
    busy.release.set()
    receiver.close()
    result = post(receiver.url)
    assert (result.status, "ConnectError" in (result.error or "")) == (None, True)


def test_the_limit_is_30_virtual_seconds_and_one_real_one_at_least() -> None:
    async def limit(speed: float) -> float:
        sender = CallbackSender(speed)
        await sender.close()
        return sender.limit

    assert [asyncio.run(limit(speed)) for speed in (0.0, 1.0, 10.0, 1000.0)] == [30.0, 30.0, 3.0, 1.0]
    for impossible in (-1, 1_000_001, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="speed"):
            Sandbox(speed=impossible).start()
