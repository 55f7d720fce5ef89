"""Forwarding ends to an application: as the service would, to this machine alone, again until it is acknowledged."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

import momopay
import wire
from bodies import envelope, page, refusal, transaction
from momopay import CallbackSigner, Client, InvalidApiKeyError, Journal, MomoPayError, Payment
from momopay._transport.sync_backend import SyncBackend
from momopay.integrations._listener import EndWatch, ForwardedEnd, Listener, post_callback
from momopay.integrations.flask import callback_endpoint
from momopay.sandbox import Account, Outcome, Sandbox, phone_for
from sandbox.kit import Receiver
from served import wsgi_served
from virtual import virtual_client

PHONE = "0712345678"
SECRET = "a shop's own secret, long enough"


class Over(BaseException):
    """The time of a test is over."""


class SandboxTime(SyncBackend):
    """Sends for real, and waits in the sandbox's time, for so many seconds in all."""

    def __init__(self, sandbox: Sandbox, seconds: float) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._end = self.now() + seconds

    def now(self) -> float:
        return self._sandbox.now.timestamp()

    async def sleep(self, seconds: float) -> None:
        if self.now() + seconds > self._end:
            raise Over
        self._sandbox.advance(seconds)


@pytest.fixture
def client(sandbox: Sandbox, account: Account, key: str) -> Iterator[Client]:
    account.rate_limit = None
    account.switches.health_rule = False
    with Client(key, base_url=sandbox.base_url, budget=None, max_attempts=1) as client:
        yield client


def listen(
    client: Client, sandbox: Sandbox, url: str, *, seconds: float = 120.0, **options: Any
) -> Generator[ForwardedEnd | MomoPayError]:
    listener = Listener(client, url, backend=SandboxTime(sandbox, seconds), **options)
    try:
        yield from listener.run()
    except Over:
        return


def deliveries(*arguments: Any, **options: Any) -> list[ForwardedEnd]:
    return [each for each in listen(*arguments, **options) if isinstance(each, ForwardedEnd)]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        *((Outcome.success, "SUCCESS"), (Outcome.insufficient_funds, "FAILED"), (Outcome.cancelled, "CANCELLED")),
        (Outcome.expired, "EXPIRED"),
    ],
)
@pytest.mark.parametrize("kind", ["STK", "B2C"])
def test_the_callback_is_the_service_s_own_without_its_receipt(
    client: Client, sandbox: Sandbox, receiver: Receiver, outcome: Outcome, status: str, kind: str
) -> None:
    url = "https://shop.example/momo"  # recorded by the sandbox, and not sent
    if kind == "STK":
        client.stk.initiate(amount=100, phone=phone_for(outcome), account_reference="INV-42", callback_url=url)
    else:
        client.payouts.initiate(amount=100, phone=phone_for(outcome), reference="SAL-42", callback_url=url)
    (delivery,) = deliveries(client, sandbox, receiver.url)
    (body,) = receiver.bodies
    own: Any = sandbox.callbacks[0].payload
    differing = {name for name, value in own["transaction"].items() if body["transaction"][name] != value}
    # When a payout was credited back is later than when it failed.
    assert differing <= {"momo_receipt", "updated_at"} | ({"status"} if kind == "B2C" else set())
    assert body["transaction"].keys() == own["transaction"].keys()
    assert (body["event"], body["event_type"]) == (own["event"], own["event_type"])
    assert body["transaction"]["momo_receipt"] is None
    assert (delivery.http_status, delivery.is_acknowledged, delivery.attempt) == (200, True, 1)
    if kind == "STK":
        assert delivery.status == body["transaction"]["status"] == status


@contextmanager
def shop(client: Client, journal: Journal, confirmed: list[tuple[str, str]]) -> Generator[str]:
    def handle(payment: Payment) -> None:
        confirmed.append((payment.reference, payment.status))

    app, own = Flask("shop"), client.with_options(journal=journal)
    app.post("/momo")(callback_endpoint(handle, client=own, signer=CallbackSigner(SECRET)))
    with wsgi_served(app) as address:
        yield f"{address}/momo"


