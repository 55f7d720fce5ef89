"""A wait: when it polls, what ends it, and what it returns. Everything in virtual time that begins at 0."""

import gc
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from decimal import Decimal
from functools import partial
from typing import Any

import anyio
import httpx
import pytest

import momopay
from bodies import envelope, refusal, transaction
from momopay import PollSchedule, ProtocolError, Transaction, TransactionNotFoundError, WaitTimeoutError
from momopay.events import Event, WaitEnded
from polling.kit import START, Concurrent, MakeSdk, TimedService, in_trio, reported, waiting_client

HTML = (200, b"<html>")
LIST = "/transactions"


def test_one_wait_reads_by_id_on_the_schedule_of_the_service(sdk: MakeSdk, service: TimedService) -> None:
    service.add("a", (50.0, "PROCESSING"), (60.0, "SUCCESS"))
    ended = sdk(service)(lambda client: client.transactions.wait("a"))
    assert (ended.status, ended.result_desc) == ("SUCCESS", "done")
    assert service.requests == [(15.0 + 10 * number, "/transactions/a") for number in range(6)]


def test_an_unknown_status_never_ends_a_wait_and_the_limit_does(sdk: MakeSdk, service: TimedService) -> None:
    service.add("a", (0.0, "HELD"))
    with pytest.raises(WaitTimeoutError, match="transaction a has not ended after 300 s") as caught:
        sdk(service)(lambda client: client.transactions.wait("a"))
    assert service.times == [15.0 + 10 * number for number in range(29)]
    assert caught.value.last is not None
    assert caught.value.last.status == "HELD"
    assert caught.value.pending == ("a",)
    assert isinstance(caught.value, TimeoutError)
    service.requests.clear()
    with pytest.raises(WaitTimeoutError) as caught:
        sdk(service)(lambda client: client.transactions.wait("a", schedule=PollSchedule(first=20.0, limit=10.0)))
    assert (caught.value.last, service.requests) == (None, [])


def test_an_error_of_the_predicate_reaches_its_caller_and_no_other_wait(service: TimedService) -> None:
    service.add_many(2, (0.0, "SUCCESS"))

    events = list[Event]()

    def wrong(seen: momopay.Transaction) -> bool:
        raise ZeroDivisionError(seen.transaction_id)

    async def work(client: momopay.AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "t1")
            with pytest.raises(ZeroDivisionError, match="t0"):
                await client.transactions.wait("t0", until=wrong)

    assert in_trio(service, work, on_event=events.append) == pytest.approx(15.0)
    assert service.paths == ["/transactions"]
    reported = {each.transaction_id: each.error for each in events if isinstance(each, WaitEnded)}
    assert reported == {"t0": ZeroDivisionError, "t1": None}


def test_transient_failures_and_429s_do_not_end_a_wait(sdk: MakeSdk, service: TimedService) -> None:
    service.add("a", (0.0, "SUCCESS"))
    service.failures = [
        *(HTML, (503, b""), (429, refusal("RATE_LIMIT_EXCEEDED", resetInSeconds=4000))),
        *((429, refusal("TOO_MANY_REQUESTS")), (408, refusal("TRANSACTION_NOT_FOUND"))),
    ]
    assert sdk(service, max_attempts=1)(lambda client: client.transactions.wait("a")).status == "SUCCESS"
    assert service.times == [15.0, 25.0, 35.0, 45.0, 55.0, 65.0]


@pytest.mark.parametrize(
    "between", [[(503, b"")], [(429, refusal("TOO_MANY_REQUESTS"))], []], ids=["5xx", "429", "a record"]
)
def test_malformed_answers_that_are_not_in_a_row_do_not_end_a_wait(between: list[Any], service: TimedService) -> None:
    service.add("a", (40.0, "SUCCESS"))
    record = [(200, {"success": True, "data": service.record("a"), "requestId": "r"})]
    service.failures = [HTML, *(between or record), HTML]
    client, _ = waiting_client(service, max_attempts=1)
    assert client.transactions.wait("a").status == "SUCCESS"


