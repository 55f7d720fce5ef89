"""The log of requests."""

from datetime import UTC, datetime

from momopay.sandbox import ReceivedRequest
from momopay.sandbox._records import KEPT, RequestLog

START = datetime(2026, 1, 1, tzinfo=UTC)


def request(body: bytes = b"") -> ReceivedRequest:
    return ReceivedRequest("GET", "/transactions", "", {}, START, body)


def test_a_body_is_read_as_json_where_it_is_json() -> None:
    assert request(b'{"amount": 1}').json == {"amount": 1}
    for body in (b"", b"{", b"\xff", b"[" * 100_000):
        assert request(body).json is None


def test_the_newest_are_kept_oldest_first_and_numbered_from_the_first() -> None:
    log, one, last = RequestLog(), request(), request(b"last")
    for _ in range(KEPT):
        log.add(one)
    log.add(last)
    assert (len(log.entries), log.entries[-1], last.number) == (KEPT, last, KEPT + 1)
    before = log.version
    log.set_status(last, 200)
    assert (last.status, log.version) == (200, before + 1)
