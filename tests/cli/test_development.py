"""The sandbox as a command; and callbacks to an application: made up or forwarded, to this machine alone."""

import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from cli.kit import NORMALISED, PHONE, Shell, loses_a_connection, signalling
from in_turn import in_turn
from momopay import CallbackSigner, Client, parse_callback
from momopay._transport import attempt
from momopay._transport.sync_backend import SyncBackend
from momopay.sandbox import Sandbox
from sandbox.kit import Receiver

SEND = ("callback", "send")
SECRET = "0123456789abcdef0123"
ELSEWHERE = ("https://shop.example/momo", "http://192.168.1.4/momo", "http://web:8000/momo", "http://0.0.0.0/x")


@pytest.mark.parametrize(
    ("end", "code"), [("success", "0"), ("failed", "1"), ("cancelled", "1032"), ("expired", "1037")]
)
def test_every_callback(momopay: Shell, receiver: Receiver, sandbox: Sandbox, end: str, code: str) -> None:
    made_up = ("--reference", "INV-7", "--amount", "99.50", "--phone", PHONE, "--type", "B2C")
    assert momopay(*SEND, end, "--to", receiver.url, *made_up).prints(0, "200", "of 30 s")
    (body,) = receiver.bodies
    callback = parse_callback(body)
    reported = callback.transaction
    assert (callback.event_type, reported.result_code, reported.type) == (f"transaction.{end}", code, "B2C")
    assert reported.status == end.upper()
    assert (reported.external_reference, str(reported.amount), reported.phone) == ("INV-7", "99.5", NORMALISED)
    assert (reported.momo_receipt is None) == (end != "success")
    assert sandbox.requests == []


def test_a_payments_callback_is_confirmed(momopay: Shell, client: Client, receiver: Receiver, sandbox: Sandbox) -> None:
    paid = client.stk.initiate(amount=5, phone=PHONE, account_reference="INV-8", callback_url=receiver.url)
    sandbox.advance(60)
    assert momopay(*SEND, "success", "--to", receiver.url, "--transaction", paid.transaction_id).code == 0
    real, sent = receiver.bodies
    assert sent.keys() == real.keys()
    for name, value in real["transaction"].items():
        assert isinstance(sent["transaction"][name], type(value)), name
    assert client.transactions.confirm(parse_callback(sent)).status == "SUCCESS"


def test_what_the_answer_means(momopay: Shell, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 500
    refused = momopay(*SEND, "success", "--to", receiver.url, "--times", "2", "--json")
    assert refused.code == 1
    assert [(line["status"], line["acknowledged"]) for line in refused.lines] == [(500, False)] * 2
    assert receiver.bodies[0] == receiver.bodies[1]
    assert momopay(*SEND, "success", "--to", receiver.url).prints(1, "Not acknowledged", "500")
    assert momopay(*SEND, "success", "--to", "http://127.0.0.1:1/momo").prints(6, "ConnectError")


def test_a_signed_url_verifies(momopay: Shell, receiver: Receiver) -> None:
    command = (*SEND, "success", "--to", f"{receiver.url}?shop=1", "--reference", "A")
    signed = momopay(*command, MOMOPAY_CALLBACK_SECRET=SECRET)
    assert (signed.code, CallbackSigner(SECRET).verify(receiver.paths[0])) == (0, "A")
    assert receiver.paths[0].startswith("/momo?shop=1&")
    assert "momo_token" not in signed.out + signed.err
    momopay(*command)
    assert receiver.paths[1] == "/momo?shop=1"


@in_turn("command", [(*SEND, "success", "--to"), ("listen", "--forward-to")])
def test_callbacks_are_sent_to_this_machine_alone_unless_allowed(
    momopay: Shell, sandbox: Sandbox, command: tuple[str, ...]
) -> None:
    for url in (*ELSEWHERE, "ftp://localhost/x", "x"):
        for named in ((), ("--allow-host", "Shop")):
            assert momopay(*command, url, *named).says(2, f"{command[-1]}: ", "--allow-host")
    assert sandbox.requests == []


def test_a_callback_is_sent_to_a_host_that_was_allowed(momopay: Shell) -> None:
    assert momopay(*SEND, "success", "--to", "http://shop.invalid/momo", "--allow-host", "Shop.invalid").code == 6


@pytest.fixture
def quick_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener's clock runs twenty times as fast, so that it need not be waited for."""

    class Quick(SyncBackend):
        @staticmethod
        def now() -> float:
            return attempt.now() * 20

        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds / 20)

    monkeypatch.setattr("momopay.integrations._listener.SyncBackend", Quick)


