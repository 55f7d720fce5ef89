"""One POST of a callback, to real receivers."""

import asyncio

import pytest

from momopay.sandbox._callback_sender import CallbackSender
from momopay.sandbox._deliveries import PostResult
from sandbox.kit import BusyReceiver, Receiver, resolve_here


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
    assert post(receiver.url) == PostResult(418, "x" * 500)
    assert receiver.bodies == [{"event": "transaction.updated"}]


def test_a_receiver_that_is_not_there(receiver: Receiver) -> None:
    receiver.close()
    result = post(receiver.url)
    assert result.status is None
    assert "ConnectError" in (result.error or "")


def test_an_answer_that_does_not_come_in_time(receiver: Receiver) -> None:
    busy = BusyReceiver(receiver)
    assert post(receiver.url, limit=0.02) == PostResult(error="no answer within 30 seconds", timed_out=True)
    busy.release.set()


def test_nothing_is_sent_to_any_other_host() -> None:
    assert post("https://shop.example/momo") == PostResult(error="not sent: not loopback")
    named = PostResult(error="not sent: not loopback, and no callback host")
    assert post("https://shop.example/momo", hosts=("app",)) == named


def test_a_host_that_was_named_is_sent_to(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_here(monkeypatch, "app")
    url = receiver.url.replace("127.0.0.1", "app")
    assert post(url, hosts=("app",)) == PostResult(200, "ok")


@pytest.mark.parametrize(("speed", "seconds"), [(0.0, 30.0), (1.0, 30.0), (10.0, 3.0), (1000.0, 1.0)])
def test_the_limit_is_30_virtual_seconds_and_one_real_one_at_least(speed: float, seconds: float) -> None:
    async def limit() -> float:
        sender = CallbackSender(speed)
        await sender.close()
        return sender.limit

    assert asyncio.run(limit()) == seconds