REFUSED = (401, refusal("INVALID_API_KEY"))
FAILED_PAGES: dict[str, list[tuple[int, Any]]] = {
    "malformed pages": [HTML] * 2,
    "a page that is refused": [REFUSED] * 3,
}


@pytest.mark.parametrize("of", [*FAILED_PAGES, "one transaction", "another transaction"])
def test_malformed_answers_and_a_refusal_end_the_waits_that_they_were_read_for(of: str, service: TimedService) -> None:
    waits = Concurrent(service)
    service.add_many(3, (60.0, "SUCCESS"))
    if of in FAILED_PAGES:
        service.failures = list(FAILED_PAGES[of])
    else:
        service.unlisted.add("t0")
        another = (200, envelope(transaction("another", status="SUCCESS")))
        service.broken["t0"] = HTML if of == "one transaction" else another

    in_trio(service, waits.wait_for_all)
    kind, when = (momopay.InvalidApiKeyError, 15.0) if of == "a page that is refused" else (ProtocolError, 25.0)
    ended = service.moves if of in FAILED_PAGES else ["t0"]
    assert {identity: type(error) for identity, error in waits.errors.items()} == dict.fromkeys(ended, kind)
    assert waits.ended_at == {identity: when if identity in ended else 65.0 for identity in service.moves}


def test_a_known_end_is_returned_even_if_its_reason_cannot_be_read(sdk: MakeSdk, service: TimedService) -> None:
    """As where the read fails, or lags behind the list."""
    service.add_many(3, (0.0, "FAILED"))
    service.broken = {"t0": HTML, "t1": (503, b""), "t2": (200, envelope(transaction("t2", "PENDING")))}
    ends = sdk(service, max_attempts=1).ends("t0", "t1", "t2")
    assert [(each.status, each.result_desc) for _, each in ends] == [("FAILED", None)] * 3
    assert sorted(set(service.paths)) == ["/transactions", *(f"/transactions/t{number}" for number in range(3))]


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED"])
@pytest.mark.parametrize("failures", [[], [(200, b"junk")]], ids=["not yet ended", "failed"])
def test_a_read_after_a_callback_that_shows_no_end_leaves_the_wait_to_its_schedule(
    sdk: MakeSdk, status: str, failures: list[tuple[int, Any]], service: TimedService
) -> None:
    service.add("a", (4.5, status))
    service.failures = failures
    driver = sdk(service)
    driver.at(4.0, lambda client: client.transactions.notify(reported("a", status)))
    assert driver(lambda client: client.transactions.wait("a")).status == status
    assert service.times == [4.0, 15.0]


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED", "EXPIRED"])
def test_an_end_without_success_costs_one_read_more_for_its_result_code(
    sdk: MakeSdk, status: str, service: TimedService
) -> None:
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, status))
    ends = {ended.transaction_id: ended for _, ended in sdk(service).ends("a", "b")}
    assert ends["b"].result_desc == "done"
    assert service.paths == ["/transactions", "/transactions/b"]


def test_without_a_slot_in_time_an_end_without_success_has_the_fields_of_the_list(
    sdk: MakeSdk, service: TimedService
) -> None:
    service.add_many(2, (0.0, "FAILED"))
    ends = sdk(service, budget=momopay.RateBudget(requests=1)).ends("t0", "t1")
    assert [(when, each.status, each.result_desc) for when, each in ends] == [(15.0, "FAILED", None)] * 2
    assert service.paths == ["/transactions"]


