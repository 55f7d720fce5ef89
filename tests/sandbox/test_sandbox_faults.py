import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from momopay.sandbox import Fault, MovementKind, Sandbox, _connections
from momopay.sandbox._faults import FaultPlan
from patience import until
from sandbox.kit import KEY, Receiver, Service, data, refusal

if TYPE_CHECKING:
    from momopay.sandbox._server import Server

Errors = type[Exception] | tuple[type[Exception], ...]
PAYOUT = ("POST", "/b2c/payouts")


def _payouts(sandbox: Sandbox) -> int:
    return sum(entry.kind is MovementKind.payout for entry in sandbox.ledger)


@pytest.mark.parametrize(
    ("fault", "error", "committed"),
    [
        # A hang-up that meets a client still writing shows as a reset to some clients, and a reset as a hang-up.
        (Fault.refuse, (httpx.ReadError, httpx.RemoteProtocolError), 0),
        (Fault.reset_before_read, (httpx.ReadError, httpx.RemoteProtocolError), 0),
        (Fault.reset_after_commit, httpx.ReadError, 1),
        (Fault.truncated, httpx.RemoteProtocolError, 1),
    ],
)
def test_faults_that_break_the_connection(
    service: Service,
    sandbox: Sandbox,
    fault: Fault,
    error: Errors,
    committed: int,
) -> None:
    sandbox.fail_next(*PAYOUT, fault)
    with pytest.raises(error):
        service.payout()
    assert _payouts(sandbox) == committed
    assert sandbox.requests[-1].status == (200 if fault is Fault.truncated else None)
    data(service.payout())
    assert _payouts(sandbox) == committed + 1


def test_a_reset_is_a_reset(sandbox: Sandbox) -> None:
    sandbox.fail_next("GET", "/transactions", Fault.reset_after_commit)
    port = httpx.URL(sandbox.base_url).port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET /v1/transactions HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


@pytest.mark.parametrize(
    ("fault", "status", "committed"),
    [
        (Fault.error_before_commit, 500, 0),
        (Fault.error_after_commit, 500, 1),
        (Fault.html_502, 502, 0),
    ],
)
def test_faults_that_answer(service: Service, sandbox: Sandbox, fault: Fault, status: int, committed: int) -> None:
    sandbox.fail_next(*PAYOUT, fault)
    response = service.payout()
    assert response.status_code == status
    if status == 500:
        assert refusal(response) == (500, "INTERNAL_ERROR")
    else:
        assert response.headers["content-type"] == "text/html"
    assert _payouts(sandbox) == committed
    assert sandbox.requests[-1].status == status


def test_truncated_without_content_length_is_a_whole_answer_with_broken_json(
    service: Service, sandbox: Sandbox
) -> None:
    sandbox.fail_next(*PAYOUT, Fault.truncated, content_length=False)
    response = service.payout()
    assert response.status_code == 200
    assert "content-length" not in response.headers
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        response.json()


def test_hanging_after_commit_ends_with_the_client(sandbox: Sandbox) -> None:
    sandbox.fail_next(*PAYOUT, "hang_after_commit")
    with httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), timeout=0.3, trust_env=False) as api:
        with pytest.raises(httpx.ReadTimeout):
            Service(api).payout()
        data(Service(api).payout())
    assert _payouts(sandbox) == 2


def test_a_slow_drip_is_slow_and_whole(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connections, "DRIP_INTERVAL", 0.003)
    sandbox.fail_next("DELETE", "/payment-wallet/channels/{id}", Fault.slow_drip)
    with httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), timeout=5, trust_env=False) as api:
        started = time.monotonic()
        with api.stream("DELETE", "/payment-wallet/channels/nope") as response:
            assert time.monotonic() - started > 0.2
            assert response.status_code == 404
            response.read()
            assert refusal(response) == (404, "CHANNEL_NOT_FOUND")


@pytest.mark.parametrize("fault", [Fault.hang_after_commit, Fault.slow_drip])
def test_closing_waits_for_no_fault(fault: Fault) -> None:
    failed = threading.Event()
    with Sandbox(speed=0) as sandbox:
        sandbox.fail_next("GET", "/transactions", fault)

        def read() -> None:
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"{sandbox.base_url}/transactions", auth=(KEY, ""), timeout=30, trust_env=False)
            failed.set()

        thread = threading.Thread(target=read)
        thread.start()
        until(lambda: bool(sandbox.requests), "the request came")
        time.sleep(0.1)
        started = time.monotonic()
    assert time.monotonic() - started < 4
    thread.join()
    assert failed.is_set()