def test_an_application_verifies_the_url_and_confirms(client: Client, sandbox: Sandbox, tmp_path: Path) -> None:
    confirmed: list[tuple[str, str]] = []
    with Journal(f"sqlite:///{tmp_path / 'shop.db'}") as journal, shop(client, journal, confirmed) as url:
        client.stk.initiate(amount=100, phone=PHONE, account_reference="INV-42")
        client.stk.initiate(amount=100, phone=phone_for(Outcome.cancelled), account_reference="INV-43")
        client.payouts.pay_once(journal=journal, reference="SAL-1", amount=50, phone=PHONE)
        signed = deliveries(client, sandbox, url, signer=CallbackSigner(SECRET))
        assert [each.http_status for each in signed] == [200, 200, 200]
        assert sorted(confirmed) == [("INV-42", "SUCCESS"), ("INV-43", "CANCELLED"), ("SAL-1", "SUCCESS")]
        for other in (None, CallbackSigner("another secret, long enough")):
            client.stk.initiate(amount=100, phone=PHONE, account_reference="INV-44")
            refused = deliveries(client, sandbox, url, signer=other)
            assert {each.http_status for each in refused} == {403}
    assert len(confirmed) == 3


def test_an_application_that_is_down_and_comes_back(client: Client, sandbox: Sandbox, receiver: Receiver) -> None:
    answers = iter([500, 404, 302, 200])
    receiver.answer = lambda _body: next(answers)
    client.stk.initiate(amount=100, phone=PHONE, account_reference="INV-42")
    found = deliveries(client, sandbox, receiver.url, seconds=600, every=7)
    assert [(each.attempt, each.http_status, each.retry_in) for each in found] == [
        *((1, 500, 10), (2, 404, 30), (3, 302, 60), (4, 200, None)),
    ]
    assert receiver.bodies == [receiver.bodies[0]] * 4


def test_an_answer_that_breaks_off_acknowledges_nothing() -> None:
    with wire.serve(wire.truncated()) as server:
        status, body, problem = post_callback(server.base_url, b"{}")
    assert (status, body, bool(problem)) == (None, b"", True)


def test_a_delivery_is_given_up_where_the_service_would(client: Client, sandbox: Sandbox) -> None:
    client.stk.initiate(amount=100, phone=PHONE)
    found = deliveries(client, sandbox, "http://127.0.0.1:1/momo", seconds=700, every=30)
    assert [each.retry_in for each in found] == [10, 30, 60, 120, 300, None]
    assert {each.http_status for each in found} == {None}
    assert all("Connect" in (each.problem or "") for each in found)