@pytest.mark.parametrize(("limit", "ended_at"), [(300.0, 30.0), (25.0, 25.0)], ids=["three intervals", "the limit"])
def test_an_end_waits_three_intervals_for_its_result_code_and_never_beyond_the_limit(
    limit: float, ended_at: float, service: TimedService
) -> None:
    """Also if it is one of many, and another call has the turn to poll."""
    waits = Concurrent(service)
    for identity in ("t0", "t1", "slow", "pending"):
        service.add(identity, (0.0, "PENDING" if identity == "pending" else "FAILED"))

    async def hang(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(0.0 if request.url.path.endswith("/transactions") else 1000.0)
        return service.respond(request)

    async def work(client: momopay.AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for identity, every in (("slow", 60.0), ("t0", 5.0)):
                tasks.start_soon(partial(waits.wait, client, identity, schedule=PollSchedule(every=every, limit=limit)))
                await anyio.lowlevel.checkpoint()
            many = client.transactions.wait_all(["t1", "pending"], schedule=PollSchedule(every=5.0, limit=limit))
            await waits.run("t1", anext(aiter(many)))

    in_trio(service, work, transport=httpx.MockTransport(hang))
    assert waits.ended_at == dict.fromkeys(["t0", "t1"], ended_at) | {"slow": min(limit, 105.0)}
    assert {each.result_desc for each in waits.seen.values()} == {None}


@pytest.mark.parametrize("failing_until", [0.0, 50.0])
def test_a_failed_payout_is_read_in_full_once_for_each_status_and_not_after_every_page(
    failing_until: float, service: TimedService
) -> None:
    """A full read that failed is made again when a page shows that end again."""
    service.add("a", (0.0, "FAILED"), (60.0, "REVERSED"), type="B2C")
    service.add("b")
    client, backend = waiting_client(service, max_attempts=1)
    if failing_until:
        service.broken["a"] = (503, b"")
        backend.at(failing_until, service.broken.clear)
    ended = next(iter(client.transactions.wait_all(["a", "b"], until=momopay.settled)))
    assert (ended.status, ended.result_desc) == ("REVERSED", "done")
    reads = [when for when, path in service.requests if path == "/transactions/a"]
    assert reads == ([15.0, 25.0, 35.0, 45.0, 55.0, 65.0] if failing_until else [15.0, 65.0])


@pytest.mark.parametrize("kind", ["payment", "entry"])
def test_a_failed_payout_has_not_settled_where_a_read_leaves_its_type_out(
    sdk: MakeSdk, kind: str, service: TimedService
) -> None:
    """The journal's payment or entry says that it is a payout, which may still be REVERSED."""
    service.add("a", (0.0, "FAILED"), (60.0, "REVERSED"), type=None)
    given: momopay.Payment | momopay.JournalEntry = momopay.Payment(
        kind=momopay.EntryKind.PAYOUT,
        reference="P",
        transaction_id="a",
        status=momopay.TransactionStatus.FAILED,
        amount=Decimal(10),
        phone="254712345678",
    )
    if kind == "entry":
        fields = {"kind": "PAYOUT", "reference": "P", "wire_reference": "P", "state": "ACCEPTED", "created_at": START}
        accepted = {"transaction_id": "a", "amount": 10, "phone": "254712345678", "sent_at": START}
        given = momopay.JournalEntry.model_validate({**accepted, **fields, "transactions": [accepted]})
    assert sdk(service)(lambda client: client.transactions.wait(given, until=momopay.settled)).status == "REVERSED"


def test_what_ends_one_wait_does_not_end_the_others_and_one_error_names_each(
    sdk: MakeSdk, service: TimedService
) -> None:
    seen = list[Event]()
    service.add("a", (0.0, "SUCCESS"))
    service.add("late", (40.0, "FAILED"))
    service.add_many(2)
    service.broken["t1"] = HTML
    service.unlisted.add("t1")
    driver = sdk(service, on_event=seen.append)
    with pytest.raises(WaitTimeoutError, match="3 transactions have not ended: ") as caught:
        driver.ends("gone", "a", "t0", "t1", "late")
    assert sorted(caught.value.pending) == ["gone", "t0", "t1"]
    assert all(identity in str(caught.value) for identity in caught.value.pending)
    assert caught.value.last is not None
    assert caught.value.last.transaction_id == "t0"
    assert [(when, each.transaction_id) for when, each in driver.ended] == [(15.0, "a"), (45.0, "late")]
    reported = {each.transaction_id: (each.error, each.seconds) for each in seen if isinstance(each, WaitEnded)}
    assert reported == {
        "a": (None, 15.0),
        "late": (None, 45.0),
        "gone": (TransactionNotFoundError, 15.0),
        "t1": (ProtocolError, 25.0),
        "t0": (WaitTimeoutError, 300.0),
    }


@pytest.mark.parametrize("answer", [(404, refusal("TRANSACTION_NOT_FOUND")), (400, refusal("INVALID_UUID"))])
def test_a_single_transaction_that_is_not_found_is_named(
    sdk: MakeSdk, answer: tuple[int, Any], service: TimedService
) -> None:
    service.add("a", (40.0, "SUCCESS"))
    service.broken["gone"] = answer
    driver = sdk(service)
    for use in (lambda: driver(lambda client: client.transactions.wait("gone")), lambda: driver.ends("a", "gone")):
        with pytest.raises(TransactionNotFoundError, match="transaction gone: ") as caught:
            use()
        assert (caught.value.pending, caught.value.code) == (("gone",), answer[1]["error"]["code"])
    assert [each.transaction_id for _, each in driver.ended] == ["a"]


@pytest.mark.parametrize("by_record", [True, False], ids=["a record", "an id"])
@pytest.mark.parametrize(("found_from", "ends"), [(50.0, 55.0), (1000.0, 65.0)], ids=["in time", "too late"])
def test_what_the_service_has_accepted_may_be_missing_for_a_minute(
    service: TimedService, sdk: MakeSdk, found_from: float, ends: float, *, by_record: bool
) -> None:
    service.unlisted.add(service.add(f"t-{found_from}-{by_record}", (0.0, "SUCCESS")))
    service.broken = dict.fromkeys([*service.moves, "typed"], (404, refusal("TRANSACTION_NOT_FOUND")))
    driver = sdk(service)
    driver.at(found_from, lambda _client: service.broken.clear())
    prompt = driver(lambda client: client.stk.initiate(amount=100, phone="0712345678", account_reference="INV-1"))
    given = prompt if by_record else prompt.transaction_id
    with nullcontext() if ends < 60.0 else pytest.raises(TransactionNotFoundError):
        assert driver(lambda client: client.transactions.wait(given)).status == "SUCCESS"
    assert service.times[-1] == ends
    service.broken["typed"] = (404, refusal("TRANSACTION_NOT_FOUND"))
    with pytest.raises(TransactionNotFoundError):  # an id that is wrong is refused at once
        driver(lambda client: client.transactions.wait("typed"))
    assert service.times[-1] == ends + 15.0


@pytest.mark.parametrize("wrong", ["", "..", "x" * 300, 7, None])
def test_what_is_not_an_id_is_refused_at_once(wrong: Any, service: TimedService) -> None:
    client, _ = waiting_client(service)
    for call in (lambda: client.transactions.wait_all(["a", wrong]), lambda: client.transactions.wait(wrong)):
        with pytest.raises(momopay.RequestValidationError, match="transaction_id"):
            call()
    with pytest.raises(momopay.RequestValidationError, match="transaction_id"):
        client.transactions.notify(wrong)
    with pytest.raises(momopay.RequestValidationError, match="parse_callback"):
        client.transactions.confirm(wrong)
    with pytest.raises(momopay.RequestValidationError, match="ids: "):
        client.transactions.wait_all("abc")
    for about in ("for which nobody waits", Transaction.model_validate(transaction("a"))):
        client.transactions.notify(about)
    assert service.requests == []


def begun(client: momopay.Client, identity: str, **schedule: float) -> Iterator[momopay.Transaction]:
    """Return a wait that has begun, since another payment that it waited for had ended already."""
    done = momopay.Transaction.model_validate(transaction("done", "SUCCESS"))
    ends = iter(client.transactions.wait_all([done, identity], schedule=PollSchedule(**schedule)))
    assert next(ends) is done
    return ends


def test_each_wait_keeps_its_own_interval(service: TimedService) -> None:
    service.add("slow")
    service.add("quick", (0.5, "SUCCESS"))
    client, _ = waiting_client(service)
    slow = begun(client, "slow", first=0.1, every=60.0, limit=100.0)
    quick = PollSchedule(first=0.1, every=0.3, limit=4.0)
    assert client.transactions.wait("quick", schedule=quick).status == "SUCCESS"
    assert service.clock() < 1.5
    with pytest.raises(WaitTimeoutError):
        next(slow)


def test_waits_that_are_over_cost_no_request(service: TimedService) -> None:
    service.add("abandoned")
    service.add("a", (100.0, "SUCCESS"))
    client, backend = waiting_client(service)
    over = begun(client, "abandoned", first=0.0, every=1.0, limit=1.0)
    backend.clock += 2.0
    assert client.transactions.wait("a").status == "SUCCESS"
    assert set(service.paths) == {"/transactions/a"}
    with pytest.raises(WaitTimeoutError):
        next(over)
    service.requests.clear()
    refused = begun(client, "unknown", first=0.0)
    service.add("b", (300.0, "SUCCESS"))
    assert client.transactions.wait("b").status == "SUCCESS"
    assert service.paths.count("/transactions/unknown") == 1
    assert set(service.paths[2:]) == {"/transactions/b"}
    with pytest.raises(momopay.TransactionNotFoundError):
        next(refused)


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED"])
def test_what_has_already_ended_is_returned_at_once(status: str, service: TimedService) -> None:
    service.add("a", (0.0, status))
    service.add("b")
    client, backend = waiting_client(service)
    ended = client.transactions.get("a")
    assert client.transactions.wait(ended) is ended
    assert next(iter(client.transactions.wait_all(["b", ended]))) is ended
    assert service.paths == ["/transactions/a"]
    assert backend.slept == []


@pytest.mark.parametrize("leave", ["break", "an error", "the end"])
def test_an_iteration_that_is_left_costs_nobody_a_request(leave: str, service: TimedService) -> None:
    """Without a ResourceWarning of trio's, which would be an error here."""
    service.add("a", (20.0, "SUCCESS"))
    service.add("b", (200.0, "SUCCESS") if leave != "the end" else (20.0, "SUCCESS"))
    service.add("c", (100.0, "SUCCESS"))

    async def iterate(client: momopay.AsyncClient) -> None:
        async for _ in client.transactions.wait_all(["a", "b"]):
            if leave == "break":
                break
            if leave == "an error":
                raise ZeroDivisionError

    async def work(client: momopay.AsyncClient) -> None:
        with suppress(ZeroDivisionError):
            await iterate(client)
        gc.collect()
        service.requests.clear()
        await client.transactions.wait("c")  # alone: with another wait it would read pages

    in_trio(service, work)
    assert set(service.paths) == {"/transactions/c"}
    gc.collect()


# What a schedule accepts, which statuses are ends, and which failures may pass.


@pytest.mark.parametrize(
    "times",
    [
        *({"first": wrong} for wrong in (-1.0, "soon")),
        *({"every": wrong} for wrong in (0.0, -1.0, float("nan"))),
        *({"limit": wrong} for wrong in (0.0, float("inf"), 1e9 + 1)),
    ],
)
def test_a_senseless_schedule_is_refused(times: dict[str, Any]) -> None:
    PollSchedule(first=0, every=1, limit=1e9)  # a wait may begin at once, and last for years
    with pytest.raises(momopay.ConfigurationError, match="finite seconds"):
        PollSchedule(**times)


@pytest.mark.parametrize(
    ("status", "kind", "is_terminal", "is_settled"),
    [
        *(("PENDING", "STK", False, False), ("FAILED", "STK", True, True)),
        *(("FAILED", "B2C", True, False), ("REVERSED", "B2C", True, True)),
    ],
)
def test_which_statuses_are_ends(status: str, kind: str, *, is_terminal: bool, is_settled: bool) -> None:
    seen = Transaction.model_validate(transaction("a", status, type=kind))
    assert momopay.terminal(seen) is is_terminal
    assert momopay.settled(seen) is is_settled
