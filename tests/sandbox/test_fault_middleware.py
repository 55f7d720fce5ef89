"""Each fault as a client sees it, and whether the payment was made."""

import json
import threading
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Fault, MovementKind, Sandbox
from patience import beside, until
from sandbox.kit import KEY, Receiver, Routes, client, connected, data, error_of, own_sandbox, payouts, transaction_id

PAYOUT = ("POST", "/b2c/payouts")
BROKEN = (httpx.ReadError, httpx.RemoteProtocolError)
HALF_A_PAYOUT = (
    b"POST /v1/b2c/payouts HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic cGtfdGVzdF9zdWl0ZTo=\r\n"
    b'Content-Length: 500\r\n\r\n{"amount": 10, "phone": "0712345678"}'
)


@pytest.mark.parametrize(
    ("fault", "error", "committed"),
    [
        # A hang-up that meets a client still writing shows as a reset to some clients, and a reset as a hang-up.
        (Fault.refuse, BROKEN, 0),
        (Fault.reset_before_read, BROKEN, 0),
        (Fault.reset_after_commit, httpx.ReadError, 1),
        (Fault.truncated, httpx.RemoteProtocolError, 1),
    ],
)
def test_faults_that_disconnect(service: Routes, sandbox: Sandbox, fault: Fault, error: Any, committed: int) -> None:
    sandbox.fail_next(*PAYOUT, fault)
    with pytest.raises(error):
        service.payout()
    assert (payouts(sandbox), sandbox.requests[-1].status) == (committed, 200 if fault is Fault.truncated else None)
    data(service.payout())
    assert payouts(sandbox) == committed + 1


@pytest.mark.parametrize(
    ("fault", "status", "committed"),
    [
        *((Fault.error_before_commit, 500, 0), (Fault.error_after_commit, 500, 1), (Fault.html_502, 502, 0)),
        *((Fault.refused_after_commit, status, 1) for status in (200, 409, 499)),
    ],
)
def test_faults_that_answer(service: Routes, sandbox: Sandbox, fault: Fault, status: int, committed: int) -> None:
    sandbox.fail_next(*PAYOUT, fault, status=status)  # which the other faults do without
    response = service.payout()
    assert response.status_code == status
    if fault is Fault.html_502:
        assert response.headers["content-type"] == "text/html"
    else:
        assert error_of(response) == (status, "INTERNAL_ERROR" if status == 500 else "REQUEST_CONFLICT")
    assert (payouts(sandbox), sandbox.requests[-1].status) == (committed, status)


def test_responses_are_dated_by_the_virtual_clock(sandbox: Sandbox, service: Routes, control: httpx.Client) -> None:
    sandbox.advance(86_400)
    sandbox.fail_next("GET", "/transactions", Fault.error_after_commit)
    sandbox.fail_next("GET", "/transactions", Fault.error_before_commit)
    answers = [service.api.get("/transactions") for _ in range(3)]
    for answer in (*answers, control.get("/sandbox/state")):
        assert answer.headers.get_list("date") == [format_datetime(sandbox.now, usegmt=True)]


def test_truncated_without_length_is_a_whole_answer_with_broken_json(service: Routes, sandbox: Sandbox) -> None:
    sandbox.fail_next(*PAYOUT, Fault.truncated, content_length=False)
    response = service.payout()
    assert (response.status_code, "content-length" in response.headers) == (200, False)
    with pytest.raises(json.JSONDecodeError):
        response.json()


def test_hanging_after_commit_ends_with_the_client(sandbox: Sandbox, service: Routes) -> None:
    sandbox.fail_next(*PAYOUT, "hang_after_commit")
    with client(sandbox.base_url) as hasty:
        hasty.timeout = httpx.Timeout(30, read=0.1)
        with pytest.raises(httpx.ReadTimeout):
            Routes(hasty).payout()
    until(lambda: payouts(sandbox) == 1, "the payout was made")
    assert sandbox.requests[-1].status is None
    data(service.payout())
    assert payouts(sandbox) == 2


