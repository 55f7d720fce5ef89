"""Which payments have ended, by polling: each once, with few requests. The sandbox's request log is the witness."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from momopay import Client, ServerError
from momopay.integrations._end_watch import EndWatch
from momopay.sandbox import Account, Outcome, Sandbox, phone_for

PHONE = "0712345678"


@pytest.fixture
def client(sandbox: Sandbox, account: Account, key: str) -> Iterator[Client]:
    account.rate_limit = None
    account.switches.health_rule = False
    with Client(key, base_url=sandbox.base_url, budget=None, max_attempts=1) as client:
        yield client


def pay(client: Client, reference: str = "INV-1", outcome: Outcome = Outcome.success) -> str:
    return client.stk.initiate(amount=100, phone=phone_for(outcome), account_reference=reference).transaction_id


def ended(watch: EndWatch) -> list[str]:
    return [transaction.transaction_id for transaction in watch.poll()]


def test_each_end_is_found_once(client: Client, sandbox: Sandbox) -> None:
    pay(client)
    sandbox.advance(60)
    watch = EndWatch(client)
    open_at_the_start = pay(client)
    assert ended(watch) == [], "what has ended before is not new"
    later = pay(client, outcome=Outcome.cancelled)
    sandbox.advance(60)
    assert ended(watch) == [later, open_at_the_start], "in the order of the ends"
    assert ended(watch) == []


def test_the_first_payment_of_an_account_may_end_between_two_polls(client: Client, sandbox: Sandbox) -> None:
    watch = EndWatch(client)
    assert ended(watch) == []
    first = pay(client)
    sandbox.advance(60)
    assert ended(watch) == [first]


def test_a_payout_that_is_credited_back_ends_once(client: Client, sandbox: Sandbox) -> None:
    watch = EndWatch(client)
    watch.poll()
    payout = client.payouts.initiate(amount=50, phone=phone_for(Outcome.reversed), reference="P-1")
    sandbox.advance(36)
    (failed,) = watch.poll()
    sandbox.advance(30)
    assert (failed.transaction_id, failed.status) == (payout.transaction_id, "FAILED")
    assert client.transactions.get(payout).status == "REVERSED"
    assert ended(watch) == []


def test_a_top_up_has_no_callback(client: Client, sandbox: Sandbox) -> None:
    watch = EndWatch(client)
    watch.poll()
    client.wallet.top_up(amount=100, phone=PHONE)
    sandbox.advance(120)
    assert ended(watch) == []


def test_since_shows_older_ends(client: Client, sandbox: Sandbox) -> None:
    pay(client)
    sandbox.advance(600)
    noon = sandbox.now
    wanted = pay(client)
    sandbox.advance(60)
    assert ended(EndWatch(client, noon)) == [wanted]
    assert len(ended(EndWatch(client, noon - timedelta(hours=1)))) == 2


def test_a_poll_costs_a_page_and_a_read_for_each_end(client: Client, sandbox: Sandbox) -> None:
    for _ in range(8):
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
    assert len(sent) <= 2 + 5 + 1
    assert {transaction.result_code for transaction in found if transaction.status == "FAILED"} == {"1"}


def test_more_than_a_page_is_walked_as_far_as_something_is_open(client: Client, sandbox: Sandbox) -> None:
    slow = pay(client, outcome=Outcome.by_hand)
    watch = EndWatch(client)
    watch.poll()
    for number in range(230):
        pay(client, f"INV-{number}")
        sandbox.advance(0.01)
    sandbox.advance(60)
    assert len(ended(watch)) == 230
    sandbox.enter_pin(slow)
    sandbox.advance(60)
    assert ended(watch) == [slow]
    before = len(sandbox.requests)
    assert ended(watch) == []
    assert len(sandbox.requests) == before + 1, "nothing is open"


def test_a_page_that_shows_older_payments_than_the_first_does_not_make_them_new(
    client: Client, sandbox: Sandbox
) -> None:
    for number in range(150):
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
    with pytest.raises(ServerError):
        watch.poll()
    sandbox.fail_next("GET", "/transactions/{id}", "error_before_commit")
    (shown,) = watch.poll()
    assert (shown.transaction_id, shown.status, shown.tenant_id) == (paid, "SUCCESS", None), "as the list has it"
