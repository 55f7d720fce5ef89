"""What comes after an answer, on the same connection, is nobody's answer: the next request goes out on another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import wire
from drivers import Driver
from hostile.endpoints import TRANSACTION, raw, success

Reach = Callable[..., Driver]


def record(identity: str, status: str) -> bytes:
    return success({**TRANSACTION, "transactionId": identity, "status": status})


STALE = wire.whole(200, record("stale", "SUCCESS"))
FIRST = record("first", "PENDING")
AFTER = {
    "a_second_answer": wire.whole(200, FIRST) + STALE,
    "an_answer_behind_a_body_too_long": wire.head(200, {"Content-Length": str(len(FIRST))}) + FIRST + b"\r\n" + STALE,
    "an_answer_behind_chunks": (
        wire.head(200, {"Transfer-Encoding": "chunked"}) + b"%x\r\n" % len(FIRST) + FIRST + b"\r\n0\r\n\r\n" + STALE
    ),
}


def read_two(driver: Driver) -> tuple[Any, Any]:
    return driver(lambda client: client.transactions.get("first")), driver(
        lambda client: client.transactions.get("second")
    )


@pytest.mark.parametrize("data", AFTER.values(), ids=AFTER)
def test_an_answer_is_never_taken_for_the_next_one(reach: Reach, data: bytes) -> None:
    with wire.serve(raw(data, stays_open=True), wire.answers(200, record("second", "PENDING"))) as server:
        first, second = read_two(reach(server))
        assert (first.transaction_id, second.transaction_id) == ("first", "second")
        assert server.connections == 2


def test_without_looking_for_leftovers_one_transactions_success_is_taken_for_anothers(
    reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(_pool: object) -> bool:
        return True

    monkeypatch.setattr("momopay._transport.connections._nothing_left", careless)
    data = AFTER["a_second_answer"]
    with wire.serve(raw(data, stays_open=True), wire.answers(200, record("second", "PENDING"))) as server:
        _, second = read_two(reach(server))
        assert (second.transaction_id, second.status) == ("stale", "SUCCESS")


def test_a_body_where_none_may_be_is_not_the_next_answer(reach: Reach) -> None:
    answer = raw(b"HTTP/1.1 204 No Content\r\n\r\n" + STALE, stays_open=True)
    with wire.serve(answer, wire.answers(200, record("second", "PENDING"))) as server:
        driver = reach(server)
        with pytest.raises(Exception, match="HTTP 204"):
            driver(lambda client: client.transactions.get("first"))
        assert driver(lambda client: client.transactions.get("second")).transaction_id == "second"