def test_one_that_fails_holds_up_no_other(client: Client, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.answer = lambda body: 500 if body["transaction"]["external_reference"] == "BAD" else 200
    for reference in ("BAD", "GOOD"):
        client.stk.initiate(amount=100, phone=PHONE, account_reference=reference)
    found = deliveries(client, sandbox, receiver.url, seconds=60)
    assert [each.http_status for each in found if each.reference == "GOOD"] == [200]
    assert [each.http_status for each in found if each.reference == "BAD"] == [500, 500]


def test_nothing_but_reads_is_sent_to_the_service(client: Client, sandbox: Sandbox, receiver: Receiver) -> None:
    client.stk.initiate(amount=100, phone=PHONE)
    before = len(sandbox.requests)
    deliveries(client, sandbox, receiver.url, seconds=120)
    sent = sandbox.requests[before:]
    assert {request.method for request in sent} == {"GET"}
    assert len(sent) == 13 + 1, "a page every ten seconds, and the end by its id"


def test_a_poll_that_fails_is_reported_and_repeated(client: Client, sandbox: Sandbox, receiver: Receiver) -> None:
    client.stk.initiate(amount=100, phone=PHONE)
    listening = Listener(client, receiver.url, backend=SandboxTime(sandbox, 120)).run()
    yielded = list[object]()
    try:
        for number, each in enumerate(listening):
            yielded.append(type(each).__name__)
            if number == 0:
                sandbox.fail_next("GET", "/transactions", "error_before_commit", times=2)
                client.stk.initiate(amount=100, phone=PHONE)
    except Over:
        pass
    assert yielded == ["ForwardedEnd", "ServerError", "ServerError", "ForwardedEnd"]


def test_a_revoked_key_ends_it() -> None:
    polls = iter([(200, envelope(page([])))])
    client, backend = virtual_client(lambda _method, _path: next(polls, (401, refusal("INVALID_API_KEY"))))
    for _ in range(2):  # at a later poll, and at the first
        with pytest.raises(InvalidApiKeyError):
            next(Listener(client, "http://localhost:1/momo", backend=backend).run())


def pay(client: Client, reference: str = "INV-1", outcome: Outcome = Outcome.success) -> str:
    return client.stk.initiate(amount=100, phone=phone_for(outcome), account_reference=reference).transaction_id


def ended(watch: EndWatch) -> list[str]:
    return [transaction.transaction_id for transaction in watch.poll()]


def test_each_end_is_found_once(client: Client, sandbox: Sandbox) -> None:
    watch = EndWatch(client)
    assert ended(watch) == []
    first = pay(client)
    client.wallet.top_up(amount=100, phone=PHONE)  # which has no callback
    sandbox.advance(60)
    assert ended(watch) == [first]
    watch = EndWatch(client)
    open_at_the_start = pay(client, outcome=Outcome.cancelled)
    assert ended(watch) == [], "what has ended before is not new"
    later = pay(client)
    sandbox.advance(60)
    assert ended(watch) == [open_at_the_start, later], "in the order of the ends"
    payout = client.payouts.initiate(amount=50, phone=phone_for(Outcome.reversed), reference="P-1")
    sandbox.advance(36)
    (failed,) = watch.poll()
    sandbox.advance(60)
    assert (failed.transaction_id, failed.status) == (payout.transaction_id, "FAILED")
    assert client.transactions.get(payout).status == "REVERSED"
    assert ended(watch) == [], "it ended once"


FIRST_DAY, A_DAY, LAST_DAY = "0001-01-01T00:00:00Z", "2026-11-20T10:00:00Z", "9999-12-31T23:59:59Z"


@pytest.mark.parametrize(("when", "newest"), [(FIRST_DAY, None), (LAST_DAY, None), (A_DAY, A_DAY), (A_DAY, FIRST_DAY)])
def test_no_time_hides_an_end(when: str, newest: str | None) -> None:
    """At the edge of the calendar; and the end is on the second page, after one whose times say nothing."""
    statuses = iter(["PENDING", "SUCCESS", "SUCCESS"])

    def handler(_method: str, path: str) -> tuple[int, object]:
        if path.startswith("/transactions/"):
            return 200, envelope(transaction("T", "SUCCESS", createdAt=when, updatedAt=when))
        if newest is not None and "cursor=" not in path:
            items = [transaction("newest", createdAt=newest), transaction("x", createdAt=FIRST_DAY)]
            return 200, envelope(page(items, "2"))
        return 200, envelope(page([transaction("T", next(statuses), createdAt=when, updatedAt=when), transaction("y")]))

    watch = EndWatch(virtual_client(handler)[0])
    assert [ended(watch) for _ in range(3)] == [[], ["T"], []]


def test_a_poll_costs_a_page_and_a_read_for_each_end(client: Client, sandbox: Sandbox) -> None:
    for _ in range(20):
        pay(client)
    pay(client, outcome=Outcome.insufficient_funds)
    watch = EndWatch(client)
    watch.poll()
    sandbox.advance(120)
    before = len(sandbox.requests)
    found = watch.poll()
    watch.poll()
    sent = sandbox.requests[before:]
    assert {request.method for request in sent} == {"GET"}
    assert [request.path for request in sent].count("/transactions") == 2
    assert len(sent) == 2 + 21
    assert {transaction.result_code for transaction in found if transaction.status == "FAILED"} == {"1"}


def test_more_than_a_page_is_walked_as_far_as_something_is_open(client: Client, sandbox: Sandbox) -> None:
    slow = pay(client, outcome=Outcome.by_hand)
    watch = EndWatch(client)
    watch.poll()
    for number in range(105):
        pay(client, f"INV-{number}")
        sandbox.advance(0.01)
    sandbox.advance(60)
    assert len(ended(watch)) == 105
    sandbox.enter_pin(slow)
    sandbox.advance(60)
    assert ended(watch) == [slow]


def test_a_page_with_older_payments_than_the_first_does_not_make_them_new(client: Client, sandbox: Sandbox) -> None:
    for number in range(60):
        pay(client, f"INV-{number}")
    sandbox.advance(2 * 3600)
    for number in range(60):
        pay(client, f"NEW-{number}", Outcome.by_hand)
    watch = EndWatch(client)
    assert watch.poll() == []
    for number in range(50):
        pay(client, f"MORE-{number}", Outcome.by_hand)
    assert watch.poll() == [], "the second page has some that the first poll did not see"


def test_a_poll_that_failed_loses_nothing(client: Client, sandbox: Sandbox) -> None:
    watch = EndWatch(client)
    watch.poll()
    paid = pay(client)
    sandbox.advance(60)
    sandbox.fail_next("GET", "/transactions", "error_before_commit")
    with pytest.raises(momopay.ServerError):
        watch.poll()
    sandbox.fail_next("GET", "/transactions/{id}", "error_before_commit")
    (shown,) = watch.poll()
    assert (shown.transaction_id, shown.status, shown.tenant_id) == (paid, "SUCCESS", None), "as the list has it"
