"""Callbacks sent to an application: as the service sends them, to this machine alone, and what the answer means."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cli.kit import NORMALISED, PHONE, Shell
from momopay import Client, parse_callback
from momopay.sandbox import Sandbox
from momopay.signing import CallbackSigner
from sandbox.kit import Receiver

SEND = ("callback", "send")


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        ("success", "SUCCESS", "0"),
        ("failed", "FAILED", "1"),
        ("cancelled", "CANCELLED", "1032"),
        ("expired", "EXPIRED", "1037"),
    ],
)
def test_a_callback_of_each_end(
    momopay: Shell, receiver: Receiver, sandbox: Sandbox, end: str, status: str, code: str
) -> None:
    made_up = ("--reference", "INV-7", "--amount", "99.50", "--phone", PHONE, "--type", "B2C")
    sent = momopay(*SEND, end, "--to", receiver.url, *made_up)
    assert sent.code == 0
    assert "200" in sent.out
    assert "of 30 s" in sent.out
    (body,) = receiver.bodies
    callback = parse_callback(body)
    reported = callback.transaction
    assert (callback.event_type, reported.status, reported.result_code, reported.type) == (
        f"transaction.{end}",
        status,
        code,
        "B2C",
    )
    assert (reported.external_reference, str(reported.amount), reported.phone) == ("INV-7", "99.5", NORMALISED)
    assert (reported.momo_receipt is None) == (end != "success")
    assert sandbox.requests == []


def test_its_fields_are_those_of_a_real_one(
    momopay: Shell, client: Client, receiver: Receiver, sandbox: Sandbox
) -> None:
    client.stk.initiate(amount=5, phone=PHONE, callback_url=receiver.url)
    sandbox.advance(60)
    momopay(*SEND, "success", "--to", receiver.url)
    real, made_up = receiver.bodies
    assert made_up.keys() == real.keys()
    assert made_up["transaction"].keys() == real["transaction"].keys()
    for name, value in real["transaction"].items():
        assert isinstance(made_up["transaction"][name], type(value)), name


def test_one_of_a_real_payment_is_confirmed(
    momopay: Shell, client: Client, receiver: Receiver, sandbox: Sandbox
) -> None:
    paid = client.stk.initiate(amount=5, phone=PHONE, account_reference="INV-8")
    sandbox.advance(60)
    assert momopay(*SEND, "success", "--to", receiver.url, "--transaction", paid.transaction_id).code == 0
    assert client.transactions.confirm(parse_callback(receiver.bodies[0])).status == "SUCCESS"


def test_what_the_answer_means(momopay: Shell, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 500
    refused = momopay(*SEND, "success", "--to", receiver.url, "--times", "2", "--json")
    assert refused.code == 1
    assert [(line["status"], line["acknowledged"]) for line in refused.lines] == [(500, False)] * 2
    assert receiver.bodies[0] == receiver.bodies[1]
    assert "Not acknowledged" in momopay(*SEND, "success", "--to", receiver.url).out


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "MOMOPAY_CALLBACK_SECRET"),
        (404, "the path in --to"),
        (503, "its handler raised a MomoPayError. It cannot confirm a made-up payment (give --transaction ID"),
        (418, "the application's log, at the time of this request"),
    ],
)
def test_a_refusal_says_where_to_look(momopay: Shell, receiver: Receiver, status: int, words: str) -> None:
    receiver.answer = lambda _body: status
    refused = momopay(*SEND, "success", "--to", receiver.url)
    assert refused.code == 1
    (line,) = [line for line in refused.out.splitlines() if line.startswith("Where to look: ")]
    assert words in line


def test_no_answer_exits_6(momopay: Shell) -> None:
    away = momopay(*SEND, "success", "--to", "http://127.0.0.1:1/momo")
    assert away.code == 6
    assert "ConnectError" in away.out


@pytest.fixture
def targets() -> Iterator[tuple[str, list[str]]]:
    """An endpoint, and the paths that were asked for, with their queries."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response_only(204)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://localhost:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_signed_url_verifies(momopay: Shell, targets: tuple[str, list[str]]) -> None:
    secret = "0123456789abcdef0123"
    url, seen = targets
    command = (*SEND, "success", "--to", f"{url}/momo?shop=1", "--reference", "A")
    signed = momopay(*command, MOMOPAY_CALLBACK_SECRET=secret)
    assert signed.code == 0
    assert CallbackSigner(secret).verify(seen[0]) == "A"
    assert seen[0].startswith("/momo?shop=1&")
    assert "momo_token" not in signed.out + signed.err
    momopay(*command)
    assert seen[1] == "/momo?shop=1"


@pytest.mark.parametrize(
    "url", ["https://shop.example/momo", "http://192.168.1.4/momo", "http://web:8000/momo", "ftp://localhost/x", "x"]
)
def test_it_is_sent_to_this_machine_alone(momopay: Shell, url: str) -> None:
    refused = momopay(*SEND, "success", "--to", url)
    assert refused.code == 2
    assert "--to " in refused.err


def test_a_host_elsewhere_takes_an_option(momopay: Shell) -> None:
    allowed = momopay(*SEND, "success", "--to", "http://shop.invalid/momo", "--anywhere")
    assert allowed.code == 6