def test_which_request_a_fault_strikes(service: Service, api: httpx.Client, sandbox: Sandbox) -> None:
    sandbox.fail_next("get", "/transactions/{id}", Fault.error_before_commit, times=2)
    sandbox.fail_next("GET", "/transactions/b", Fault.html_502)
    assert api.get("/transactions").status_code == 200
    assert api.get("/wallets/service/balance").status_code == 200
    assert [api.get(f"/transactions/{name}").status_code for name in "abbb"] == [500, 500, 502, 404]
    sandbox.fail_next("GET", "/transactions", Fault.error_before_commit)
    assert api.get("/transactions?limit=5").status_code == 500
    data(service.stk())


@pytest.mark.parametrize("path", ["/transactions/*", "transactions/{id}", "transactions/*"])
def test_a_path_may_begin_without_its_slash_and_hold_a_star(api: httpx.Client, sandbox: Sandbox, path: str) -> None:
    sandbox.fail_next("GET", path, Fault.html_502)
    assert api.get("/transactions/a").status_code == 502


def test_a_template_matches_an_encoded_segment_too(api: httpx.Client, sandbox: Sandbox) -> None:
    sandbox.fail_next("GET", "/transactions/{id}", Fault.html_502)
    assert api.get("/transactions/a%20b").status_code == 502
    assert sandbox.requests[-1].path == "/transactions/a%20b"


@pytest.mark.parametrize(
    ("path", "fault", "times"), [("/transactions", "nope", 1), ("x", "refuse", 1), ("/transactions", "refuse", 0)]
)
def test_a_senseless_fault_is_refused(sandbox: Sandbox, path: str, fault: str, times: int) -> None:
    with pytest.raises(ValueError, match=r"Fault|no GET /x|times"):
        sandbox.fail_next("GET", path, fault, times)


def test_a_pattern_is_taken_literally_but_for_its_braces() -> None:
    plan = FaultPlan()
    plan.add("GET", "/transactions/a.{x}", Fault.refuse)
    assert plan.take("GET", "/transactions/ab1") is None
    assert plan.take("GET", "/transactions/a.1/2") is None
    assert plan.take("POST", "/transactions/a.1") is None
    assert plan.take("GET", "/transactions/a.1") is not None
    assert plan.take("GET", "/transactions/a.1") is None


def test_a_payment_refused_under_a_fault_is_still_refused(
    service: Service, sandbox: Sandbox, receiver: Receiver
) -> None:
    sandbox.fail_next(*PAYOUT, Fault.callback_late)
    assert refusal(service.payout(amount=1)) == (400, "VALIDATION_ERROR")
    service.payout(callbackUrl=receiver.url)
    sandbox.advance(35)
    assert len(receiver.bodies) == 1


def test_requests_are_noted_without_their_key(service: Service, sandbox: Sandbox) -> None:
    service.api.get("/transactions", params={"limit": 5})
    service.stk()
    first, second = sandbox.requests
    assert (first.method, first.path, first.query, first.status) == ("GET", "/transactions", "limit=5", 200)
    assert (second.method, second.path, second.status) == ("POST", "/payments/stk", 200)
    body: Any = second.json
    assert body["amount"] == 100
    assert first.json is None
    assert "user-agent" in first.headers
    for request in (first, second):
        assert "authorization" not in request.headers
        assert KEY not in repr(request)


def test_a_client_that_hung_up_first_is_no_error(sandbox: Sandbox) -> None:
    server: Server = vars(sandbox)["_server"]
    assert server.transport_of({"client": ("127.0.0.1", 1)}) is None


_HALF = (
    b"POST /v1/b2c/payouts HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic cGtfdGVzdF9zdWl0ZTo=\r\n"
    b'Content-Length: 500\r\n\r\n{"amount": 10, "phone": "0712345678"}'
)


def test_half_a_request_moves_no_money(sandbox: Sandbox, service: Service) -> None:
    with socket.create_connection(("127.0.0.1", httpx.URL(sandbox.url).port or 0)) as client:
        client.sendall(_HALF)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(5)
        while client.recv(1000):
            pass
    assert data(service.api.get("/transactions"))["items"] == []
    assert sandbox.ledger == []


def test_close_does_not_wait_for_the_rest_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    with Sandbox() as sandbox:
        client = socket.create_connection(("127.0.0.1", httpx.URL(sandbox.url).port or 0))
        client.sendall(_HALF)
        until(lambda: bool(sandbox.requests), "the request came")
        started = time.monotonic()
    assert time.monotonic() - started < 4
    client.close()
    assert caplog.records == []
    assert sandbox.ledger == []


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/payouts"), ("POST", "/v1/b2c/payouts"), ("GET", "/b2c/payouts")]
)
def test_a_fault_that_could_never_strike_is_refused(sandbox: Sandbox, method: str, path: str) -> None:
    with pytest.raises(ValueError, match="the service has no"):
        sandbox.fail_next(method, path, Fault.refuse)


def test_a_reset_returns_to_the_present(sandbox: Sandbox) -> None:
    before = sandbox.now
    sandbox.advance(86_400)
    sandbox.reset()
    assert abs((sandbox.now - before).total_seconds()) < 60