@in_turn("fault", [Fault.hang_after_commit, Fault.slow_drip])
def test_closing_ends_what_a_fault_holds_and_half_a_request(caplog: pytest.LogCaptureFixture, fault: Fault) -> None:
    failed = threading.Event()
    with own_sandbox(speed=0) as (sandbox, service):
        half = connected(sandbox)
        half.sendall(HALF_A_PAYOUT)
        until(lambda: sandbox.requests, "the request is being read")
        sandbox.fail_next("GET", "/transactions", fault)

        def read() -> None:
            with pytest.raises(httpx.HTTPError):
                service.api.get("/transactions")
            failed.set()

        with beside(read):
            until(lambda: len(sandbox.requests) == 2, "the request is under way")
            sandbox.close()
    half.close()
    assert failed.is_set()
    assert (caplog.records, sandbox.ledger) == ([], [])


def test_an_encoded_segment_is_matched_and_logged_as_sent(api: httpx.Client, sandbox: Sandbox) -> None:
    sandbox.fail_next("GET", "/transactions/{id}", Fault.html_502)
    assert (api.get("/transactions/a%2Fb").status_code, sandbox.requests[-1].path) == (502, "/transactions/a%2Fb")
    assert error_of(api.get("/transactions/a%2Fb")) == (404, "TRANSACTION_NOT_FOUND")


def test_a_refused_payment_uses_up_its_fault(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    sandbox.fail_next(*PAYOUT, Fault.callback_late)
    assert error_of(service.payout(amount=1)) == (400, "VALIDATION_ERROR")
    service.payout(callbackUrl=receiver.url)
    sandbox.advance(35)
    assert len(receiver.bodies) == 1


NAMED = {
    Fault.other_transaction: {"transactionId", "transaction_id"},
    Fault.other_amount: {"amount"},
    Fault.other_phone: {"phone", "phone_number"},
    Fault.other_reference: {"reference", "accountReference", "external_reference"},
}


def difference(shown: dict[str, Any], true: dict[str, Any]) -> set[str]:
    return {name for name in shown if name in true and shown[name] != true[name]}


@pytest.mark.parametrize("fault", NAMED)
def test_an_acceptance_of_another_was_executed_as_asked(service: Routes, sandbox: Sandbox, fault: Fault) -> None:
    earlier = transaction_id(service.payout(reference="SAL-1"))
    sandbox.fail_next(*PAYOUT, fault)
    shown = data(service.payout())
    made = [each for each in sandbox.ledger if each.kind is MovementKind.payout][-1]
    true = {"transactionId": made.transaction_id, "amount": 250.5, "phone": made.phone, "reference": "SAL-7"}
    (changed,) = difference(shown, true)
    assert (made.reference, changed in NAMED[fault]) == ("SAL-7", True)
    assert fault is not Fault.other_transaction or shown["transactionId"] == earlier
    # So may a read, in both styles.
    styles: list[Any] = ["camelCase", "snake_case"]
    for naming in styles:
        sandbox.account(KEY).switches.naming = naming
        initiated = service.payout()
        read = service.read(initiated)
        sandbox.fail_next("GET", "/transactions/{id}", fault)
        (changed,) = difference(service.read(initiated), read)
        assert changed in NAMED[fault]
        assert service.read(initiated) == read


def test_what_shows_no_transaction_stays_as_it_is(service: Routes, sandbox: Sandbox) -> None:
    for method, path in (PAYOUT, ("GET", "/transactions")):
        sandbox.fail_next(method, path, Fault.other_amount)
    assert service.payout(amount=1).status_code == 400
    assert data(service.api.get("/transactions"))["items"] == []
    # The only transaction of an account gets an id that nobody has.
    sandbox.fail_next(*PAYOUT, Fault.other_transaction)
    assert transaction_id(service.payout()) != sandbox.ledger[0].transaction_id
