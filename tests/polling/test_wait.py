"""Waiting over virtual time: when it looks, how many requests it costs, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from momopay import (
    ConfigurationError,
    InvalidApiKeyError,
    PollSchedule,
    RateBudget,
    RequestValidationError,
    Transaction,
    TransactionNotFoundError,
    WaitTimeoutError,
    settled,
    terminal,
)
from virtual import envelope, refusal, transaction, virtual_client, waking

OVERVIEW = {"total": 0, "completed": 0, "failed": 0, "pending": 0}


class Service:
    """Transactions whose status is a function of time; reads and list pages."""

    def __init__(self) -> None:
        self.ends: dict[str, list[tuple[float, str]]] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        self.failures: list[tuple[int, Any]] = []
        self.clock: Callable[[], float] = lambda: 0.0

    def add(self, identity: str, *moves: tuple[float, str], **fields: Any) -> str:
        self.ends[identity] = list(moves)
        self.fields[identity] = {
            "createdAt": f"2026-11-20T10:{len(self.ends) // 60:02}:{len(self.ends) % 60:02}Z"
        } | fields
        return identity

    def record(self, identity: str) -> dict[str, Any]:
        status = "PENDING"
        for when, move in self.ends[identity]:
            if self.clock() >= when:
                status = move
        return transaction(identity, status, **self.fields[identity])

    def __call__(self, _method: str, path: str) -> tuple[int, Any]:
        if self.failures:
            return self.failures.pop(0)
        parts = urlsplit(path)
        if parts.path == "/transactions":
            query = parse_qs(parts.query)
            assert "status" not in query
            size, start = int(query["limit"][0]), int(query.get("cursor", ["0"])[0])
            newest_first = list(reversed(self.ends))
            items = [self.record(identity) for identity in newest_first[start : start + size]]
            following = str(start + size) if start + size < len(newest_first) else None
            return 200, envelope({"items": items, "overview": OVERVIEW, "nextCursor": following})
        identity = parts.path.rpartition("/")[2]
        if identity not in self.ends:
            return 404, refusal("TRANSACTION_NOT_FOUND")
        return 200, envelope(self.record(identity) | {"resultCode": "0", "resultDesc": "done"})


def waiting_client(service: Service, **options: Any) -> Any:
    client, port = virtual_client(service, **options)
    service.clock = lambda: port.clock - 1000.0
    return client, port


def test_one_wait_reads_by_id_on_the_schedule_of_the_spec() -> None:
    service = Service()
    service.add("a", (50.0, "PROCESSING"), (60.0, "SUCCESS"))
    client, port = waiting_client(service)
    ended = client.transactions.wait("a")
    assert ended.status == "SUCCESS"
    assert ended.result_desc == "done"
    assert port.requests == [(15.0 + 10 * look, "GET", "/transactions/a") for look in range(6)]


@pytest.mark.parametrize("end", ["SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"])
def test_every_terminal_status_ends_a_wait(end: str) -> None:
    service = Service()
    service.add("a", (0.0, end))
    client, port = waiting_client(service)
    assert client.transactions.wait("a").status == end
    assert len(port.requests) == 1


def test_an_unknown_status_never_ends_a_wait_and_the_limit_does() -> None:
    service = Service()
    service.add("a", (0.0, "HELD"))
    client, port = waiting_client(service)
    with pytest.raises(WaitTimeoutError) as caught:
        client.transactions.wait("a")
    assert port.clock == 1300.0
    assert len(port.requests) == 29
    assert caught.value.last is not None
    assert caught.value.last.status == "HELD"
    assert caught.value.pending == ("a",)
    assert isinstance(caught.value, TimeoutError)


def test_a_payout_is_settled_only_once_it_is_reversed() -> None:
    service = Service()
    service.add("a", (10.0, "FAILED"), (40.0, "REVERSED"), type="B2C")
    client, port = waiting_client(service)
    assert client.transactions.wait("a").status == "FAILED"
    assert client.transactions.wait("a", until=settled).status == "REVERSED"
    assert [when for when, _, _ in port.requests] == [15.0, 30.0, 40.0]


def test_a_failed_prompt_is_settled() -> None:
    service = Service()
    service.add("a", (0.0, "FAILED"))
    client, _ = waiting_client(service)
    assert client.transactions.wait("a", until=settled).status == "FAILED"


def test_a_predicate_of_ones_own_ends_a_wait() -> None:
    service = Service()
    service.add("a", (20.0, "PROCESSING"))
    client, _ = waiting_client(service)

    def taken(seen: Transaction) -> bool:
        return seen.status == "PROCESSING"

    assert client.transactions.wait("a", until=taken).status == "PROCESSING"


def test_passing_failures_and_429s_do_not_end_a_wait() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.failures = [
        (200, b"<html>"),
        *[(503, b"")] * 4,
        (429, refusal("RATE_LIMIT_EXCEEDED", resetInSeconds=4000)),
        (429, refusal("TOO_MANY_REQUESTS")),
        *[(503, refusal("TRANSACTION_NOT_FOUND"))] * 4,
    ]
    client, port = waiting_client(service)
    assert client.transactions.wait("a").status == "SUCCESS"
    assert len(port.requests) == 12


def test_a_revoked_key_ends_a_wait() -> None:
    service = Service()
    service.failures = [(401, refusal("INVALID_API_KEY"))]
    client, _ = waiting_client(service)
    with pytest.raises(InvalidApiKeyError):
        client.transactions.wait("a")


def test_an_unknown_transaction_ends_a_wait() -> None:
    client, _ = waiting_client(Service())
    with pytest.raises(TransactionNotFoundError):
        client.transactions.wait("a")


def test_a_callback_ends_a_wait_with_one_read() -> None:
    service = Service()
    service.add("a", (3.0, "SUCCESS"))
    service.add("b")
    client, port = waiting_client(service)
    port.at(4.0, waking(lambda: client.transactions.notify("a")))
    assert client.transactions.wait("a").status == "SUCCESS"
    assert port.requests == [(4.0, "GET", "/transactions/a")]


def test_a_callback_that_came_before_the_read_caught_up_leaves_the_wait_to_its_schedule() -> None:
    service = Service()
    service.add("a", (20.0, "SUCCESS"))
    client, port = waiting_client(service)
    port.at(4.0, waking(lambda: client.transactions.notify("a")))
    assert client.transactions.wait("a").status == "SUCCESS"
    assert [when for when, _, _ in port.requests] == [4.0, 15.0, 25.0]


def test_a_failed_read_after_a_callback_leaves_the_wait_to_its_schedule() -> None:
    service = Service()
    service.add("a", (3.0, "SUCCESS"))
    service.failures = [(200, b"junk")]
    client, port = waiting_client(service)
    port.at(4.0, waking(lambda: client.transactions.notify("a")))
    assert client.transactions.wait("a").status == "SUCCESS"
    assert [when for when, _, _ in port.requests] == [4.0, 15.0]


def test_news_of_a_transaction_that_nobody_waits_for_is_no_news() -> None:
    client, port = waiting_client(Service())
    client.transactions.notify("nobody")
    assert port.requests == []


def test_many_waits_share_one_sweep_and_each_gives_its_transaction_as_it_ends() -> None:
    service = Service()
    for number in range(50):
        service.add(f"t{number}", (float(number), "SUCCESS"))
    client, port = waiting_client(service)
    ended = [each.transaction_id for each in client.transactions.wait_all(service.ends)]
    assert sorted(ended) == sorted(service.ends)
    assert [path for _, _, path in port.requests] == ["/transactions?limit=100"] * 5
    assert [when for when, _, _ in port.requests] == [15.0, 25.0, 35.0, 45.0, 55.0]


def test_a_success_from_the_sweep_has_the_fields_of_the_list_alone() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    for ended in client.transactions.wait_all(["a", "b"]):
        assert isinstance(ended, Transaction)
        assert ended.result_code is None
        assert ended.amount == 100
        assert ended.response.status_code == 200


def test_an_end_without_success_costs_one_read_more_for_its_reason() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "FAILED"))
    client, port = waiting_client(service)
    ends = {ended.transaction_id: ended for ended in client.transactions.wait_all(["a", "b"])}
    assert ends["b"].result_desc == "done"
    assert [path for _, _, path in port.requests] == ["/transactions?limit=100", "/transactions/b"]


def test_a_sweep_walks_back_to_the_oldest_and_no_further() -> None:
    service = Service()
    for number in range(500):
        service.add(f"t{number}", (0.0, "SUCCESS"))
    client, port = waiting_client(service)
    wanted = [f"t{number}" for number in range(250, 500)]
    assert len(list(client.transactions.wait_all(wanted))) == 250
    assert [path for _, _, path in port.requests] == [
        "/transactions?limit=100",
        "/transactions?limit=100&cursor=100",
        "/transactions?limit=100&cursor=200",
    ]


def test_a_few_old_ones_are_read_by_id_rather_than_walked_to() -> None:
    service = Service()
    for number in range(2000):
        service.add(f"t{number}", (0.0, "SUCCESS"))
    client, port = waiting_client(service)
    assert len(list(client.transactions.wait_all(["t0", "t1", "t1999"]))) == 3
    assert len(port.requests) <= 4


def test_those_that_the_list_does_not_show_yet_are_read_by_id() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "SUCCESS"))
    client, port = waiting_client(service)
    shown = dict(service.ends)

    def lagging(method: str, path: str) -> tuple[int, Any]:
        if path.startswith("/transactions?"):
            return 200, envelope({"items": [], "overview": OVERVIEW, "nextCursor": None})
        service.ends = shown
        return service(method, path)

    port.handler = lagging
    assert len(list(client.transactions.wait_all(["a", "b"]))) == 2
    assert sorted(path for _, _, path in port.requests) == [
        "/transactions/a",
        "/transactions/b",
        "/transactions?limit=100",
    ]


def test_records_say_how_far_back_the_walk_must_go() -> None:
    service = Service()
    for number in range(300):
        service.add(f"t{number}", (0.0, "SUCCESS"))
    client, port = waiting_client(service)
    recent = client.transactions.list(limit=100).items
    del service.ends["t299"], service.ends["t298"], service.ends["t297"]
    with pytest.raises(TransactionNotFoundError):
        list(client.transactions.wait_all(recent))
    assert sum(path.startswith("/transactions?") for _, _, path in port.requests) == 2


def test_a_wait_for_many_names_those_that_did_not_end() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b")
    service.add("c")
    client, _ = waiting_client(service)
    ended = list[str]()
    with pytest.raises(WaitTimeoutError) as caught:
        ended.extend(each.transaction_id for each in client.transactions.wait_all(["a", "b", "c"]))
    assert ended == ["a"]
    assert caught.value.pending == ("b", "c")


def test_a_failed_payout_is_read_once_more_and_not_at_every_sweep() -> None:
    service = Service()
    service.add("a", (0.0, "FAILED"), (100.0, "REVERSED"), type="B2C")
    service.add("b", (100.0, "SUCCESS"))
    client, port = waiting_client(service)
    assert len(list(client.transactions.wait_all(["a", "b"], until=settled))) == 2
    assert [path for _, _, path in port.requests].count("/transactions/a") == 2


def test_an_unknown_transaction_ends_a_wait_for_many() -> None:
    service = Service()
    service.add("a")
    client, _ = waiting_client(service)
    with pytest.raises(TransactionNotFoundError):
        list(client.transactions.wait_all(["a", "nobody"]))


def test_a_sweep_that_fails_in_passing_is_made_again() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "SUCCESS"))
    service.failures = [(200, b"junk")]
    client, port = waiting_client(service)
    assert len(list(client.transactions.wait_all(["a", "b"]))) == 2
    assert [when for when, _, _ in port.requests] == [15.0, 25.0]


def test_waiting_for_nothing_gives_nothing() -> None:
    client, port = waiting_client(Service())
    assert list(client.transactions.wait_all([])) == []
    assert port.requests == []


def test_what_is_no_id_is_refused_at_once() -> None:
    client, port = waiting_client(Service())
    for wrong in ("", "..", "x" * 300, 7, None):
        with pytest.raises(RequestValidationError, match="transaction_id"):
            client.transactions.wait_all([wrong])
        with pytest.raises(RequestValidationError, match="transaction_id"):
            client.transactions.wait(wrong)
        with pytest.raises(RequestValidationError, match="transaction_id"):
            client.transactions.notify(wrong)
    assert port.requests == []


def test_three_hundred_outstanding_payments_stay_within_the_budget_of_one_key() -> None:
    service = Service()
    for number in range(300):
        service.add(f"t{number}", (30.0 + number, "SUCCESS"))
    client, port = waiting_client(service, budget=RateBudget())
    schedule = PollSchedule(limit=1000.0)
    assert len(list(client.transactions.wait_all(service.ends, schedule=schedule))) == 300
    sent = [when for when, _, _ in port.requests]
    assert max(sum(start <= when < start + 60.0 for when in sent) for start in sent) <= 60
    assert len(sent) < 110


@pytest.mark.parametrize(
    "times",
    [
        {"first": -1.0},
        {"every": 0.0},
        {"limit": 0.0},
        {"limit": float("inf")},
        {"every": float("nan")},
        {"first": "soon"},
    ],
)
def test_a_senseless_schedule_is_refused(times: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        PollSchedule(**times)


def odd_one_out(service: Service, odd: str, answer: tuple[int, Any]) -> Callable[[str, str], tuple[int, Any]]:
    """A list that shows nothing, and one transaction whose reads are answered otherwise."""

    def handler(method: str, path: str) -> tuple[int, Any]:
        if path.startswith("/transactions?"):
            return 200, envelope({"items": [], "overview": OVERVIEW, "nextCursor": None})
        return answer if path.endswith(odd) else service(method, path)

    return handler


def test_one_that_always_fails_to_read_holds_the_others_back_for_one_look_at_most() -> None:
    service = Service()
    service.add("poison")
    service.add("good", (0.0, "SUCCESS"))
    client, port = waiting_client(service, max_attempts=1)
    port.handler = odd_one_out(service, "poison", (500, b""))
    ends = iter(client.transactions.wait_all(["poison", "good"]))
    assert next(ends).transaction_id == "good"
    assert port.clock <= 1025.0


def test_each_wait_keeps_its_own_pace() -> None:
    service = Service()
    service.add("slow")
    service.add("quick", (0.5, "SUCCESS"))
    client, port = waiting_client(service)
    patient = client.transactions._start_wait(["slow"], terminal, PollSchedule(first=0.1, every=60.0, limit=100.0))
    with patient.registered():
        quick = PollSchedule(first=0.1, every=0.3, limit=4.0)
        assert client.transactions.wait("quick", schedule=quick).status == "SUCCESS"
    assert port.clock < 1001.5


def test_waits_that_are_over_cost_nobody_a_read() -> None:
    service = Service()
    service.add("abandoned")
    service.add("a", (100.0, "SUCCESS"))
    client, port = waiting_client(service)
    held = client.transactions._start_wait(["abandoned"], terminal, PollSchedule(first=0.0, every=1.0, limit=1.0))
    with held.registered():
        port.clock += 2.0
        assert client.transactions.wait("a").status == "SUCCESS"
    assert {path for _, _, path in port.requests} == {"/transactions/a"}


def test_an_end_that_the_sweep_showed_is_given_even_if_its_reason_cannot_be_read() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "FAILED"))
    client, port = waiting_client(service, max_attempts=1)

    def handler(method: str, path: str) -> tuple[int, Any]:
        return (503, b"") if path == "/transactions/b" else service(method, path)

    port.handler = handler
    ends = {each.transaction_id: each for each in client.transactions.wait_all(["a", "b"])}
    assert (ends["b"].status, ends["b"].result_desc) == ("FAILED", None)


def test_what_the_list_shows_beyond_its_fields_need_not_be_what_a_read_shows() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"), provider={"name": "somebody"})
    service.add("b", (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    ends = {each.transaction_id: each for each in client.transactions.wait_all(["a", "b"])}
    assert ends["a"].provider is None


def test_what_has_ended_already_is_given_at_once() -> None:
    client, port = virtual_client(lambda _method, _path: (200, envelope(transaction("a", "SUCCESS"))))
    ended = client.transactions.get("a")
    assert client.transactions.wait(ended) is ended
    assert list(client.transactions.wait_all([ended])) == [ended]
    assert len(port.requests) == 1
    assert port.slept == []