def once_forwarded(client: Client, sandbox: Sandbox, receiver: Receiver) -> Callable[[], bool]:
    """Make a payment once the command has polled, and return whether its end has been forwarded and shown."""
    paid, polls_when_forwarded = list[str](), list[int]()

    def polls() -> int:
        return [request.path for request in sandbox.requests].count("/transactions")

    def holds() -> bool:
        if polls() and not paid:
            paid.append(client.stk.initiate(amount=5, phone=PHONE, account_reference=PHONE).transaction_id)
            sandbox.advance(60)
        if receiver.bodies and not polls_when_forwarded:
            polls_when_forwarded.append(polls())
        # The command has not read the answer yet when the application has the body. It polls again once it has.
        return bool(polls_when_forwarded) and polls() > polls_when_forwarded[0]

    return holds


@loses_a_connection
@pytest.mark.usefixtures("quick_listener")
def test_listen_shows_ends_until_ctrl_c(momopay: Shell, client: Client, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 503
    with signalling([signal.SIGINT], once_forwarded(client, sandbox, receiver)):
        done = momopay("listen", "--forward-to", receiver.url, "--every", "1")
    (body,), (line,) = receiver.bodies, done.out.splitlines()
    assert (done.code, body["transaction"]["id"] in line, "not signed" in done.err) == (130, True, True)
    assert line.endswith("SUCCESS  503; again in 10 s")
    assert [phone for phone in (NORMALISED, PHONE) if phone in done.out + done.err] == []


@loses_a_connection
@pytest.mark.usefixtures("quick_listener")
def test_listen_signs_and_writes_json(momopay: Shell, client: Client, sandbox: Sandbox, receiver: Receiver) -> None:
    command = ("listen", "--forward-to", receiver.url, "--every", "1", "--json")
    with signalling([signal.SIGINT], once_forwarded(client, sandbox, receiver)):
        done = momopay(*command, MOMOPAY_CALLBACK_SECRET=SECRET)
    assert done.code == 130
    delivery = done.json
    assert (delivery["status"], delivery["http_status"], delivery["attempt"]) == ("SUCCESS", 200, 1)
    assert CallbackSigner(SECRET).verify(receiver.paths[0]) == PHONE
    assert "momo_token" not in done.out + done.err


@pytest.mark.usefixtures("live_keys")
@pytest.mark.usefixtures("no_backoff")
def test_listen_says_that_a_key_is_live_and_polls_once_a_second_at_most(momopay: Shell, receiver: Receiver) -> None:
    live = {"MOMOPAY_API_KEY": "mno_live_abcdef", "MOMOPAY_BASE_URL": "https://api.invalid/v1"}
    command = ("listen", "--forward-to", receiver.url, "--allow-host", "shop.example")
    assert momopay(*command, **live).says(6, "real payments", "Nothing but reads")
    assert momopay(*command, "--every", "0.5").says(2, "--every")


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is free; and whatever a command does to the handlers of signals, undone."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number: int = listener.getsockname()[1]
    yield number
    for each, handler in before.items():
        signal.signal(each, handler)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@in_turn(
    ("arguments", "message"),
    [
        ("--host 192.0.2.1", "10049" if sys.platform == "win32" else "Cannot assign requested address"),
        ("--profile /nonexistent/service.toml", "/nonexistent/service.toml"),
        ("--speed -1", "speed must lie between"),
        ("--nosuch", "unrecognized arguments: --nosuch"),
    ],
)
def test_a_wrong_sandbox_option(momopay: Shell, port: int, arguments: str, message: str) -> None:
    assert momopay("sandbox", "--port", str(port), *arguments.split()).says(2, message)


def test_the_sandbox_runs_until_a_signal_and_prints_where_it_is(momopay: Shell, port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    with signalling([signal.SIGINT], lambda: answers(f"{url}/")):
        done = momopay("sandbox", "--port", str(port), "--speed", "20")
    assert (done.code, done.out.split()[1], "time x20, state in memory" in done.out) == (0, f"{url}/v1", True)
    in_use = "10048" if sys.platform == "win32" else "Address already in use"
    with socket.create_server(("127.0.0.1", port)):
        assert momopay("sandbox", "--port", str(port)).says(2, in_use, f"127.0.0.1', {port})")
